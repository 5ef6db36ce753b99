//! The load's own picture of the sessions that wait for answers. Every refusal as a wait cycle is judged by it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long a cancelled wait counts, according to docs/API.md.
const CANCELLED_COUNTS: Duration = Duration::from_secs(30);
/// How long a wait is remembered after its end: longer than any call, so that a refusal finds the waits of its time.
const REMEMBERED: Duration = Duration::from_secs(120);
/// How soon one wait of a cycle must be refused or answered.
const CYCLE_ENDS: Duration = Duration::from_secs(1);

/// The waits of all sessions.
#[derive(Debug, Default)]
pub(crate) struct Picture(Mutex<Vec<WaitEdge>>);

/// One wait for an answer.
#[derive(Debug)]
struct WaitEdge {
    from: String,
    to: String,
    since: Instant,
    end: Option<WaitEnd>,
}

#[derive(Debug, Clone, Copy)]
struct WaitEnd {
    at: Instant,
    cancelled: bool,
}

/// A wait that goes on. It counts as cancelled if it is dropped without its result.
#[derive(Debug)]
pub(crate) struct OngoingWait<'a> {
    picture: &'a Picture,
    from: String,
    since: Instant,
}

/// The judgement of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// All agents of the cycle waited at the same time.
    True,
    /// So they did if cancelled waits count as documented.
    OfCancelledWait,
    False,
}

impl Picture {
    /// Adds a wait. A session waits for one answer at a time.
    pub(crate) fn begin(&self, from: &str, to: &str) -> OngoingWait<'_> {
        let (now, mut waits) = (Instant::now(), self.waits());
        waits.retain(|wait| wait.end.is_none_or(|end| now < end.at + REMEMBERED));
        waits.push(WaitEdge {
            from: from.to_owned(),
            to: to.to_owned(),
            since: now,
            end: None,
        });
        OngoingWait {
            picture: self,
            from: from.to_owned(),
            since: now,
        }
    }

    /// Judges the refusal of a wait that began at `since`.
    fn judge(&self, cycle: &[String], since: Instant) -> Alarm {
        let waits = self.waits();
        let is_true = |grace| closed_within(&waits, cycle, since, grace);
        if is_true(Duration::ZERO) {
            Alarm::True
        } else if is_true(CANCELLED_COUNTS) {
            Alarm::OfCancelledWait
        } else {
            Alarm::False
        }
    }

    fn waits(&self) -> MutexGuard<'_, Vec<WaitEdge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OngoingWait<'_> {
    /// Judges the refusal of this wait. The cycle begins and ends with the same agent.
    pub(crate) fn judge(&self, cycle: &[String]) -> Alarm {
        self.picture.judge(cycle, self.since)
    }

    /// Ends the wait, which has a result. Returns whether it was in a cycle for longer than a cycle may last.
    pub(crate) fn end(self) -> bool {
        let now = Instant::now();
        let missed = in_cycle(&self.picture.waits(), &self.from, now);
        self.finish(now, false);
        missed
    }

    fn finish(&self, at: Instant, cancelled: bool) {
        let mut waits = self.picture.waits();
        let own = waits
            .iter_mut()
            .find(|wait| wait.from == self.from && wait.since == self.since);
        if let Some(wait) = own {
            wait.end.get_or_insert(WaitEnd { at, cancelled });
        }
    }
}

impl Drop for OngoingWait<'_> {
    fn drop(&mut self) {
        self.finish(Instant::now(), true);
    }
}

impl WaitEdge {
    fn covers(&self, time: Instant, grace: Duration) -> bool {
        let until = |end: WaitEnd| end.at + if end.cancelled { grace } else { Duration::ZERO };
        self.since <= time && self.end.is_none_or(|end| time <= until(end))
    }
}

