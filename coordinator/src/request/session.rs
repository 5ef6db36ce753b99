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
const HANDED_FOR: Duration = Duration::from_secs(5);

/// How long no wait of a session begins a message anew of which it was shown a part.
///
/// Its host says nothing before it was shown the rest, so nothing tells a session that reads on from one that was lost.
const BEGUN_FOR: Duration = Duration::from_secs(5 * 60);

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
    /// Returns whether a person reads, who is shown whole texts.
    pub(crate) fn is_person(&self) -> bool {
        self.tenure.is_none()
    }

    /// Returns whether the caller is a session that answers one prompt and ends: what it asks ends with it.
    pub(crate) fn is_one_shot(&self) -> bool {
        self.tenure.as_ref().is_some_and(|tenure| tenure.one_shot)
    }

    /// Begins an entry of the audit about what the caller does now.
    pub(crate) fn entry(&self, event: Event) -> Entry {
        self.principal.sign(Entry::new(event).by(&self.agent))
    }
}

/// What a session was handed since it connected, and what a client without a proxy was shown.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Until when each is held back from waits and pushes.
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
        handed.insert(id.clone(), now + HANDED_FOR);
        true
    }

    /// Notes that the session was shown a part of a message: no wait begins it anew for a while.
    pub(crate) fn begin(&self, id: &MessageId, now: Instant) {
        self.handed(now).insert(id.clone(), now + BEGUN_FOR);
    }

    /// Takes a message back from a wait whose caller had gone before it got it.
    pub(crate) fn take_back(&self, id: &MessageId) {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Forgets what waits were handed: another context of the session has none of it.
    pub(crate) fn forget_handed(&self) {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Returns when the first of the messages that are held back is free again, if any is held back.
    pub(crate) fn next_release(&self, now: Instant) -> Option<Instant> {
        self.handed(now).values().min().copied()
    }

    /// Returns until when the message is held back, if it is.
    pub(crate) fn held_until(&self, id: &MessageId, now: Instant) -> Option<Instant> {
        self.handed(now).get(id).copied()
    }

    /// Returns what is held back, and forgets the rest.
    fn handed(&self, now: Instant) -> MutexGuard<'_, HashMap<MessageId, Instant>> {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        handed.retain(|_, until| now < *until);
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
        let later = start + HANDED_FOR;
        assert_eq!((memory.next_release(start), memory.held_until(&id, start)), (Some(later), Some(later)));
        assert_eq!((memory.next_release(later), memory.held_until(&id, later)), (None, None));
    }

    #[test]
    fn a_message_that_was_begun_goes_to_no_wait_for_minutes_unless_its_context_ends() {
        let memory = Memory::default();
        let id = |number| MessageId::new(&AgentId::human(), &AgentId::all(), number);
        let start = Instant::now();
        assert!(memory.hand(&id(1), start) && memory.hand(&id(2), start));
        memory.begin(&id(1), start);
        let later = start + HANDED_FOR;
        assert_eq!(memory.next_release(start), Some(later));
        assert!(!memory.hand(&id(1), later) && memory.hand(&id(2), later));
        assert!(memory.hand(&id(1), start + BEGUN_FOR));
        memory.begin(&id(1), start);
        memory.forget_handed();
        assert!(memory.hand(&id(1), start));
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
