//! A message for display: the fields of its text, and no more of a long body than one text can hold.

use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::vocabulary::{Kind, Priority, ReplyStatus};
use c3po_shared::wire::Arriving;
use tokio::time::Instant;

/// How many characters of a body are kept: more never fit into one text.
const BODY_KEPT: usize = 10_000;

/// The longest life of a message: a coordinator's longer time could exceed this host's clock.
const LIFE_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// A message on this host, ready to be put into a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) id: MessageId,
    pub(super) from: AgentId,
    pub(super) host: Option<String>,
    pub(super) kind: Kind,
    pub(super) title: Option<String>,
    pub(super) body: String,
    pub(super) context: Option<String>,
    /// How long body and context are, in characters, kept or not.
    pub(super) length: usize,
    pub(super) priority: Priority,
    pub(super) wants_answer: bool,
    /// Whether it is the answer to a question of this session's agent.
    pub(super) awaited: bool,
    pub(super) reply_to: Option<MessageId>,
    pub(super) failed: bool,
    pub(super) repeated: bool,
    /// Whether the text only names the question, whose answer `ask_user` returns.
    pub(super) points: bool,
    /// By the clock of this host, independent of the coordinator's.
    pub(super) expires_at: Instant,
}

impl Note {
    /// Returns whether it may start or prolong a turn: a question, an awaited reply, or a message of priority high or urgent.
    pub(super) fn presses(&self) -> bool {
        self.wants_answer || self.awaited || self.priority >= Priority::High
    }
}

/// Returns the text for an answer that `ask_user` returns: the client marks every pushed text as not from its user.
fn pointer(question: &MessageId) -> String {
    format!("{question} is answered; call ask_user with question_id {question}")
}

impl Note {
    /// Takes over a message that came at `now`.
    pub(super) fn of(arriving: Arriving, now: Instant) -> Self {
        let Arriving {
            message,
            expires_in_ms,
        } = arriving;
        let points = message
            .answer
            .as_ref()
            .is_some_and(|answer| answer.to_ask_user);
        let pointer = message.reply_to.as_ref().filter(|_| points).map(pointer);
        let body = pointer.as_deref().unwrap_or(message.text());
        let context = message.context.as_deref();
        let length = body.chars().count() + context.map_or(0, |context| context.chars().count());
        let kept = |text: &str| text.chars().take(BODY_KEPT).collect::<String>();
        Self {
            body: kept(body),
            context: context.map(kept),
            length,
            id: message.id,
            from: message.from_agent,
            host: message.from_host,
            kind: message.kind,
            title: message.title,
            priority: message.priority,
            wants_answer: message.requires_response,
            awaited: message.awaited,
            reply_to: message.reply_to,
            failed: message.status == Some(ReplyStatus::Error),
            repeated: message.repeated,
            points,
            expires_at: now + Duration::from_millis(expires_in_ms).min(LIFE_MAX),
        }
    }
}
