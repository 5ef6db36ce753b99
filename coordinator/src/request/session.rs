//! Who calls, and what of the mail this session was handed and shown so far.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use tokio::time::Instant;

use crate::store::Tenure;

/// How long a message that was handed to a wait is not handed to another wait of the same session.
///
/// The host says within milliseconds that the result was written; where it does not, the caller had gone.
pub(super) const HANDED_FOR: Duration = Duration::from_secs(5);

/// Whoever calls: an agent's session, or a person who speaks as an agent for a moment.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// As whom.
    pub(crate) agent: AgentId,
    /// From which machine.
    pub(crate) host: Option<String>,
    /// The session's hold on the agent; `None` for a person.
    pub(crate) tenure: Option<Tenure>,
    /// Whether the caller can take another name.
    pub(crate) renamable: bool,
    /// What the session has of its mail.
    pub(crate) memory: Arc<Memory>,
}

/// What a session was handed and shown, since it connected.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    handed: Mutex<HashMap<MessageId, Instant>>,
    shown: Mutex<Vec<MessageId>>,
}

impl Memory {
    /// Claims a message for one wait. Returns false where another wait of the session has it.
    pub(crate) fn hand(&self, id: &MessageId, now: Instant) -> bool {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        handed.retain(|_, at| now.duration_since(*at) < HANDED_FOR);
        if handed.contains_key(id) {
            return false;
        }
        handed.insert(id.clone(), now);
        true
    }

    /// Takes a message back from a wait whose caller had gone before it got it.
    pub(crate) fn take_back(&self, id: &MessageId) {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Returns whether any wait of this session may hold a message back from another.
    pub(crate) fn holds_any(&self) -> bool {
        !self.handed.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns whether a wait of this session has the message.
    pub(crate) fn is_handed(&self, id: &MessageId) -> bool {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).contains_key(id)
    }

    /// Notes that messages were put before the model: the next call proves that it went on.
    pub(crate) fn show(&self, ids: &[MessageId]) {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(ids);
    }

    /// Takes what was put before the model before now.
    pub(crate) fn take_shown(&self) -> Vec<MessageId> {
        std::mem::take(&mut self.shown.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_to_one_wait_of_a_session_until_its_caller_is_gone() {
        let memory = Memory::default();
        let id = MessageId::new(&AgentId::human(), &AgentId::all(), 1);
        let start = Instant::now();
        assert!(memory.hand(&id, start));
        assert!(!memory.hand(&id, start + HANDED_FOR / 2));
        assert!(memory.hand(&id, start + HANDED_FOR));
        memory.take_back(&id);
        assert!(memory.hand(&id, start + HANDED_FOR));
    }
}
