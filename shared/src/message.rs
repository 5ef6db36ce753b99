//! The envelope: one message, as it is stored, sent and shown.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, MessageId};
use crate::question::{Answer, Question, Verdict};
use crate::time::Timestamp;
use crate::vocabulary::{Kind, Priority, ReplyStatus};

/// One message. Absent fields are left out of its JSON.
///
/// A reply carries its text in `response`, and has `message_id` and `status`; every other kind carries it in `message`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// The id of this message.
    pub id: MessageId,
    /// The id of the first message of the thread.
    pub thread_id: MessageId,
    /// The kind of message.
    pub kind: Kind,
    /// The sender, set by the coordinator from the authenticated connection.
    pub from_agent: AgentId,
    /// The sender's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_host: Option<String>,
    /// The recipient.
    pub to_agent: AgentId,
    /// The subject, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The text, in all kinds except replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Background for the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The urgency.
    #[serde(default)]
    pub priority: Priority,
    /// Whether the sender expects an answer. If not, the message is settled when it is seen.
    #[serde(default)]
    pub requires_response: bool,
    /// The message that this one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// In replies: the message that this one answers, under the field's older name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// In replies: the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// In replies: the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ReplyStatus>,
    /// In replies: whether the original message required an answer. If so, an idle sender is woken for the reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaited: bool,
    /// In a question to people: its parts, and the request of the client behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<Box<Question>>,
    /// In the reply to such a question: the answer, and who gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Box<Answer>>,
    /// When the coordinator accepted it.
    pub timestamp: Timestamp,
    /// When it expires unread.
    pub expires_at: Timestamp,
    /// Whether an earlier session or context of the agent was already shown it. Set when the message is presented again, and
    /// never stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
    /// The cursor for the rest of the text, if a result had no room for all of it. Set when the message is presented to a
    /// session, and never stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<String>,
}

impl Message {
    /// Returns the text, from whichever field holds it.
    pub fn text(&self) -> &str {
        self.response
            .as_deref()
            .or(self.message.as_deref())
            .unwrap_or_default()
    }

    /// Returns the verdict of a person that the message carries to the client of its recipient.
    pub fn verdict(&self) -> Option<&Verdict> {
        self.answer.as_ref()?.verdict.as_ref()
    }

    /// Returns whether the agent sent or received this message.
    pub fn concerns(&self, agent: &AgentId) -> bool {
        self.from_agent == *agent || self.to_agent == *agent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_envelope_has_the_documented_shape() {
        let wire = json!({
            "id": "homeassistant::meshtastic::abc12345", "thread_id": "homeassistant::meshtastic::abc12345",
            "kind": "message", "from_agent": "homeassistant", "from_host": "nas2", "to_agent": "meshtastic",
            "title": "MQTT topics", "message": "What MQTT topics are available?", "context": "Building a dashboard",
            "priority": "normal", "requires_response": true,
            "timestamp": "2026-01-15T10:30:00.000Z", "expires_at": "2026-01-16T10:30:00.000Z",
        });
        let message: Message =
            serde_json::from_value(wire.clone()).expect("the documented envelope");
        assert_eq!(message.text(), "What MQTT topics are available?");
        assert_eq!(
            serde_json::to_value(&message).expect("an envelope is JSON"),
            wire
        );
    }

    #[test]
    fn a_reply_carries_the_id_of_its_message_and_a_status() {
        let wire = json!({
            "id": "meshtastic::homeassistant::def67890", "thread_id": "homeassistant::meshtastic::abc12345",
            "kind": "reply", "from_agent": "meshtastic", "to_agent": "homeassistant",
            "priority": "normal", "requires_response": false, "reply_to": "homeassistant::meshtastic::abc12345",
            "message_id": "homeassistant::meshtastic::abc12345", "response": "mesh/#", "status": "success", "awaited": true,
            "timestamp": "2026-01-15T10:30:15.000Z", "expires_at": "2026-01-16T10:30:15.000Z",
        });
        let reply: Message = serde_json::from_value(wire.clone()).expect("the documented reply");
        assert_eq!(reply.text(), "mesh/#");
        assert_eq!(serde_json::to_value(&reply).expect("a reply is JSON"), wire);
    }
}
