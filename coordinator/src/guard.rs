//! The loop guard: stops two agents that answer each other without end, by counts per pair and rulings of a person.
//!
//! The counts are in the memory of each sender's coordinator, and the rulings are in the store.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::guard::{GuardedPair, Standing};
use c3po_shared::ids::CallId;
use c3po_shared::limits::LOOP_WINDOW;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::limit::Window;
use crate::store::{Pair, Result, Ruling, Store};

/// How many pairs are counted at once. Above that, the pairs with the fewest messages are dropped until half remain.
const PAIRS_MAX: usize = 16_384;
/// How often the rulings are read, at the cost of one small read.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a message between two agents is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// The pair has sent that many messages in the window, which is the limit.
    Loop {
        /// The number of messages.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// A person stopped the pair.
    Stopped,
}

/// The counts and rulings at this coordinator.
#[derive(Debug)]
pub(crate) struct Guard {
    /// The limit of messages per pair and window; `None` for no limit.
    limit: Option<u32>,
    pairs: Mutex<Pairs>,
}

#[derive(Debug, Default)]
struct Pairs {
    counts: HashMap<Pair, Window<CallId, { LOOP_WINDOW.as_secs() }>>,
    rulings: HashMap<Pair, Ruling>,
}

impl Guard {
    /// Makes a guard with this limit of messages per pair and window; `None` for no limit.
    pub(crate) fn new(limit: Option<u32>) -> Self {
        Self {
            limit,
            pairs: Mutex::default(),
        }
    }

    /// Returns the limit of messages per pair and window.
    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Counts one message of the pair, or refuses it.
    ///
    /// A call that was already counted is accepted, because a repeated call must get its first reply.
    pub(crate) fn take(&self, pair: &Pair, call: CallId, now: Instant) -> Result<(), Suspicion> {
        let mut pairs = self.pairs();
        if pairs
            .counts
            .get(pair)
            .is_some_and(|counted| counted.holds(&call))
        {
            return Ok(());
        }
        if pairs
            .rulings
            .get(pair)
            .is_some_and(|ruling| ruling.is_stopped)
        {
            return Err(Suspicion::Stopped);
        }
        let Some(limit) = self.limit else {
            return Ok(());
        };
        pairs.make_room(now);
        let taken = pairs
            .counts
            .entry(pair.clone())
            .or_default()
            .take(call, limit, now);
        taken.map_err(|reached| Suspicion::Loop {
            count: reached.count,
            limit,
        })
    }

    /// Removes the count of a call that sent nothing.
    pub(crate) fn give_back(&self, pair: &Pair, call: CallId) {
        let mut pairs = self.pairs();
        if let Some(counted) = pairs.counts.get_mut(pair) {
            counted.retain(|what, _| *what != call);
        }
    }

    /// Removes the counts of the pair before that time.
    pub(crate) fn forget_before(&self, pair: &Pair, moment: Instant) {
        if let Some(counted) = self.pairs().counts.get_mut(pair) {
            counted.retain(|_, at| at >= moment);
        }
    }

    /// Returns the pairs that are stopped or have reached half of the limit.
    pub(crate) fn suspects(&self, now: Instant) -> Vec<Pair> {
        let mut pairs = self.pairs();
        let half = self.limit.map_or(u32::MAX, |limit| limit.div_ceil(2));
        let near = pairs
            .counts
            .iter_mut()
            .filter_map(|(pair, counted)| (counted.count(now) >= half).then_some(pair));
        let mut found: Vec<Pair> = near.cloned().collect();
        found.extend(
            pairs
                .rulings
                .values()
                .filter(|ruling| ruling.is_stopped)
                .map(|ruling| ruling.pair.clone()),
        );
        found.sort();
        found.dedup();
        found
    }

