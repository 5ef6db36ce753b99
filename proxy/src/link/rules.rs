//! When a call gives up and when the link dials again: decisions without effects.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use c3po_shared::limits::SILENCE_MAX;
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::time::Instant;

use super::Kind;

/// How long a call waits for a link that is down, counted from when it went down.
const WAITS_FOR_LINK: Duration = Duration::from_secs(2);
/// How long a call that was written waits for its answer without a link.
const UNANSWERED_MAX: Duration = Duration::from_secs(30);
/// How long a coordinator that owes a reply may stay silent: it promises one within two seconds.
const OWED_MAX: Duration = Duration::from_secs(10);
/// How long a wait may last beyond its timeout while the link is up, because the coordinator's answer is on its way.
const WAIT_GRACE: Duration = Duration::from_secs(5);
/// How long a refused session waits before it retries by itself.
const REFUSED: Duration = Duration::from_secs(60);
/// How long it waits the first time if its key is unknown: another coordinator may have made it just now.
const REFUSED_FIRST: Duration = Duration::from_secs(1);
/// The time in which all sessions of a lost coordinator reconnect to the next one, if there is one.
const ELSEWHERE: Duration = Duration::from_millis(200);
/// How long a connection must last to count as stable, so that the next back-off starts with the shortest delay.
pub(super) const STABLE: Duration = Duration::from_secs(10);

/// Returns when a call gives up, unless the link changes before. `None` means never.
pub(super) fn gives_up_at(
    down_since: Option<Instant>,
    written: bool,
    wait_until: Option<Instant>,
) -> Option<Instant> {
    match (down_since, written, wait_until) {
        (None, _, until) => until.map(|until| until + WAIT_GRACE),
        (Some(since), false, _) => Some(since + WAITS_FOR_LINK),
        (Some(_), true, Some(until)) => Some(until),
        (Some(since), true, None) => Some(since + UNANSWERED_MAX),
    }
}

/// Returns when a connection counts as lost, given the time of its last input and of the oldest call that is owed an answer. A
/// coordinator that is alive but does not answer is dialled again too. `others` is whether another coordinator could answer sooner.
pub(super) fn lost_at(heard: Instant, owed_since: Option<Instant>, others: bool) -> Instant {
    let Some(since) = owed_since else {
        return heard + SILENCE_MAX;
    };
    let patience_ends = since.min(heard) + SILENCE_MAX;
    if others {
        patience_ends.min(since.max(heard) + OWED_MAX)
    } else {
        patience_ends
    }
}

/// Returns the back-off delays: about 1, 2, 4, … and at most 30 s, each with jitter between half of that and the whole.
pub(super) fn backoff() -> ExponentialBackoff {
    // The builder's jitter adds up to the delay itself, so half of each delay is given here.
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(500))
        .with_max_delay(Duration::from_secs(15))
        .with_jitter()
        .without_max_times()
        .build()
}

/// Returns the delay before the first attempt after a connection ended: nearly none if there is another coordinator.
/// Each process has a different delay, so that they do not all connect at the same moment.
pub(super) fn first_delay(urls: usize, stable: bool, process: u128) -> Option<Duration> {
    let spread = u64::try_from(process % ELSEWHERE.as_millis()).unwrap_or_default();
    (urls > 1 && stable).then(|| Duration::from_millis(spread))
}

/// Returns how long a refused session waits before it retries, with a different extra delay for each process.
pub(super) fn refused_delay(code: ErrorCode, is_first: bool, process: u128) -> Duration {
    let is_short = code == ErrorCode::Unauthorized && is_first;
    let (delay, part) = if is_short {
        (REFUSED_FIRST, 1)
    } else {
        (REFUSED, 10)
    };
    let spread = u64::try_from(process % (delay.as_millis() / part)).unwrap_or_default();
    delay + Duration::from_millis(spread)
}

/// Returns whether an immediate retry after a refusal is useless. A person's command reports it; a session waits.
pub(super) fn is_final(code: ErrorCode, kind: Kind) -> bool {
    match (code, kind) {
        (
            ErrorCode::Unauthorized
            | ErrorCode::Forbidden
            | ErrorCode::VersionMismatch
            | ErrorCode::InvalidRequest,
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

/// Returns the refusal of calls that the end of the process interrupted.
pub(super) fn ending() -> Refusal {
    Refusal::new(ErrorCode::Interrupted, "c3po is shutting down")
        .suggest("Nothing to do: the session is over.")
}

/// Returns the refusal of a request of the client that is not relayed to the coordinator of this link. That may pass: a file that
/// is being replaced is missing for a moment. It may have been written before.
pub(super) fn relay_is_off() -> Refusal {
    let error = "the relay is off, or goes to another coordinator";
    Refusal::new(ErrorCode::CoordDown, error).detail("applied", applied(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_give_up_by_the_state_of_the_link_and_their_own_deadline() {
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
    fn a_connection_is_lost_by_silence_and_by_a_call_without_an_answer() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        assert_eq!(lost_at(now, None, true), later(45));
        assert_eq!(lost_at(now, Some(later(20)), false), later(45));
        assert_eq!(lost_at(now, Some(now), true), later(10));
        let alive = later(40);
        assert_eq!(lost_at(alive, Some(now), false), later(45));
        assert_eq!(lost_at(alive, Some(now), true), later(45));
    }

    #[test]
    fn another_coordinator_is_tried_at_once_unless_connections_keep_ending() {
        assert_eq!(first_delay(2, true, 1_234), Some(Duration::from_millis(34)));
        assert_eq!(
            (first_delay(1, true, 1_234), first_delay(2, false, 1_234)),
            (None, None)
        );
    }

    #[test]
    fn refused_sessions_come_back_after_a_minute_and_not_all_at_once() {
        let delay = |process| refused_delay(ErrorCode::Unauthorized, false, process);
        assert_eq!(delay(12_345), Duration::from_millis(60_345));
        assert!((0..10_000).all(|process| delay(process) < Duration::from_secs(66)));
        let first = |code| refused_delay(code, true, 0);
        assert_eq!(first(ErrorCode::Unauthorized), Duration::from_secs(1));
        assert_eq!(first(ErrorCode::Forbidden), Duration::from_secs(60));
    }

    #[test]
    fn delays_double_up_to_half_a_minute_and_never_end() {
        let delays: Vec<_> = backoff()
            .take(40)
            .map(|delay| delay.as_secs_f64())
            .collect();
        for (at, most) in [
            (0, 1.0),
            (1, 2.0),
            (2, 4.0),
            (3, 8.0),
            (4, 16.0),
            (5, 30.0),
            (39, 30.0),
        ] {
            assert!(
                delays[at] >= most / 2.0 - 0.01 && delays[at] <= most + 0.01,
                "{at}: {}",
                delays[at]
            );
        }
        assert_eq!(delays.len(), 40);
    }
}
