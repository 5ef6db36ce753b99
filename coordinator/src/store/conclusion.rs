//! Questions to people: those that are open, and the outcome of one as its asker reports it.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::time::Timestamp;

use super::Speaker;

/// An open question to people, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenQuestion {
    /// Its id, which names the agent that asked.
    pub id: MessageId,
    /// When it was accepted.
    pub asked_at: Timestamp,
}

/// A message that reached a person on one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonReached {
    /// The message.
    pub message: MessageId,
    /// The name of the person.
    pub by: String,
    /// The stage.
    pub stage: Stage,
    /// The way, which is the evidence.
    pub via: Via,
}

/// The report of an agent about a question that it asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conclusion {
    /// The agent.
    pub asker: AgentId,
    /// The question.
    pub question: MessageId,
    /// `taken`, `applied` or `withdrawn`.
    pub stage: Stage,
    /// The evidence, or the reason.
    pub via: Via,
    /// The id of the key that is used, for the log.
    pub key: Option<String>,
    /// By what right the agent reports it; `None` for the coordinator.
    pub speaker: Option<Speaker>,
}

impl Conclusion {
    /// Returns whether it adds a step to a history that ends like that: `withdrawn` to a question that is open, `taken` and
    /// `applied` to one that is answered.
    pub(super) fn follows(&self, furthest: Stage) -> bool {
        match self.stage {
            Stage::Withdrawn => !furthest.is_final(),
            Stage::Taken => furthest == Stage::Answered,
            Stage::Applied => matches!(furthest, Stage::Answered | Stage::Taken),
            _ => false,
        }
    }
}
