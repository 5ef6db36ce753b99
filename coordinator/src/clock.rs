//! The clock of the fleet: the store's, where the store has one. Leases and expiry are decided there, and all coordinators of a
//! fleet share it.

use std::sync::atomic::{AtomicI64, Ordering};

use c3po_shared::limits::CLOCK_SKEW;
use c3po_shared::time::Timestamp;

/// How many milliseconds the store's clock is ahead of this machine's; negative if it is behind, 0 if they agree.
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// A difference up to this may come from the way to the store, in milliseconds.
const AGREES_MS: u64 = 1_000;

/// Returns the current time of the fleet.
pub(crate) fn now() -> Timestamp {
    let ahead = AHEAD_MS.load(Ordering::Relaxed);
    Timestamp::from_millis(Timestamp::now().millis().saturating_add_signed(ahead))
}

/// Follows the clock of the store, which is ahead of this machine's by so many milliseconds. A large difference is logged.
pub(crate) fn follow(ahead_ms: i64) {
    let ahead = if ahead_ms.unsigned_abs() > AGREES_MS {
        ahead_ms
    } else {
        0
    };
    let before = AHEAD_MS.swap(ahead, Ordering::Relaxed);
    let skew = i64::try_from(CLOCK_SKEW.as_millis()).unwrap_or(i64::MAX);
    if ahead.abs() > skew && (ahead - before).abs() > skew {
        let (seconds, way) = (
            ahead.abs() / 1_000,
            if ahead > 0 { "behind" } else { "ahead of" },
        );
        tracing::warn!(
            "the clock of this machine is {seconds} s {way} that of Redis, whose time is used; set both by NTP"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_of_the_fleet_is_that_of_the_store() {
        let apart = || now().millis_ahead_of(Timestamp::now());
        for (ahead, expected) in [(60_000, 60_000), (-86_400_000, -86_400_000), (900, 0)] {
            follow(ahead);
            assert!((apart() - expected).abs() < 1_000, "{ahead}: {}", apart());
        }
        assert!(now().since(Timestamp::now()) < Duration::from_secs(1));
    }
}
