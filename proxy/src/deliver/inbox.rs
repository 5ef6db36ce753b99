//! The messages that have come to this host. A copy that may vanish: the coordinator's store is the truth.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use c3po_shared::ids::AgentId;
use c3po_shared::limits::INBOX_MAX;
use c3po_shared::message::Message;
use c3po_shared::wire::Deliver;
use tokio::sync::Notify;

use crate::link::Deliveries;

/// How many characters of text are held: a full inbox of the longest messages would be a hundred megabytes.
const HELD_CHARS: usize = 8 << 20;

/// The messages that have come and were not taken yet, in the order in which they came.
#[derive(Debug, Default)]
pub struct PersonInbox {
    held: Mutex<InboxState>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct InboxState {
    messages: VecDeque<Message>,
    chars: usize,
    /// How far the latest agent's deliveries have come: each inbox counts for itself.
    position: Option<(AgentId, u64)>,
}

impl PersonInbox {
    /// Takes every message that is there, waiting for the first.
    pub async fn take(&self) -> Vec<Message> {
        loop {
            // Registered before the look, so that no arrival in between is missed.
            let arrived = self.arrived.notified();
            let messages = self.take_present();
            if !messages.is_empty() {
                return messages;
            }
            arrived.await;
        }
    }

    /// Takes every message that is there.
    pub fn take_present(&self) -> Vec<Message> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.chars = 0;
        held.messages.drain(..).collect()
    }
}

impl Deliveries for PersonInbox {
    fn arrived(&self, deliver: Deliver) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = deliver.messages.last() {
            held.has_come_to(&last.message.to_agent, deliver.position);
        }
        for arriving in deliver.messages {
            held.add(arriving.message);
        }
        drop(held);
        self.arrived.notify_waiters();
    }

    fn position(&self, agent: &AgentId) -> Option<u64> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.position
            .as_ref()
            .filter(|(whose, _)| whose == agent)
            .map(|(_, position)| *position)
    }

    fn begins(&self, _agent: &AgentId, _generation: u64) {}
}

impl InboxState {
    fn has_come_to(&mut self, agent: &AgentId, position: u64) {
        let before = self
            .position
            .as_ref()
            .filter(|(whose, _)| whose == agent)
            .map_or(0, |(_, before)| *before);
        self.position = Some((agent.clone(), before.max(position)));
    }

    /// Adds a message once. The oldest ones make room: the store still has them.
    fn add(&mut self, message: Message) {
        if self.messages.iter().any(|held| held.id == message.id) {
            return;
        }
        self.chars += size(&message);
        self.messages.push_back(message);
        while self.messages.len() > INBOX_MAX
            || (self.chars > HELD_CHARS && self.messages.len() > 1)
        {
            let Some(oldest) = self.messages.pop_front() else {
                return;
            };
            self.chars = self.chars.saturating_sub(size(&oldest));
        }
    }
}

fn size(message: &Message) -> usize {
    message.text().len() + message.context.as_deref().map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::ids::MessageId;
    use c3po_shared::wire::Arriving;
    use serde_json::json;

    fn message(number: u32, text: &str) -> Message {
        let id = MessageId::new(&AgentId::human(), &AgentId::all(), number);
        serde_json::from_value(json!({
            "id": id, "thread_id": id, "kind": "message", "from_agent": "human", "to_agent": "all", "message": text,
            "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2026-01-16T10:30:00.000Z",
        }))
        .unwrap()
    }

    fn deliver(messages: Vec<Message>, position: u64) -> Deliver {
        let messages = messages
            .into_iter()
            .map(|message| Arriving {
                message,
                expires_in_ms: 1_000,
            })
            .collect();
        Deliver { messages, position }
    }

    #[test]
    fn a_message_that_comes_twice_is_held_once() {
        let inbox = PersonInbox::default();
        inbox.arrived(deliver(vec![message(1, "a"), message(2, "b")], 2));
        inbox.arrived(deliver(vec![message(2, "b"), message(3, "c")], 3));
        let texts: Vec<_> = inbox
            .take_present()
            .iter()
            .map(|m| m.text().to_owned())
            .collect();
        let position = inbox.position(&AgentId::all());
        assert_eq!(
            (texts, position),
            (vec!["a".into(), "b".into(), "c".into()], Some(3))
        );
        assert!(inbox.take_present().is_empty());
    }

    #[test]
    fn positions_of_two_agents_are_independent() {
        let inbox = PersonInbox::default();
        let to = |agent: AgentId, position| {
            deliver(
                vec![Message {
                    to_agent: agent,
                    ..message(1, "a")
                }],
                position,
            )
        };
        inbox.arrived(to(AgentId::all(), 500));
        inbox.arrived(to(AgentId::human(), 2));
        assert_eq!(
            (
                inbox.position(&AgentId::human()),
                inbox.position(&AgentId::all())
            ),
            (Some(2), None)
        );
    }

    #[test]
    fn memory_is_bounded_by_count_and_by_size() {
        let inbox = PersonInbox::default();
        let many = (0..1_500).map(|number| message(number, "x")).collect();
        inbox.arrived(deliver(many, 1_500));
        assert_eq!(inbox.take_present().len(), INBOX_MAX);
        let long = "x".repeat(1 << 20);
        let many = (0..20).map(|number| message(number, &long)).collect();
        inbox.arrived(deliver(many, 1_520));
        assert_eq!(inbox.take_present().len(), 8);
    }
}
