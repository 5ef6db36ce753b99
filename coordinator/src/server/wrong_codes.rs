//! The limit of wrong codes, of invites or of logins: all clients share it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use c3po_shared::limits::WRONG_CODES_PER_MINUTE;
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

use crate::limit::{LimitReached, Window};

/// How many codes of one kind are looked up at a time. Clients without a key share these places, so that their flood does not
/// fill the store.
const LOOKUPS_MAX: usize = 4;
/// How long a client waits for such a place.
const PLACE_DEADLINE: Duration = Duration::from_secs(10);

/// The wrong codes of one kind in the last minute.
#[derive(Debug)]
pub(super) struct WrongCodes {
    /// The kind in a sentence: `join code`.
    what: &'static str,
    /// How a client gets a correct one.
    suggestion: &'static str,
    wrong: Mutex<Window<()>>,
    places: Semaphore,
}

impl WrongCodes {
    pub(super) fn new(what: &'static str, suggestion: &'static str) -> Self {
        Self {
            what,
            suggestion,
            wrong: Mutex::default(),
            places: Semaphore::new(LOOKUPS_MAX),
        }
    }

    /// Waits for a place to look a code up. Places are given in the order of the requests.
    ///
    /// Errors: `RATE_LIMITED` if that takes too long.
    pub(super) async fn place(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        match timeout(PLACE_DEADLINE, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            _ => {
                let error = format!("too many clients present a {}", self.what);
                Err(Refusal::new(ErrorCode::RateLimited, error)
                    .suggest("Use the code again in a few seconds."))
            }
        }
    }

    /// Counts a wrong code and returns its refusal. All clients share one limit per minute, above which the refusal is a rate
    /// limit. Correct codes are never limited, or any client could lock others out; their 128 bits protect them from guessing.
    pub(super) fn refuse(&self, now: Instant) -> Refusal {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(LimitReached {
            count,
            retry_after_seconds,
        }) = wrong.take((), WRONG_CODES_PER_MINUTE, now)
        {
            return Refusal::too_many_codes(
                self.what,
                self.suggestion,
                count,
                WRONG_CODES_PER_MINUTE,
                retry_after_seconds,
            );
        }
        // The same error as for a code that never existed, so that clients cannot learn which codes existed.
        let error = format!("this {} is unknown, was used, or has expired", self.what);
        Refusal::new(ErrorCode::Unauthorized, error).suggest(self.suggestion)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn wrong_codes_are_refused_up_to_the_rate_limit() {
        let codes = WrongCodes::new("join code", "Get another one.");
        let (now, code) = (Instant::now(), |at| codes.refuse(at).code);
        assert!((0..WRONG_CODES_PER_MINUTE).all(|_| code(now) == ErrorCode::Unauthorized));
        assert_eq!(code(now + Duration::from_secs(59)), ErrorCode::RateLimited);
        assert_eq!(code(now + Duration::from_secs(60)), ErrorCode::Unauthorized);
    }

    #[tokio::test(start_paused = true)]
    async fn codes_are_looked_up_a_few_at_a_time() {
        let codes = WrongCodes::new("join code", "Get another one.");
        let mut places = Vec::new();
        for _ in 0..LOOKUPS_MAX {
            places.push(codes.place().await.expect("a place"));
        }
        let refused = codes.place().await.expect_err("all are taken");
        assert_eq!(refused.code, ErrorCode::RateLimited);
        places.pop();
        places.push(codes.place().await.expect("one is free again"));
    }
}