    /// Returns the state of the pair.
    pub(crate) fn standing(&self, pair: &Pair, now: Instant) -> GuardedPair {
        let mut pairs = self.pairs();
        let count = pairs
            .counts
            .get_mut(pair)
            .map_or(0, |counted| counted.count(now));
        let stopped_at = pairs
            .rulings
            .get(pair)
            .filter(|ruling| ruling.is_stopped)
            .map(|ruling| ruling.at);
        let standing = match self.limit {
            _ if stopped_at.is_some() => Standing::Stopped,
            Some(limit) if count >= limit => Standing::Suspected,
            _ => Standing::Open,
        };
        GuardedPair {
            agents: pair.agents().map(Clone::clone),
            standing,
            count,
            stopped_at,
        }
    }

    /// Replaces all rulings. The count of a newly allowed pair starts again.
    pub(crate) fn follow(&self, rulings: Vec<Ruling>) {
        let mut pairs = self.pairs();
        for ruling in rulings.iter().filter(|ruling| !ruling.is_stopped) {
            if pairs.rulings.get(&ruling.pair) != Some(ruling) {
                pairs.counts.remove(&ruling.pair);
            }
        }
        pairs.rulings = rulings
            .into_iter()
            .map(|ruling| (ruling.pair.clone(), ruling))
            .collect();
    }

