//! The arguments of each tool. Models read the field docs, so they are short; older argument names are aliases.

#![expect(
    missing_docs,
    reason = "a field whose name says it all has no doc: every word is paid for in each session"
)]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, MessageId};
use crate::question::{PartAnswer, Question};
use crate::receipt::{Stage, Via};
use crate::refusal::Refusal;
use crate::vocabulary::{KindFilter, NoResponse, Priority, ReplyStatus, State, Status};

/// A tool without arguments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// `send_message`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendMessage {
    /// Agent id; id@host if two hosts have it; @role for all with that role
    pub target: String,
    #[serde(alias = "content")]
    pub message: String,
    /// One line
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Background
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Default true; false if you need no answer
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_response: Option<bool>,
    /// Seconds until it expires unanswered; default 604800 (7 days)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// If the coordinator is unreachable, queue it on this host and send it later
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_if_down: Option<bool>,
}

/// `reply`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReplyTo {
    /// The message you answer
    #[serde(alias = "request_id")]
    pub message_id: MessageId,
    pub response: String,
    /// Default success; error if you cannot do or answer it
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ReplyStatus>,
    /// Default false; true if you need an answer to your reply
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires_response: Option<bool>,
    /// As in send_message
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_if_down: Option<bool>,
}

/// `get_messages`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetMessages {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<KindFilter>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<MessageId>,
    /// Default 50
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// To read on: next_cursor of the previous page, or the cursor in a [cut: …] mark
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// `wait_for_message`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitForMessage {
    /// A message you sent
    #[serde(default, alias = "request_id", skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<KindFilter>,
    /// Needs message_id: wait until it has reached this stage or a later one, instead of for the answer
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<WaitStage>")]
    pub until: Option<Stage>,
    /// Seconds, 1-3600, default 60
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
}

/// The stages worth waiting for, as the schema names them.
#[derive(JsonSchema)]
#[schemars(inline)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "only its schema is used")]
enum WaitStage {
    OnHost,
    InSession,
    Seen,
    Answered,
}

/// `ack_messages`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AckMessages {
    #[serde(alias = "ids")]
    pub message_ids: Vec<MessageId>,
}

/// `list_agents`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAgents {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The exact word
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// `get_agent_status`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetAgentStatus {
    pub agent_id: AgentId,
}

/// `get_thread`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetThread {
    /// Any message of the thread
    pub message_id: MessageId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// `message_status`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageStatus {
    pub message_id: MessageId,
}

/// `broadcast`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Broadcast {
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
}

/// `set_status`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetStatus {
    pub status: State,
    /// What you are working on
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_task: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// `register_agent`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisterAgent {
    /// Your new agent id
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Others send to all agents with this role as @role
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// `ask_user`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AskUser {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Alone: wait for the answer to an earlier question of yours
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<MessageId>,
    /// Facts that they need to decide
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Up to 10 short labels to choose from
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_select: Option<bool>,
    /// Default true
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_text: Option<bool>,
    /// No agent may answer for them
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_person: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Default true; false returns the id at once
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<bool>,
    /// Seconds, 1-86400, default 1800; the question stays open
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// Default keep_open
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_no_response: Option<NoResponse>,
}

impl AskUser {
    /// Returns the question of the call, unless it is about an earlier one.
    pub fn as_question(&self) -> Option<Question> {
        let options = self.options.as_deref().unwrap_or_default();
        let mut question = Question::ask(self.question.as_deref()?, options);
        for part in &mut question.parts {
            part.multi = self.multi_select.unwrap_or(false);
            part.allow_text = self.allow_text.unwrap_or(true);
        }
        question.needs_person = self.needs_person.unwrap_or(false);
        Some(question)
    }
}

/// `notify_user`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotifyUser {
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Default low
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
}

/// `escalate_to_human`
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EscalateToHuman {
    pub reason: String,
    /// An open question that people must answer; without it, you ask a new one
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<MessageId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// Default urgent
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
}

impl EscalateToHuman {
    /// Returns the question that the call asks.
    pub fn as_question(&self) -> Question {
        let text = self.message.as_deref().unwrap_or(&self.reason);
        Question::ask(text, self.options.as_deref().unwrap_or_default())
    }
}

/// `wait_for_response` waits for the answer to one message, `wait_for_request` for messages other than replies.
pub(super) fn apply_older_name(name: &str, wait: &mut WaitForMessage) -> Result<(), Refusal> {
    match name {
        "wait_for_response" if wait.message_id.is_none() => {
            Err(Refusal::invalid("wait_for_response: request_id is missing"))
        }
        "wait_for_request" => {
            wait.kind = Some(KindFilter::Message);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// `request_permission`, of a proxy
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RequestPermission {
    /// The text for lists and notifications.
    pub message: String,
    /// The request of the client.
    pub question: Question,
}

/// `answer_in_dialog`, of a proxy
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerInDialog {
    /// A question of the caller.
    pub message_id: MessageId,
    /// The answer of the person.
    pub part: PartAnswer,
}

/// `conclude`, of a proxy
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Conclude {
    /// A question of the caller.
    pub message_id: MessageId,
    /// `taken`, `applied` or `withdrawn`.
    pub stage: Stage,
    /// The evidence, or the reason.
    pub via: Via,
}
