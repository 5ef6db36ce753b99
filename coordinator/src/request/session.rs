//! Who calls, and what of the mail this session was handed and shown so far.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::INBOX_MAX;
use tokio::time::Instant;
use uuid::Uuid;

use crate::auth::Principal;
use crate::store::Tenure;

/// How long a message that was handed to a wait is not handed to another wait of the same session.
///
/// The host says within milliseconds that the result was written; where it does not, the caller had gone.
pub(crate) const HANDED_FOR: Duration = Duration::from_secs(5);

/// How many messages that were shown wait for a request as their proof: some pages.
const SHOWN_MAX: usize = 4 * INBOX_MAX;

/// Whoever calls: an agent's session, or a person who speaks as an agent for a moment.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// As whom.
    pub(crate) agent: AgentId,
    /// What it was admitted as.
    pub(crate) principal: Arc<Principal>,
    /// From which machine.
    pub(crate) host: Option<String>,
    /// The session's hold on the agent; `None` for a person.
    pub(crate) tenure: Option<Tenure>,
    /// The processes of whose death a person's host knows: what is left of their hold is no session's.
    pub(crate) dead: Arc<[Uuid]>,
    /// Whether the caller can take another name.
    pub(crate) renamable: bool,
    /// What the session has of its mail.
    pub(crate) memory: Arc<Memory>,
}

impl Caller {
    /// Begins an entry of the audit about what the caller does now.
    pub(crate) fn entry(&self, event: Event) -> Entry {
        self.principal.sign(Entry::new(event).by(&self.agent))
    }
}

/// What a session was handed since it connected, and what a client without a proxy was shown.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    handed: Mutex<HashMap<MessageId, Instant>>,
    shown: Mutex<Vec<MessageId>>,
}

impl Memory {
    /// Claims a message for one wait. Returns false where another wait of the session has it.
    pub(crate) fn hand(&self, id: &MessageId, now: Instant) -> bool {
        let mut handed = self.handed(now);
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

    /// Forgets what waits were handed: another context of the session has none of it.
    pub(crate) fn forget_handed(&self) {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns whether any wait of this session may hold a message back from another.
    pub(crate) fn holds_any(&self, now: Instant) -> bool {
        !self.handed(now).is_empty()
    }

    /// Returns whether a wait of this session has the message.
    pub(crate) fn is_handed(&self, id: &MessageId, now: Instant) -> bool {
        self.handed(now).contains_key(id)
    }

    /// Returns what was handed out lately, and forgets the rest.
    fn handed(&self, now: Instant) -> MutexGuard<'_, HashMap<MessageId, Instant>> {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        handed.retain(|_, at| now.duration_since(*at) < HANDED_FOR);
        handed
    }

    /// Notes that messages were put before the model: the next request proves that it went on.
    pub(crate) fn show(&self, ids: &[MessageId]) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.extend_from_slice(ids);
        let excess = shown.len().saturating_sub(SHOWN_MAX);
        shown.drain(..excess);
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

    #[test]
    fn nothing_is_held_back_for_longer_than_that() {
        let memory = Memory::default();
        let id = MessageId::new(&AgentId::human(), &AgentId::all(), 1);
        let start = Instant::now();
        assert!(memory.hand(&id, start));
        assert!(memory.holds_any(start) && memory.is_handed(&id, start));
        let later = start + HANDED_FOR;
        assert!(!memory.holds_any(later) && !memory.is_handed(&id, later));
    }

    #[test]
    fn what_is_shown_to_one_who_never_calls_is_bounded() {
        let memory = Memory::default();
        let id = |number| MessageId::new(&AgentId::human(), &AgentId::all(), number);
        for number in 0..10_000 {
            memory.show(&[id(number)]);
        }
        let shown = memory.take_shown();
        assert_eq!((shown.len(), shown.last()), (SHOWN_MAX, Some(&id(9_999))));
    }
}
