//! A message as a session is shown it: what the text needs, and no more of a long body than one text can hold.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Kind, Priority, ReplyStatus};

/// How many characters of a body are kept: more never fit into one text.
const BODY_KEPT: usize = 10_000;

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
    pub(super) reply_to: Option<MessageId>,
    pub(super) failed: bool,
    pub(super) repeated: bool,
    pub(super) expires_at: Timestamp,
}

impl Note {
    /// Returns whether it may start or prolong a turn. News may not, unless it is urgent.
    pub(super) fn presses(&self) -> bool {
        self.wants_answer || self.priority >= Priority::High
    }
}

impl From<Message> for Note {
    fn from(message: Message) -> Self {
        let body = message.text();
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
            reply_to: message.reply_to,
            failed: message.status == Some(ReplyStatus::Error),
            repeated: message.repeated,
            expires_at: message.expires_at,
        }
    }
}
