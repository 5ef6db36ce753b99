//! The log of every store: what changed, in order. The audit and the stream of events are views of it.

use async_trait::async_trait;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::vocabulary::Kind;
use tokio::sync::watch;

use super::{Actor, Result, Send};

impl Send {
    /// Returns the entry about the message once it is stored.
    pub(super) fn entry(&self) -> Entry {
        let message = &self.message;
        let event = match message.kind {
            Kind::Reply => Event::Answered,
            _ => Event::Accepted,
        };
        Entry {
            about: message.reply_to.clone(),
            login: self.login.clone(),
            ..Entry::new(event)
                .by(&message.from_agent)
                .under(self.key.as_deref())
                .to(&message.to_agent)
                .about_message(&message.id)
                .verb(message.kind.as_str())
        }
    }
}

impl Actor {
    /// Returns the entry about a message that this actor took out of the inbox of its agent.
    pub(super) fn acknowledged(&self, agent: &AgentId, id: &MessageId) -> Entry {
        self.sign(Entry::new(Event::Acknowledged).by(agent))
            .to(&id.from())
            .about_message(id)
    }

    /// Returns the entry about a message that reached a stage, by evidence of this actor.
    pub(super) fn received(
        &self,
        agent: &AgentId,
        id: &MessageId,
        stage: Stage,
        via: Via,
    ) -> Entry {
        let entry = self
            .sign(Entry::new(Event::Receipt).by(agent))
            .to(&id.from())
            .about_message(id);
        Entry {
            stage: Some(stage),
            via: Some(via),
            ..entry
        }
    }
}

/// The log of all coordinators on one store: entries in one order, bounded by deleting the oldest.
///
/// Once a log is kept, each change appends its entries in its own atomic step: sends, answers, acknowledgements, receipts,
/// expiries, the beginning, the end and the state of sessions, and changes of agents, keys, logins, their codes, and pairs of
/// agents.
#[async_trait]
pub trait AuditStore {
    /// Begins the log if there is none, and deletes all but about the latest `bound` entries. With `None`, nothing is appended
    /// from now on. Callers repeat this from time to time.
    async fn keep_log(&self, bound: Option<u64>) -> Result<()>;

    /// Appends entries that change nothing else, in one step, if a log is kept.
    ///
    /// If this returns an error, the entries may have been appended nevertheless.
    async fn note(&self, entries: &[Entry]) -> Result<()>;

    /// Subscribes to hints that the log may have grown.
    fn log_grows(&self) -> watch::Receiver<()>;

    /// Returns about `limit` entries after this position, in order and with their positions. The result is empty only if
    /// there are no such entries.
    async fn audit(&self, after: u64, limit: usize) -> Result<Vec<Entry>>;

    /// Returns the position of the last entry, or 0 if there is none.
    async fn audit_end(&self) -> Result<u64>;
}
