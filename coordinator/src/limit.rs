//! Rate limits over a rolling minute or another window.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use tokio::time::Instant;

/// How many windows there are at least when those that expired are removed.
const SWEPT_AT_LEAST: usize = 4_096;
/// The capacity that a window keeps: the first one of a queue.
const FEW: usize = 4;

/// The items counted in the last minute, or in that many seconds.
#[derive(Debug)]
pub(crate) struct Window<T, const SECONDS: u64 = 60>(VecDeque<Counted<T>>);

#[derive(Debug)]
struct Counted<T> {
    at: Instant,
    what: T,
    weight: u32,
}

/// The error for a limit that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LimitReached {
    /// The count in the window.
    pub(crate) count: u32,
    /// The number of seconds until there is room again.
    pub(crate) retry_after_seconds: u64,
}

impl<T, const SECONDS: u64> Default for Window<T, SECONDS> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T, const SECONDS: u64> Window<T, SECONDS> {
    /// How long an item counts.
    const LENGTH: Duration = Duration::from_secs(SECONDS);

    /// Counts one more, unless the limit is reached.
    pub(crate) fn take(&mut self, what: T, limit: u32, now: Instant) -> Result<(), LimitReached> {
        let count = self.count(now);
        if count < limit {
            self.0.push_back(Counted {
                at: now,
                what,
                weight: 1,
            });
            return Ok(());
        }
        let mut left = count;
        let enough = self.0.iter().find(|counted| {
            left = left.saturating_sub(counted.weight);
            left < limit
        });
        let wait = enough.map_or(Self::LENGTH, |counted| {
            Self::LENGTH.saturating_sub(now.duration_since(counted.at))
        });
        Err(LimitReached {
            count,
            retry_after_seconds: wait.as_secs() + 1,
        })
    }

    /// Returns the count.
    pub(crate) fn count(&mut self, now: Instant) -> u32 {
        self.roll(now);
        self.0
            .iter()
            .fold(0, |sum: u32, counted| sum.saturating_add(counted.weight))
    }

    /// Removes the items that `keep` rejects, given the item and its time.
    pub(crate) fn retain(&mut self, keep: impl Fn(&T, Instant) -> bool) {
        self.0.retain(|counted| keep(&counted.what, counted.at));
    }

    /// Removes the items that are older than the window.
    fn roll(&mut self, now: Instant) {
        while self
            .0
            .front()
            .is_some_and(|counted| now.duration_since(counted.at) >= Self::LENGTH)
        {
            self.0.pop_front();
        }
        // Otherwise the memory of thousands of windows would grow with the busiest time of each.
        if self.0.capacity() > FEW.max(4 * self.0.len()) {
            self.0.shrink_to(FEW.max(2 * self.0.len()));
        }
    }
}

impl<T: PartialEq, const SECONDS: u64> Window<T, SECONDS> {
    /// Returns whether this item was counted.
    pub(crate) fn holds(&self, what: &T) -> bool {
        self.0.iter().any(|counted| counted.what == *what)
    }
}

/// The sends of the last minute by agent: messages, replies and copies.
#[derive(Debug)]
pub(crate) struct RateLimit {
    limit: Option<u32>,
    windows: Mutex<Windows>,
}

/// The windows of agents. A name may be used once and never again.
#[derive(Debug, Default)]
struct Windows {
    by_agent: HashMap<AgentId, Window<CallId>>,
    /// How many there may be before those that expired are removed: twice as many as were left, so that a send costs the same
    /// beside many names.
    swept_at: usize,
    /// When they were last removed: after a minute they are again, so that a busy time leaves no memory in use.
    swept: Option<Instant>,
}

impl Windows {
    /// Returns the window of an agent.
    fn of(&mut self, agent: &AgentId, now: Instant) -> &mut Window<CallId> {
        let is_due = |swept| now.duration_since(swept) >= Window::<CallId>::LENGTH;
        if self.by_agent.len() >= self.swept_at || self.swept.is_some_and(is_due) {
            self.by_agent.retain(|_, window| {
                window.roll(now);
                !window.0.is_empty()
            });
            self.by_agent.shrink_to(2 * self.by_agent.len());
            self.swept_at = SWEPT_AT_LEAST.max(2 * self.by_agent.len());
            self.swept = Some(now);
        }
        self.by_agent.entry(agent.clone()).or_default()
    }
}

impl RateLimit {
    /// Makes a limit of sends per minute and agent; `None` for no limit.
    pub(crate) fn new(limit: Option<u32>) -> Self {
        Self {
            limit,
            windows: Mutex::default(),
        }
    }

    /// Counts one send, or refuses it.
    ///
    /// A call that was already counted is accepted, because a repeated call must get its first reply.
    pub(crate) fn take(&self, agent: &AgentId, call: CallId, now: Instant) -> Result<(), Refusal> {
        let Some(limit) = self.limit else {
            return Ok(());
        };
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.of(agent, now);
        window.roll(now);
        if window.holds(&call) {
            return Ok(());
        }
        let taken = window.take(call, limit, now);
        taken.map_err(|reached| {
            Refusal::rate_limited(reached.count, limit, reached.retry_after_seconds)
        })
    }

