//! The messages that an agent sent lately, and how far each got.

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
    /// To whom.
    pub to: AgentId,
    /// When it was accepted.
    pub at: Timestamp,
    /// The message that it answers, if it is a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<MessageId>,
    /// How far it got; absent where it is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// `GET /api/sent`: the latest messages that an agent sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentMessages {
    /// Who sent them.
    pub agent_id: AgentId,
    /// In order, the oldest first.
    pub messages: Vec<SentMessage>,
}
