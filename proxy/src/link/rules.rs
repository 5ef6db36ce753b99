//! When a call gives up, when the link dials again: decisions without effects.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::time::Instant;

use super::Kind;

/// How long a call waits for a link that is down, counted from when it went down.
const WAITS_FOR_LINK: Duration = Duration::from_secs(2);
/// How long a call that was written waits, without a link, for its answer.
const UNANSWERED_MAX: Duration = Duration::from_secs(30);
/// How much longer than asked a wait may take while the link is up: the coordinator's own answer is on its way.
const WAIT_GRACE: Duration = Duration::from_secs(5);
/// How long a session that was refused waits before it tries again by itself.
const REFUSED: Duration = Duration::from_secs(60);
/// The time in which all sessions of a lost coordinator reconnect to the next one, if there is one.
const ELSEWHERE: Duration = Duration::from_millis(200);
/// After how long a connection counts as stable, so that the next loss starts with the shortest delay.
pub(super) const STABLE: Duration = Duration::from_secs(10);

/// Returns when a call gives up, if nothing changes before. `None` is never.
pub(super) fn gives_up_at(down_since: Option<Instant>, written: bool, wait_until: Option<Instant>) -> Option<Instant> {
    match (down_since, written, wait_until) {
        (None, _, until) => until.map(|until| until + WAIT_GRACE),
        (Some(since), false, _) => Some(since + WAITS_FOR_LINK),
        (Some(_), true, Some(until)) => Some(until),
        (Some(since), true, None) => Some(since + UNANSWERED_MAX),
    }
}

/// Returns the delays between attempts: about 1, 2, 4, … and at most 30 s, each between half of that and the whole.
pub(super) fn backoff() -> ExponentialBackoff {
    // The builder's jitter adds up to the delay itself, so half of each delay is named here.
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(15))
        .with_jitter()
        .without_max_times()
        .build()
}

/// Returns how long to wait before the first attempt after a connection ended: hardly at all where another coordinator
/// may be well. Each process waits for a time of its own, so that not all of them come at once.
pub(super) fn first_delay(urls: usize, stable: bool, process: u128) -> Option<Duration> {
    let spread = u64::try_from(process % ELSEWHERE.as_millis()).unwrap_or_default();
    (urls > 1 && stable).then(|| Duration::from_millis(spread))
}

/// Returns how long a refused session waits before it tries again: each process a little longer, by a time of its own.
pub(super) fn refused_delay(process: u128) -> Duration {
    REFUSED + Duration::from_millis(u64::try_from(process % (REFUSED.as_millis() / 10)).unwrap_or_default())
}

/// Returns whether an immediate retry after a refusal is useless. A person's command reports it; a session waits.
pub(super) fn is_final(code: ErrorCode, kind: Kind) -> bool {
    match (code, kind) {
        (
            ErrorCode::Unauthorized | ErrorCode::Forbidden | ErrorCode::VersionMismatch | ErrorCode::InvalidRequest,
            _,
        ) => true,
        (ErrorCode::CoordDown | ErrorCode::StoreUnavailable, _) => false,
        (_, kind) => kind != Kind::Session,
    }
}

/// Returns the known state of a call without a reply: one that was never written is certainly not applied.
pub(super) fn applied(written: bool) -> &'static str {
    if written { "unknown" } else { "no" }
}

/// The refusal of calls that the end of the process cut off.
pub(super) fn ending() -> Refusal {
    Refusal::new(ErrorCode::Interrupted, "c3po is ending").suggest("Nothing to do: the session is over.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_give_up_by_what_is_known_of_them() {
        let now = Instant::now();
        let later = |seconds| Some(now + Duration::from_secs(seconds));
        let down = Some(now);
        assert_eq!(gives_up_at(None, true, None), None);
        assert_eq!(gives_up_at(None, false, None), None);
        assert_eq!(gives_up_at(None, true, later(60)), later(65));
        assert_eq!(gives_up_at(down, false, None), later(2));
        assert_eq!(gives_up_at(down, false, later(60)), later(2));
        assert_eq!(gives_up_at(down, true, None), later(30));
        assert_eq!(gives_up_at(down, true, later(60)), later(60));
    }

    #[test]
    fn another_coordinator_is_tried_at_once_unless_connections_keep_ending() {
        assert_eq!(first_delay(2, true, 1_234), Some(Duration::from_millis(34)));
        assert_eq!((first_delay(1, true, 1_234), first_delay(2, false, 1_234)), (None, None));
    }

    #[test]
    fn refused_sessions_come_back_after_a_minute_and_not_all_at_once() {
        assert_eq!(refused_delay(12_345), Duration::from_millis(60_345));
        assert!((0..10_000).all(|process| refused_delay(process) < Duration::from_secs(66)));
    }

    #[test]
    fn delays_double_up_to_half_a_minute_and_never_end() {
        let delays: Vec<_> = backoff().take(40).map(|delay| delay.as_secs_f64()).collect();
        for (at, most) in [(0, 1.0), (1, 2.0), (2, 4.0), (3, 8.0), (4, 16.0), (5, 30.0), (39, 30.0)] {
            assert!(delays[at] >= most / 2.0 - 0.01 && delays[at] <= most + 0.01, "{at}: {}", delays[at]);
        }
        assert_eq!(delays.len(), 40);
    }
}