/// Returns whether at some time since then every agent of the cycle waited for the next one.
fn closed_within(waits: &[WaitEdge], cycle: &[String], since: Instant, grace: Duration) -> bool {
    // A cycle is closed by the beginning of a wait, or was closed before.
    let begins = waits.iter().map(|wait| wait.since);
    let closed_at = |time: Instant| {
        cycle.windows(2).all(|pair| {
            waits
                .iter()
                .any(|wait| wait.from == pair[0] && wait.to == pair[1] && wait.covers(time, grace))
        })
    };
    begins.filter(|time| *time >= since).any(closed_at)
}

/// Returns whether this agent is in a cycle of waits, each of which has lasted for longer than a cycle may.
fn in_cycle(waits: &[WaitEdge], agent: &str, now: Instant) -> bool {
    let next_of = |agent: &str| {
        let wait = waits
            .iter()
            .find(|wait| wait.from == agent && wait.end.is_none());
        wait.filter(|wait| wait.since + CYCLE_ENDS < now)
            .map(|wait| wait.to.as_str())
    };
    let (mut seen, mut at) = (HashSet::new(), agent);
    while let Some(next) = next_of(at).filter(|next| seen.insert(*next)) {
        if next == agent {
            return true;
        }
        at = next;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    /// A wait: sender, recipient, and the step in which it ended, and whether by cancelling.
    type Row<'a> = (&'a str, &'a str, Option<(u32, bool)>);

    /// Returns waits that begin one step after another.
    fn waits(start: Instant, rows: &[Row<'_>]) -> Vec<WaitEdge> {
        let mut since = start;
        let wait = |(from, to, end): &Row<'_>| {
            since += STEP;
            WaitEdge {
                from: (*from).to_owned(),
                to: (*to).to_owned(),
                since,
                end: end.map(|(step, cancelled)| WaitEnd {
                    at: start + STEP * step,
                    cancelled,
                }),
            }
        };
        rows.iter().map(wait).collect()
    }

    #[test]
    fn an_alarm_is_true_if_all_agents_of_the_cycle_waited_at_once() {
        let start = Instant::now();
        let cycle = ["b", "c", "a", "b"].map(str::to_owned);
        // The wait of `a`, the last one, is refused.
        let judge = |end_of_b| {
            let waits = waits(
                start,
                &[("b", "c", end_of_b), ("c", "a", None), ("a", "b", None)],
            );
            let since = waits[2].since;
            Picture(Mutex::new(waits)).judge(&cycle, since)
        };
        assert_eq!(judge(None), Alarm::True);
        assert_eq!(judge(Some((4, false))), Alarm::True);
        assert_eq!(judge(Some((2, false))), Alarm::False);
        assert_eq!(judge(Some((2, true))), Alarm::OfCancelledWait);
    }

    #[test]
    fn a_cancelled_wait_counts_for_30_s_only() {
        let start = Instant::now();
        let mut waits = waits(start, &[("b", "a", Some((2, true))), ("a", "b", None)]);
        waits[1].since = start + STEP * 2 + CANCELLED_COUNTS + STEP;
        let (since, cycle) = (waits[1].since, ["b", "a", "b"].map(str::to_owned));
        assert_eq!(
            Picture(Mutex::new(waits)).judge(&cycle, since),
            Alarm::False
        );
    }

    #[test]
    fn a_cycle_that_lasts_is_found_and_a_row_is_none() {
        let start = Instant::now();
        let row = [("a", "b", None), ("b", "c", None), ("c", "d", None)];
        let late = start + STEP * 4 + CYCLE_ENDS;
        assert!(!in_cycle(&waits(start, &row), "a", late));
        let cycle = waits(start, &[row[0], row[1], ("c", "a", None)]);
        assert!(
            ["a", "b", "c"]
                .iter()
                .all(|agent| in_cycle(&cycle, agent, late))
        );
        assert!(!in_cycle(&cycle, "a", start + CYCLE_ENDS));
        // One that leads into a cycle is not part of it.
        assert!(!in_cycle(
            &waits(
                start,
                &[("a", "b", None), ("b", "c", None), ("c", "b", None)]
            ),
            "a",
            late
        ));
    }
}
