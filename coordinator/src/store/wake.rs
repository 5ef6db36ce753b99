//! Wakes: hints to read the store again.

use std::sync::Arc;
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use tokio::time::Instant;
use uuid::Uuid;

use super::Tenure;

/// How many wakes a slow listener may fall behind before it must read everything again.
pub const WAKE_BACKLOG: usize = 4_096;

/// The longest texts of a message, in bytes, that a wake carries. They may stay in memory until the next wake.
const CARRIED_MAX: usize = 4_096;

/// How many messages a listener keeps that it has not looked at yet, and how many bytes of texts. Beyond that it reads the
/// store: thousands of links may keep as much at once, in no budget.
const KEPT_MAX: usize = 16;
const KEPT_BYTES_MAX: usize = 2 * CARRIED_MAX;

/// A message that this process has just committed. Listeners can use it without reading the store.
#[derive(Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its position in the inbox.
    pub position: u64,
    /// The position of the previous message, even if that one has left the inbox. `None` if every message arrives in this
    /// process, in order.
    pub follows: Option<u64>,
    /// Whether there is no earlier unshown message that this process may not have seen.
    pub sole: bool,
    /// When the message was committed.
    pub at: Instant,
    /// The number and the process of the recipient's latest session at that time.
    pub session: (u64, Uuid),
    /// The envelope.
    pub message: Message,
}

/// A hint to read the store again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    /// The agent's inbox may have a new message, which is included if this process committed it.
    Inbox(AgentId, Option<Arc<Arrival>>),
    /// The message may have reached a later stage, or have a reply.
    Receipt(MessageId),
    /// Hints may have been lost, so every listener should read again.
    Everyone,
}

impl Arrival {
    /// How long the state at the commit is trusted before the store is read again.
    const FRESH: Duration = Duration::from_secs(1);

    /// Returns whether the message was committed just now.
    pub fn is_fresh(&self) -> bool {
        self.at.elapsed() < Self::FRESH
    }

    /// Returns whether a listener that keeps these may keep those as well.
    pub(crate) fn are_few(kept: &[Arc<Self>], more: &[Arc<Self>]) -> bool {
        let texts = kept
            .iter()
            .chain(more)
            .map(|arrival| texts(&arrival.message));
        kept.len() + more.len() <= KEPT_MAX && texts.sum::<usize>() <= KEPT_BYTES_MAX
    }

    /// Returns whether that session held the recipient at the commit.
    pub(crate) fn is_for(&self, tenure: Option<&Tenure>) -> bool {
        let (generation, instance) = self.session;
        tenure.is_some_and(|tenure| tenure.is_of(generation, instance))
    }

    /// Returns a message that just arrived in an inbox without another unshown one, for tests.
    #[cfg(test)]
    pub(crate) fn sole(position: u64, message: Message) -> Self {
        Self {
            session: (1, Uuid::nil()),
            position,
            follows: None,
            sole: true,
            at: Instant::now(),
            message,
        }
    }
}

impl Wake {
    /// Returns the wake for a message that was just committed. A message with a long text is not included and must be read
    /// from the store.
    pub(super) fn arrived(
        position: u64,
        follows: Option<u64>,
        sole: bool,
        session: (u64, Uuid),
        message: &Message,
    ) -> Self {
        let arrival = || {
            Arc::new(Arrival {
                position,
                follows,
                sole,
                at: Instant::now(),
                session,
                message: message.clone(),
            })
        };
        Self::Inbox(
            message.to_agent.clone(),
            (texts(message) <= CARRIED_MAX).then(arrival),
        )
    }
}

/// Returns how many bytes the texts of a message have.
fn texts(message: &Message) -> usize {
    let others = [&message.context, &message.title, &message.from_host];
    let others = others.into_iter().flatten().map(String::len);
    message.text().len() + others.sum::<usize>()
}
