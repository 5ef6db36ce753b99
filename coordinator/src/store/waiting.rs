//! Waits for answers: no cycle of agents is to wait for each other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::{AgentId, MessageId};
use tokio::time::Instant;

use super::Result;

/// Which agents wait for whose answers, as any store must know it.
#[async_trait]
pub trait WaitStore: Send + Sync {
    /// Notes that the sender of that message waits for its answer, for so long from now, or until it is answered.
    ///
    /// Returns the messages of the cycle of waits that this one would close, beginning with the one whose answer its
    /// recipient waits for; then nothing is noted. Mostly there is none.
    async fn await_answer(&self, message: &MessageId, lease: Duration) -> Result<Vec<MessageId>>;
}

/// The same for a store that one process has to itself: no wait outlives it.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// By who waits: for which messages' answers, until when that is known.
    by_waiter: HashMap<AgentId, HashMap<MessageId, Instant>>,
}

impl Waits {
    /// Notes a wait, or returns the cycle that it would close.
    pub(super) fn begin(&mut self, message: &MessageId, lease: Duration, now: Instant) -> Vec<MessageId> {
        let cycle = self.cycle(message, now);
        if cycle.is_empty() {
            let waits = self.by_waiter.entry(message.from()).or_default();
            waits.retain(|_, until| *until > now);
            waits.insert(message.clone(), now + lease);
        }
        cycle
    }

    /// The message is answered.
    pub(super) fn end(&mut self, message: &MessageId) {
        if let Some(waits) = self.by_waiter.get_mut(&message.from()) {
            waits.remove(message);
        }
    }

    /// Returns the shortest way from the message's recipient back to its sender.
    fn cycle(&self, message: &MessageId, now: Instant) -> Vec<MessageId> {
        let (waiter, whom) = (message.from(), message.to());
        let mut seen = HashSet::from([whom.clone()]);
        let mut ways = VecDeque::from([(whom, Vec::new())]);
        while let Some((agent, way)) = ways.pop_front() {
            let waits = self.by_waiter.get(&agent).into_iter().flatten().filter(|(_, until)| **until > now);
            for (next, _) in waits {
                let way: Vec<_> = way.iter().chain([next]).cloned().collect();
                if next.to() == waiter {
                    return way;
                }
                if seen.insert(next.to()) {
                    ways.push_back((next.to(), way));
                }
            }
        }
        Vec::new()
    }
}
