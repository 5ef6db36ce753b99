//! The clock of the fleet: the store's, where the store has one. Leases and expiry are decided there, and all coordinators of a
//! fleet share it.

use std::sync::atomic::{AtomicI64, Ordering};

use c3po_shared::limits::CLOCK_SKEW;
use c3po_shared::time::Timestamp;

/// How many milliseconds the store's clock is ahead of this machine's; negative if it is behind.
static AHEAD_MS: AtomicI64 = AtomicI64::new(0);

/// A difference up to this may come from the way to the store, in milliseconds.
const AGREES_MS: u64 = 1_000;

/// Returns the current time of the fleet.
pub(crate) fn now() -> Timestamp {
    ahead_by(unless_agreed(AHEAD_MS.load(Ordering::Relaxed)))
}

/// Returns the current time of the store's own clock, up to half of the way to the store and back.
pub(crate) fn of_store() -> Timestamp {
    ahead_by(AHEAD_MS.load(Ordering::Relaxed))
}

fn ahead_by(millis: i64) -> Timestamp {
    Timestamp::from_millis(Timestamp::now().millis().saturating_add_signed(millis))
}

/// Returns the difference, or 0 if the clocks agree.
fn unless_agreed(ahead_ms: i64) -> i64 {
    if ahead_ms.unsigned_abs() > AGREES_MS {
        ahead_ms
    } else {
        0
    }
}

/// Follows the clock of the store, which showed that time after it was asked. A large difference is logged.
pub(crate) fn follow(asked: Timestamp, shown: Timestamp) {
    let answered = Timestamp::now();
    let on_the_way = answered.millis_ahead_of(asked);
    let exact = shown.millis_ahead_of(answered) + on_the_way / 2;
    let before = unless_agreed(AHEAD_MS.swap(exact, Ordering::Relaxed));
    let ahead = unless_agreed(exact);
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
        let apart = |time: Timestamp| time.millis_ahead_of(Timestamp::now());
        for (ahead, expected) in [(60_000, 60_000), (-86_400_000, -86_400_000), (900, 0)] {
            let asked = Timestamp::now();
            follow(asked, ahead_by(ahead));
            let (fleet, store) = (apart(now()), apart(of_store()));
            assert!((fleet - expected).abs() < 400, "{ahead}: {fleet}");
            assert!((store - ahead).abs() < 400, "{ahead}: {store}");
        }
        assert!(now().since(Timestamp::now()) < Duration::from_secs(1));
    }
}
