//! Waits for answers, with detection of cycles of agents that wait for each other.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::{AgentId, MessageId};
use tokio::time::Instant;

use super::Result;

/// How many waits one check looks at: others wait meanwhile. A wait is allowed if a cycle is not found within them.
const LOOKED_AT_MAX: usize = 1_024;

/// The interface for waits of every store.
#[async_trait]
pub trait WaitStore: Send + Sync {
    /// Records that the sender of this message waits for its answer, until the lease ends or the message is answered or
    /// expires. A message that was answered since the waiter looked is not recorded.
    ///
    /// If the wait would close a cycle, records nothing and returns the messages of that cycle. The first is the message
    /// whose answer the recipient waits for. Usually there is no cycle. A check looks at a bounded number of waits, and finds
    /// any cycle of a hundred agents that have few waits each.
    async fn await_answer(&self, message: &MessageId, lease: Duration) -> Result<Vec<MessageId>>;
}

/// The waits of a store that serves one process only, so that no wait outlives the process.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// For each waiting agent: the messages whose answers it waits for, and the end of each wait.
    by_waiter: HashMap<AgentId, HashMap<MessageId, Instant>>,
    /// How many messages were answered so far, whether or not anyone waited.
    pub(super) ended: u64,
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
        self.ended += 1;
        let waiter = message.from();
        if let Some(waits) = self.by_waiter.get_mut(&waiter) {
            waits.remove(message);
            if waits.is_empty() {
                self.by_waiter.remove(&waiter);
            }
        }
    }

    /// Returns the shortest path from the message's recipient back to its sender, if few waits have to be looked at for it.
    fn cycle(&self, message: &MessageId, now: Instant) -> Vec<MessageId> {
        let (waiter, whom) = (message.from(), message.to());
        // For each agent that the recipient directly or indirectly waits for: the message that led to it.
        let mut reached_by: HashMap<AgentId, &MessageId> = HashMap::new();
        let (mut queue, mut left) = (VecDeque::from([whom.clone()]), LOOKED_AT_MAX);
        while let Some(agent) = queue.pop_front() {
            let waits = self.by_waiter.get(&agent).into_iter().flatten();
            for (next, until) in waits.take(left) {
                left -= 1;
                let to = next.to();
                if *until <= now || reached_by.contains_key(&to) {
                    continue;
                }
                reached_by.insert(to.clone(), next);
                if to == waiter {
                    return path(&whom, &waiter, &reached_by);
                }
                queue.push_back(to);
            }
        }
        Vec::new()
    }
}

/// Returns the messages that lead from one agent to another.
fn path(from: &AgentId, to: &AgentId, reached_by: &HashMap<AgentId, &MessageId>) -> Vec<MessageId> {
    let (mut path, mut at) = (VecDeque::new(), to.clone());
    while let Some(message) = reached_by.get(&at) {
        path.push_front((*message).clone());
        at = message.from();
        if at == *from {
            break;
        }
    }
    path.into()
}
