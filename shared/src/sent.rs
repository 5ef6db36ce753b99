//! The recent messages of a sender, and their delivery stages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, MessageId};
use crate::receipt::Stage;
use crate::time::Timestamp;

/// A message that an agent sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentMessage {
    /// Its id.
    pub message_id: MessageId,
    /// The recipient.
    pub to: AgentId,
    /// The time at which it was accepted.
    pub at: Timestamp,
    /// The message that it answers, if it is a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// The stage that it has reached; absent if it is no longer kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// `GET /api/sent`: the most recent messages that an agent sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentMessages {
    /// The sender.
    pub agent_id: AgentId,
    /// The messages, oldest first.
    pub messages: Vec<SentMessage>,
}