    fn pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pairs {
    /// Drops pairs if there are too many: first those without recent messages, then those with the fewest.
    fn make_room(&mut self, now: Instant) {
        if self.counts.len() < PAIRS_MAX {
            return;
        }
        let mut fewest = 0;
        while self.counts.len() > PAIRS_MAX / 2 {
            self.counts.retain(|_, counted| counted.count(now) > fewest);
            fewest = 2 * fewest + 1;
        }
    }
}

/// Loads the rulings.
pub(crate) async fn load(guard: &Guard, store: &dyn Store) -> Result<()> {
    guard.follow(store.rulings().await?);
    Ok(())
}

/// Follows the rulings in the store until `stop` is cancelled. While the store is unavailable, they stay unchanged.
pub(crate) async fn keep(guard: &Guard, store: &dyn Store, stop: &CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_lost = false;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let outcome = load(guard, store).await;
        if let (Err(error), false) = (&outcome, is_lost) {
            tracing::warn!(
                "`guard allow` and `guard stop` take no effect here until the store can be read again: {error}"
            );
        }
        is_lost = outcome.is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::ids::AgentId;
    use c3po_shared::time::Timestamp;

    fn pair(one: &str, other: &str) -> Pair {
        let agent = |name: &str| name.parse::<AgentId>().expect("an id");
        Pair::of(&agent(one), &agent(other))
    }

    fn ruling(pair: &Pair, is_stopped: bool, at: u64) -> Ruling {
        Ruling {
            pair: pair.clone(),
            is_stopped,
            at: Timestamp::from_millis(at),
        }
    }

    #[test]
    fn messages_of_both_agents_count_against_the_limit_of_their_pair() {
        let (guard, start) = (Guard::new(Some(2)), Instant::now());
        let take = |one, other, seconds| {
            guard.take(
                &pair(one, other),
                CallId::fresh(),
                start + Duration::from_secs(seconds),
            )
        };
        assert_eq!(take("a", "b", 0), Ok(()));
        assert_eq!(take("b", "a", 300), Ok(()));
        assert_eq!(
            take("a", "b", 599),
            Err(Suspicion::Loop { count: 2, limit: 2 })
        );
        assert_eq!(take("a", "c", 599), Ok(()), "another pair");
        assert_eq!(
            take("b", "a", 600),
            Ok(()),
            "the first one is out of the window"
        );
        assert_eq!(
            take("a", "b", 601),
            Err(Suspicion::Loop { count: 2, limit: 2 })
        );
    }

    #[test]
    fn refused_and_repeated_sends_are_not_counted() {
        let (guard, now, both, call) = (
            Guard::new(Some(1)),
            Instant::now(),
            pair("a", "b"),
            CallId::fresh(),
        );
        assert_eq!(guard.take(&both, call, now), Ok(()));
        assert_eq!(guard.take(&both, call, now), Ok(()), "the same call");
        assert!(guard.take(&both, CallId::fresh(), now).is_err());
        guard.give_back(&both, call);
        assert_eq!(guard.take(&both, CallId::fresh(), now), Ok(()));
    }

    #[test]
    fn a_prompt_clears_the_count_of_earlier_messages() {
        let (guard, start, both) = (Guard::new(Some(3)), Instant::now(), pair("a", "b"));
        let at = |seconds| start + Duration::from_secs(seconds);
        for second in [1, 2, 3] {
            assert_eq!(guard.take(&both, CallId::fresh(), at(second)), Ok(()));
        }
        guard.forget_before(&both, at(3));
        assert_eq!(guard.standing(&both, at(3)).count, 1);
    }

    #[test]
    fn a_ruling_stops_a_pair_or_has_it_counted_anew_once() {
        let (guard, now, both) = (Guard::new(Some(1)), Instant::now(), pair("a", "b"));
        let take = || guard.take(&both, CallId::fresh(), now);
        guard.follow(vec![ruling(&both, true, 1)]);
        assert_eq!(take(), Err(Suspicion::Stopped));
        assert_eq!(guard.standing(&both, now).standing, Standing::Stopped);
        guard.follow(vec![ruling(&both, false, 2)]);
        assert_eq!(take(), Ok(()));
        guard.follow(vec![ruling(&both, false, 2)]);
        assert_eq!(
            take(),
            Err(Suspicion::Loop { count: 1, limit: 1 }),
            "it was read before"
        );
        assert_eq!(guard.standing(&both, now).standing, Standing::Suspected);
        guard.follow(vec![ruling(&both, false, 3)]);
        assert_eq!(take(), Ok(()));
    }

    #[test]
    fn a_stop_holds_also_if_nothing_is_counted() {
        let (guard, now, both) = (Guard::new(None), Instant::now(), pair("a", "b"));
        for _ in 0..1_000 {
            assert_eq!(guard.take(&both, CallId::fresh(), now), Ok(()));
        }
        assert_eq!(
            (guard.standing(&both, now).count, guard.suspects(now)),
            (0, Vec::new())
        );
        guard.follow(vec![ruling(&both, true, 1)]);
        assert_eq!(
            guard.take(&both, CallId::fresh(), now),
            Err(Suspicion::Stopped)
        );
        assert_eq!(guard.suspects(now), [both]);
    }

    #[test]
    fn pairs_near_the_limit_and_stopped_ones_are_suspects() {
        let (guard, now) = (Guard::new(Some(5)), Instant::now());
        for (other, count) in [("b", 2), ("c", 3), ("d", 5)] {
            for _ in 0..count {
                assert_eq!(guard.take(&pair("a", other), CallId::fresh(), now), Ok(()));
            }
        }
        let stopped =
            [("a", "d"), ("x", "y")].map(|(one, other)| ruling(&pair(one, other), true, 1));
        guard.follow([&stopped[..], &[ruling(&pair("a", "b"), false, 1)]].concat());
        assert_eq!(
            guard.suspects(now),
            [pair("a", "c"), pair("a", "d"), pair("x", "y")]
        );
    }

    #[test]
    fn the_pairs_with_the_fewest_messages_make_room() {
        let (guard, now, busy) = (Guard::new(Some(10)), Instant::now(), pair("a", "b"));
        for _ in 0..3 {
            assert_eq!(guard.take(&busy, CallId::fresh(), now), Ok(()));
        }
        for number in 0..2 * PAIRS_MAX {
            let other = format!("c{number}");
            assert_eq!(guard.take(&pair("a", &other), CallId::fresh(), now), Ok(()));
        }
        assert!(guard.pairs().counts.len() <= PAIRS_MAX);
        assert_eq!(guard.standing(&busy, now).count, 3);
    }
}
