//! The limit of simultaneous waits over `/mcp`. Each keeps its whole request for up to an hour, which costs more than a
//! connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use c3po_shared::refusal::{ErrorCode, Refusal};

use crate::auth::Principal;

/// The memory that is planned for a wait with its connection, in bytes. One with the longest head and body takes 148 KiB; the
/// rest is room for other connections.
const DEAREST: u64 = 192 << 10;
/// The minimum number of waits, even with little memory.
const FEWEST: usize = 256;

/// The present waits.
#[derive(Debug)]
pub(super) struct HttpWaits {
    bound: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_principal: HashMap<String, usize>,
}

impl HttpWaits {
    /// Returns the waits of a coordinator with this memory limit. They may use a quarter of it.
    pub(super) fn within(memory: Option<u64>) -> Self {
        let held = memory.and_then(|memory| usize::try_from(memory / 4 / DEAREST).ok());
        Self {
            bound: held.map_or(usize::MAX, |held| held.max(FEWEST)),
            taken: Mutex::default(),
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more wait. A key has at most half of them.
    ///
    /// Errors: `RATE_LIMITED` at the limit of the key or of the coordinator.
    pub(super) fn begin(waits: &Arc<Self>, principal: &Principal) -> Result<HttpWait, Refusal> {
        let (name, mut taken) = (principal.name(), waits.taken());
        let own = taken.by_principal.get(name).copied().unwrap_or_default();
        let share = principal.key_id().map_or(waits.bound, |_| waits.bound / 2);
        if own >= share {
            return Err(refused("this key has", own, share));
        }
        if taken.all >= waits.bound {
            return Err(refused("the coordinator has", taken.all, waits.bound));
        }
        taken.all += 1;
        taken.by_principal.insert(name.to_owned(), own + 1);
        Ok(HttpWait {
            waits: Arc::clone(waits),
            principal: name.to_owned(),
        })
    }
}

/// Returns the refusal at a limit; `subject` with its verb.
fn refused(subject: &str, count: usize, limit: usize) -> Refusal {
    let error = format!("{subject} reached the limit of {limit} simultaneous waits over /mcp");
    Refusal::new(ErrorCode::RateLimited, error)
        .suggest("End some of them, or use a proxy, whose waits cost less. More memory for the coordinator raises the limit.")
        .detail("limit", limit)
        .detail("count", count)
}

/// One wait, counted until this is dropped.
#[derive(Debug)]
pub(super) struct HttpWait {
    waits: Arc<HttpWaits>,
    principal: String,
}

impl Drop for HttpWait {
    fn drop(&mut self) {
        let mut taken = self.waits.taken();
        taken.all -= 1;
        if let Some(own) = taken.by_principal.get_mut(&self.principal) {
            *own -= 1;
            if *own == 0 {
                taken.by_principal.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Reach;

    fn begin(waits: &Arc<HttpWaits>, principal: &Principal) -> Result<HttpWait, ErrorCode> {
        HttpWaits::begin(waits, principal).map_err(|refusal| refusal.code)
    }

    #[test]
    fn waits_are_limited_by_memory_and_free_their_place_at_their_end() {
        let bounds = [None, Some(512 << 20), Some(0)].map(|memory| HttpWaits::within(memory).bound);
        assert_eq!(bounds, [usize::MAX, 682, FEWEST]);
        let (waits, anybody) = (
            Arc::new(HttpWaits::within(Some(0))),
            Principal::anybody(Reach::Network),
        );
        let mut begun: Vec<_> = (0..FEWEST)
            .map(|_| begin(&waits, &anybody).expect("a place"))
            .collect();
        let refused = begin(&waits, &Principal::token()).map(drop);
        assert_eq!(refused, Err(ErrorCode::RateLimited));
        begun.pop();
        assert!(begin(&waits, &Principal::token()).is_ok());
        drop(begun);
        assert!(waits.taken().all == 0 && waits.taken().by_principal.is_empty());
    }
}
