//! How often an agent may send: so many in any rolling minute.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::refusal::Refusal;
use tokio::time::Instant;

/// The length of the window.
const WINDOW: Duration = Duration::from_secs(60);
/// How many agents' windows are kept before those that have run out are swept away.
const SWEEP_AT: usize = 4_096;

/// The sends of the last minute, by agent.
#[derive(Debug)]
pub(crate) struct RateLimit {
    limit: Option<u32>,
    windows: Mutex<HashMap<AgentId, Window>>,
}

type Window = VecDeque<(Instant, CallId)>;

impl RateLimit {
    /// Allows that many sends per minute and agent; any number where `None`.
    pub(crate) fn new(limit: Option<u32>) -> Self {
        Self { limit, windows: Mutex::default() }
    }

    /// Counts one send, or refuses it.
    ///
    /// A call that was counted already is let through: a call sent again must get the answer it got before.
    pub(crate) fn take(&self, agent: &AgentId, call: CallId, now: Instant) -> Result<(), Refusal> {
        let Some(limit) = self.limit else { return Ok(()) };
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= SWEEP_AT {
            windows.retain(|_, window| window.back().is_some_and(|(at, _)| now.duration_since(*at) < WINDOW));
        }
        let window = windows.entry(agent.clone()).or_default();
        while window.front().is_some_and(|(at, _)| now.duration_since(*at) >= WINDOW) {
            window.pop_front();
        }
        if window.iter().any(|(_, counted)| *counted == call) {
            return Ok(());
        }
        let count = u32::try_from(window.len()).unwrap_or(u32::MAX);
        match window.front() {
            Some((oldest, _)) if count >= limit => {
                let wait = WINDOW.saturating_sub(now.duration_since(*oldest));
                Err(Refusal::rate_limited(count, limit, wait.as_secs() + 1))
            }
            _ => {
                window.push_back((now, call));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::refusal::ErrorCode;

    #[test]
    fn the_window_rolls() {
        let limit = RateLimit::new(Some(2));
        let (agent, start) = (AgentId::human(), Instant::now());
        let take =
            |seconds| limit.take(&agent, CallId::fresh(), start + Duration::from_secs(seconds)).map_err(|r| r.code);
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
        limit.take(&agent, CallId::fresh(), start).expect("the first");
        let refusal = limit.take(&agent, CallId::fresh(), start + Duration::from_secs(20)).expect_err("the second");
        assert_eq!((refusal.details["count"].clone(), refusal.details["limit"].clone()), (1.into(), 1.into()));
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
    fn agents_do_not_share_a_limit() {
        let limit = RateLimit::new(Some(1));
        let now = Instant::now();
        assert!(limit.take(&AgentId::human(), CallId::fresh(), now).is_ok());
        assert!(limit.take(&"other".parse().expect("an id"), CallId::fresh(), now).is_ok());
    }
}