    /// Returns the allowance of an agent; `None` without a limit.
    pub(crate) fn allowance(&self, agent: &AgentId, now: Instant) -> Option<RateAllowance> {
        let limit = self.limit?;
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.by_agent.get_mut(agent);
        let (count, left) = window.map_or((0, Duration::ZERO), |window| {
            let count = window.count(now);
            let oldest = window.0.front().map(|counted| counted.at);
            let left = oldest.map(|at| Window::<CallId>::LENGTH.saturating_sub(now - at));
            (count, left.unwrap_or_default())
        });
        Some(RateAllowance {
            limit,
            remaining: limit.saturating_sub(count),
            reset: Timestamp::now() + left,
        })
    }

    /// Weighs a counted call by its number of copies. An accepted call is sent completely, so that a fleet larger than the
    /// limit can be addressed once a minute.
    pub(crate) fn weigh(&self, agent: &AgentId, call: &CallId, copies: usize) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = windows
            .by_agent
            .get_mut(agent)
            .and_then(|window| window.0.iter_mut().find(|counted| counted.what == *call));
        if let Some(counted) = counted {
            counted.weight = u32::try_from(copies.max(1)).unwrap_or(u32::MAX);
        }
    }
}

/// The part of a rate limit that is left to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateAllowance {
    /// The limit of sends in a minute.
    pub(crate) limit: u32,
    /// How many are left.
    pub(crate) remaining: u32,
    /// When the oldest counted send leaves the minute; now if there is none.
    pub(crate) reset: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::refusal::ErrorCode;

    #[test]
    fn a_window_gives_back_the_memory_of_a_busy_time() {
        let (mut window, start) = (Window::<u32>::default(), Instant::now());
        for number in 0..60 {
            assert!(window.take(number, 60, start).is_ok());
        }
        assert!(window.take(60, 60, start + Duration::from_secs(60)).is_ok());
        assert!(window.0.capacity() <= 2 * FEW, "{}", window.0.capacity());
    }

    #[test]
    fn names_that_are_used_once_are_swept_once_in_as_many_sends() {
        let (limit, start) = (RateLimit::new(Some(2)), Instant::now());
        let lock = || limit.windows.lock().expect("no panic");
        let send = |name: String, at| {
            let agent = name.parse().expect("a name");
            limit
                .take(&agent, CallId::fresh(), at)
                .expect("a first send");
        };
        let (mut sweeps, mut swept_at) = (0, 0);
        for number in 0..20_000 {
            send(format!("a-{number}"), start);
            let now = lock().swept_at;
            sweeps += usize::from(now != swept_at);
            swept_at = now;
        }
        assert_eq!((sweeps, lock().by_agent.len()), (4, 20_000));
        send("b".to_owned(), start + Duration::from_secs(60));
        assert_eq!(lock().by_agent.len(), 1);
    }

    #[test]
    fn the_window_rolls() {
        let limit = RateLimit::new(Some(2));
        let (agent, start) = (AgentId::human(), Instant::now());
        let take = |seconds| {
            limit
                .take(
                    &agent,
                    CallId::fresh(),
                    start + Duration::from_secs(seconds),
                )
                .map_err(|r| r.code)
        };
        assert_eq!(take(0), Ok(()));
        assert_eq!(take(30), Ok(()));
        assert_eq!(take(59), Err(ErrorCode::RateLimited));
        assert_eq!(take(60), Ok(()));
        assert_eq!(take(61), Err(ErrorCode::RateLimited));
        assert_eq!(take(90), Ok(()));
    }

    #[test]
    fn a_refusal_names_limit_count_and_how_long_to_wait() {
        let limit = RateLimit::new(Some(1));
        let (agent, start) = (AgentId::human(), Instant::now());
        limit
            .take(&agent, CallId::fresh(), start)
            .expect("the first");
        let refusal = limit
            .take(&agent, CallId::fresh(), start + Duration::from_secs(20))
            .expect_err("the second");
        assert_eq!(
            (
                refusal.details["count"].clone(),
                refusal.details["limit"].clone()
            ),
            (1.into(), 1.into())
        );
        assert_eq!(refusal.details["retry_after_seconds"], 41);
    }

    #[test]
    fn a_call_sent_again_is_not_counted_again() {
        let limit = RateLimit::new(Some(1));
        let (agent, call, now) = (AgentId::human(), CallId::fresh(), Instant::now());
        assert!(limit.take(&agent, call, now).is_ok());
        assert!(limit.take(&agent, call, now).is_ok());
        assert!(limit.take(&agent, CallId::fresh(), now).is_err());
    }

    #[test]
    fn a_call_counts_as_many_sends_as_it_has_copies() {
        let limit = RateLimit::new(Some(10));
        let (agent, start) = (AgentId::human(), Instant::now());
        let send = |seconds, copies| {
            let call = CallId::fresh();
            let taken = limit.take(&agent, call, start + Duration::from_secs(seconds));
            taken
                .inspect(|()| limit.weigh(&agent, &call, copies))
                .map_err(|refusal| refusal.details)
        };
        send(0, 9).expect("nine of ten");
        send(10, 300).expect("one is left, so all copies are sent");
        let details = send(20, 1).expect_err("309 of 10");
        assert_eq!(
            (&details["count"], &details["retry_after_seconds"]),
            (&309.into(), &51.into())
        );
        assert!(send(60, 1).is_err(), "the nine are gone, the 300 are not");
        send(70, 1).expect("they are gone as well");
    }

    #[test]
    fn agents_do_not_share_a_limit() {
        let limit = RateLimit::new(Some(1));
        let now = Instant::now();
        assert!(limit.take(&AgentId::human(), CallId::fresh(), now).is_ok());
        assert!(
            limit
                .take(&"other".parse().expect("an id"), CallId::fresh(), now)
                .is_ok()
        );
    }
}
