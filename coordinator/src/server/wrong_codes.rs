//! The limit of wrong codes, of invites or of logins: all clients share it.

use std::sync::{Mutex, PoisonError};

use c3po_shared::limits::WRONG_CODES_PER_MINUTE;
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::time::Instant;

use crate::limit::{LimitReached, Window};

/// The wrong codes of one kind in the last minute.
#[derive(Debug)]
pub(super) struct WrongCodes {
    /// The kind in a sentence: `join code`.
    what: &'static str,
    /// How a client gets a correct one.
    suggestion: &'static str,
    wrong: Mutex<Window<()>>,
}

impl WrongCodes {
    pub(super) fn new(what: &'static str, suggestion: &'static str) -> Self {
        Self {
            what,
            suggestion,
            wrong: Mutex::default(),
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
}
