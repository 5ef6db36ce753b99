//! Agents that send: at a given rate, or each as soon as its last message was answered.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

use crate::dice::Dice;

use super::Crowd;
use super::agent::{Agent, Who};
use super::tally::Tally;
use super::trouble::Trouble;

/// The number of pushed messages that one call acknowledges.
const ACKNOWLEDGED_AT_ONCE: usize = 200;

/// The send rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// That many messages per second, from all senders together.
    PerSecond(f64),
    /// Each sender sends its next message when the last one was answered.
    AsAnswered,
}

/// The load that a crowd sends.
#[derive(Debug, Clone)]
pub struct Sending {
    /// The recipients, chosen with equal probability.
    pub targets: Vec<String>,
    /// The send rate.
    pub pace: Pace,
    /// The duration.
    pub span: Duration,
    /// The length of each message in characters, at least that of its stamp.
    pub body: usize,
}

impl Crowd {
    /// Makes the agents send. The results are in the tally.
    ///
    /// Errors: an agent lost its link.
    pub async fn send(&self, senders: Vec<Agent>, sending: &Sending) -> Result<Vec<Agent>> {
        let count = senders.len();
        let sending = Arc::new(sending.clone());
        let tasks: Vec<_> = senders
            .into_iter()
            .enumerate()
            .map(|(number, agent)| {
                let share = Share {
                    number,
                    count,
                    sending: Arc::clone(&sending),
                    tally: Arc::clone(&self.tally),
                };
                self.tasks.spawn(share.send(agent))
            })
            .collect();
        let mut agents = Vec::with_capacity(count);
        for task in tasks {
            agents.push(task.await.context("a sender panicked")??);
        }
        Ok(agents)
    }
}

/// Sends that many messages to an agent. They stay in its inbox until they are answered.
///
/// Errors: not all of them were accepted.
pub async fn fill(
    address: SocketAddr,
    target: &str,
    count: usize,
    body: usize,
) -> Result<(), Trouble> {
    let mut sender = Agent::join(address, &Who::new("filler")).await?;
    let mut message = String::new();
    for _ in 0..count {
        write_message(&mut message, target, 0, body, Lasts::UntilAnswered);
        match sender.call("send_message", &message).await {
            Ok(()) => {}
            // The inbox was full already.
            Err(Trouble::Call(code)) if code == "INBOX_FULL" => break,
            Err(trouble) => return Err(trouble),
        }
    }
    sender.goodbye().await;
    Ok(())
}

/// The share of one sender.
struct Share {
    number: usize,
    count: usize,
    sending: Arc<Sending>,
    tally: Arc<Tally>,
}

impl Share {
    async fn send(self, mut agent: Agent) -> Result<Agent, Trouble> {
        let began = Instant::now();
        let every = match self.sending.pace {
            Pace::PerSecond(rate) => Some(Duration::from_secs_f64(self.count as f64 / rate)),
            Pace::AsAnswered => None,
        };
        // The senders of a common rate take turns.
        let mut due = began
            + every
                .unwrap_or_default()
                .mul_f64(self.number as f64 / self.count as f64);
        let mut chance = Dice::new(self.number as u64);
        let mut arguments = String::new();
        while began.elapsed() < self.sending.span {
            if let Some(every) = every {
                agent.rest_until(due).await?;
                due += every;
            }
            let target = &self.sending.targets[chance.below(self.sending.targets.len())];
            let begun = self.tally.now();
            write_message(
                &mut arguments,
                target,
                begun,
                self.sending.body,
                Lasts::UntilSeen,
            );
            match agent.call("send_message", &arguments).await {
                Ok(()) => self.tally.sent(begun),
                Err(refused @ Trouble::Call(_)) => self.tally.trouble(&refused),
                Err(lost) => return Err(lost),
            }
            agent.acknowledge_from(ACKNOWLEDGED_AT_ONCE).await?;
        }
        Ok(agent)
    }
}

/// Whether a message stays in the inbox until it is answered, or is settled when it is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    UntilSeen,
    UntilAnswered,
}

/// Writes the arguments of a message.
pub(super) fn write_message(
    into: &mut String,
    target: &str,
    stamp: u64,
    body: usize,
    lasts: Lasts,
) {
    into.clear();
    let wants = lasts == Lasts::UntilAnswered;
    write!(
        into,
        "{{\"target\":\"{target}\",\"requires_response\":{wants},\"message\":\"t={stamp};"
    )
    .expect("a string takes everything");
    let stamp = stamp.checked_ilog10().unwrap_or_default() as usize + 4;
    into.extend(std::iter::repeat_n('x', body.saturating_sub(stamp)));
    into.push_str("\"}");
}
