//! The reply of each tool.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Tool;
use crate::agent::AgentRecord;
use crate::ids::{AgentId, MessageId};
use crate::message::Message;
use crate::receipt::{Receipt, Stage, Step, Via};
use crate::refusal::{ErrorCode, Refusal};
use crate::time::Timestamp;

/// `ping`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pong {
    /// Always true.
    pub pong: bool,
    /// The coordinator's clock.
    pub timestamp: Timestamp,
    /// The coordinator's name and version.
    pub coordinator: String,
    /// The caller's agent id.
    pub agent_id: AgentId,
    /// The state of the link, filled in by the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// The time from the proxy to the coordinator and back, filled in by the proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trip_ms: Option<f64>,
}

/// `list_agents`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Agents {
    /// The agents of this page, sorted by id.
    pub agents: Vec<AgentRecord>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The caller's agent id.
    pub you: AgentId,
}

/// `get_agent_status`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentDetails {
    /// The record.
    #[serde(flatten)]
    pub agent: AgentRecord,
    /// Its current task, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_task: Option<String>,
    /// The number of messages that it has not dealt with.
    pub pending: usize,
    /// The age of the oldest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_pending_seconds: Option<u64>,
}

/// `set_status`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusSet {
    /// Always true.
    pub success: bool,
    /// The updated record.
    pub agent: AgentRecord,
}

/// `send_message`, `reply`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// The message as it was accepted.
    #[serde(flatten)]
    pub message: Message,
    /// The stage that it has reached so far.
    pub receipt: Receipt,
}

/// `broadcast`, and `send_message` to a role: one copy for each recipient.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Copies {
    /// The thread that all copies belong to.
    pub id: MessageId,
    /// The agents that were sent a copy.
    pub recipients: Vec<AgentId>,
    /// The outcome of each copy.
    pub receipts: Vec<Copy>,
}

/// One recipient's copy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Copy {
    /// The recipient.
    pub agent_id: AgentId,
    /// The copy's own id; absent if it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// The stage that it has reached.
    pub stage: Stage,
    /// The reason if it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
}

/// `get_messages`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Inbox {
    /// The page, oldest first.
    pub messages: Vec<Message>,
    /// The number of messages in the inbox.
    pub count: usize,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `ack_messages`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acked {
    /// The messages that are no longer in the inbox, including any that had left it before.
    pub acked: Vec<MessageId>,
    /// The messages that were never in it.
    pub unknown: Vec<MessageId>,
}

/// `get_thread`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// The messages of the thread that the caller sent or received, oldest first.
    pub messages: Vec<Message>,
    /// The cursor of the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// `message_status`, and `wait_for_message` with `until`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tracked {
    /// The message.
    pub message_id: MessageId,
    /// The furthest stage.
    pub stage: Stage,
    /// Every stage, in the order in which they were reached; none for a broadcast.
    pub history: Vec<Step>,
    /// For a broadcast: how far its copies got. Then `stage` is the stage that all of them reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiesTracked>,
}

/// How far the copies of a broadcast got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CopiesTracked {
    /// How many copies were looked at.
    pub count: usize,
    /// How many of them are at each stage.
    pub stages: BTreeMap<Stage, usize>,
    /// Whether these are all copies that are still stored.
    pub complete: bool,
}

/// A wait that timed out. It is not an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedOut {
    /// Always `timeout`.
    pub status: String,
    /// Always `TIMEOUT`.
    pub code: ErrorCode,
    /// Always true.
    pub timeout: bool,
    /// The length of the wait.
    pub waited_seconds: u64,
    /// The message that it waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// A sentence that describes the outcome.
    pub message: String,
    /// The recommended next step.
    pub suggestion: String,
}

impl TimedOut {
    /// Creates the result of a wait for any message. `pending` counts the inbox messages that the session was already shown.
    pub fn any(waited_seconds: u64, pending: usize) -> Self {
        let suggestion = match pending {
            0 => "No messages are pending. You can continue with other work.".to_owned(),
            1 => "Your inbox has one older message: get_messages shows it.".to_owned(),
            count => format!("Your inbox has {count} older messages: get_messages shows them."),
        };
        Self {
            status: "timeout".into(),
            code: ErrorCode::Timeout,
            timeout: true,
            waited_seconds,
            message_id: None,
            message: format!("No message received within {waited_seconds} seconds"),
            suggestion,
        }
    }

    /// Creates the result of a wait for the answer to one message, or for a stage of it.
    pub fn of(message_id: MessageId, waited_seconds: u64) -> Self {
        Self {
            message_id: Some(message_id),
            message: format!("No response received within {waited_seconds} seconds"),
            suggestion:
                "The target agent may be offline or busy. Check agent status with list_agents."
                    .into(),
            ..Self::any(waited_seconds, 0)
        }
    }
}

/// Returns the way by which a tool's result puts messages before the model, or `None` if it has no messages.
pub fn presented_via(tool: Tool) -> Option<Via> {
    match tool {
        Tool::WaitForMessage => Some(Via::WaitForMessage),
        Tool::GetMessages => Some(Via::GetMessages),
        Tool::GetThread => Some(Via::GetThread),
        Tool::AskUser => Some(Via::AskUser),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn timeouts_have_the_documented_shape() {
        assert_eq!(
            serde_json::to_value(TimedOut::any(60, 0)).expect("JSON"),
            json!({
                "status": "timeout", "code": "TIMEOUT", "timeout": true, "waited_seconds": 60,
                "message": "No message received within 60 seconds",
                "suggestion": "No messages are pending. You can continue with other work.",
            })
        );
        let id: MessageId = "homeassistant::meshtastic::abc12345"
            .parse()
            .expect("an id");
        assert_eq!(
            serde_json::to_value(TimedOut::of(id, 60)).expect("JSON"),
            json!({
                "status": "timeout", "code": "TIMEOUT", "timeout": true, "waited_seconds": 60,
                "message_id": "homeassistant::meshtastic::abc12345",
                "message": "No response received within 60 seconds",
                "suggestion": "The target agent may be offline or busy. Check agent status with list_agents.",
            })
        );
    }
}
