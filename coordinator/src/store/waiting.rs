//! Waits for answers, with detection of cycles of agents that wait for each other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::{AgentId, MessageId};
use tokio::time::Instant;

use super::Result;

/// The interface for waits of every store.
#[async_trait]
pub trait WaitStore: Send + Sync {
    /// Records that the sender of this message waits for its answer, until the lease ends or the message is answered.
    ///
    /// If the wait would close a cycle, records nothing and returns the messages of that cycle. The first is the message
    /// whose answer the recipient waits for. Usually there is no cycle.
    async fn await_answer(&self, message: &MessageId, lease: Duration) -> Result<Vec<MessageId>>;
}

/// The waits of a store that serves one process only, so that no wait outlives the process.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// For each waiting agent: the messages whose answers it waits for, and the end of each wait.
    by_waiter: HashMap<AgentId, HashMap<MessageId, Instant>>,
}

impl Waits {
    /// Records a wait, or returns the cycle that it would close.
    pub(super) fn begin(
        &mut self,
        message: &MessageId,
        lease: Duration,
        now: Instant,
    ) -> Vec<MessageId> {
        let cycle = self.cycle(message, now);
        if cycle.is_empty() {
            let waits = self.by_waiter.entry(message.from()).or_default();
            waits.retain(|_, until| *until > now);
            waits.insert(message.clone(), now + lease);
        }
        cycle
    }

    /// Ends the wait for this message, which is answered.
    pub(super) fn end(&mut self, message: &MessageId) {
        if let Some(waits) = self.by_waiter.get_mut(&message.from()) {
            waits.remove(message);
        }
    }

    /// Returns the shortest path from the message's recipient back to its sender.
    fn cycle(&self, message: &MessageId, now: Instant) -> Vec<MessageId> {
        let (waiter, whom) = (message.from(), message.to());
        let mut seen = HashSet::from([whom.clone()]);
        let mut ways = VecDeque::from([(whom, Vec::new())]);
        while let Some((agent, way)) = ways.pop_front() {
            let waits = self
                .by_waiter
                .get(&agent)
                .into_iter()
                .flatten()
                .filter(|(_, until)| **until > now);
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
