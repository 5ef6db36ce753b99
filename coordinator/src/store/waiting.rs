//! Waits for answers, with detection of cycles of agents that wait for each other.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::{AgentId, MessageId};
use tokio::time::Instant;

use super::{Result, Tenure};

/// How many waits one check looks at: others wait meanwhile. A wait is allowed if a cycle is not found within them.
const LOOKED_AT_MAX: u32 = 1_024;

/// How many waiting agents there are at least when the waits that ran out are removed.
const SWEPT_AT_LEAST: usize = 64;

/// The interface for waits of every store.
#[async_trait]
pub trait WaitStore: Send + Sync {
    /// Records that the sender of this message waits for its answer, until the lease ends or the message is answered or
    /// expires. A message that was answered since the waiter looked is not recorded.
    ///
    /// If the wait would close a cycle, records nothing and returns the messages of that cycle. The first is the message
    /// whose answer the recipient waits for. Usually there is no cycle. A check looks at a bounded number of waits, and finds
    /// any cycle of a hundred agents that have few waits each.
    ///
    /// Errors: `TakenOver` if the session that waits holds the sender no longer.
    async fn await_answer(
        &self,
        message: &MessageId,
        tenure: Option<&Tenure>,
        lease: Duration,
    ) -> Result<CycleCheck>;
}

/// The result of a check for cycles of waits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CycleCheck {
    /// The messages of the cycle, which is empty if there is none.
    pub cycle: Vec<MessageId>,
    /// How many waits the check looked at.
    pub waits: u32,
}

/// The waits of a store that serves one process only, so that no wait outlives the process.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// For each waiting agent: the messages whose answers it waits for, and the end of each wait.
    by_waiter: HashMap<AgentId, HashMap<MessageId, Instant>>,
    /// How many waiting agents there may be before the waits that ran out are removed: agents come, wait once, and go.
    swept_at: usize,
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
    ) -> CycleCheck {
        let check = self.look(message, now);
        if check.cycle.is_empty() {
            if self.by_waiter.len() >= self.swept_at {
                self.sweep(now);
            }
            let waits = self.by_waiter.entry(message.from()).or_default();
            waits.retain(|_, until| *until > now);
            waits.insert(message.clone(), now + lease);
        }
        check
    }

    /// Removes the waits that ran out.
    fn sweep(&mut self, now: Instant) {
        self.by_waiter.retain(|_, waits| {
            waits.retain(|_, until| *until > now);
            !waits.is_empty()
        });
        self.swept_at = SWEPT_AT_LEAST.max(self.by_waiter.len() * 2);
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

    /// Looks for the shortest path from the message's recipient back to its sender.
    fn look(&self, message: &MessageId, now: Instant) -> CycleCheck {
        let (waiter, whom) = (message.from(), message.to());
        // For each agent that the recipient directly or indirectly waits for: the message that led to it.
        let mut reached_by: HashMap<AgentId, &MessageId> = HashMap::new();
        let (mut queue, mut left) = (VecDeque::from([whom.clone()]), LOOKED_AT_MAX);
        while let Some(agent) = queue.pop_front() {
            let waits = self.by_waiter.get(&agent).into_iter().flatten();
            for (next, until) in waits.take(left as usize) {
                left -= 1;
                let to = next.to();
                if *until <= now || reached_by.contains_key(&to) {
                    continue;
                }
                reached_by.insert(to.clone(), next);
                if to == waiter {
                    return CycleCheck {
                        cycle: path(&whom, &waiter, &reached_by),
                        waits: LOOKED_AT_MAX - left,
                    };
                }
                queue.push_back(to);
            }
        }
        CycleCheck {
            cycle: Vec::new(),
            waits: LOOKED_AT_MAX - left,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_that_ran_out_do_not_pile_up() {
        let (mut waits, start) = (Waits::default(), Instant::now());
        let lease = Duration::from_secs(1);
        for second in 0..1_000 {
            let agent = format!("web-{second}").parse().expect("a name");
            let message = MessageId::new(&agent, &"nas".parse().expect("a name"), second);
            let now = start + Duration::from_secs(second.into());
            assert_eq!(waits.begin(&message, lease, now), CycleCheck::default());
        }
        assert!(waits.by_waiter.len() <= SWEPT_AT_LEAST);
    }
}
