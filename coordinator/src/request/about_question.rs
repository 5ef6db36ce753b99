//! Messages that the coordinator makes about a question: their ids and their common parts.

use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::{ARCHIVE_LIFE, CORRECTED_WITHIN, INBOX_MAX};
use c3po_shared::message::Message;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Kind, Priority};
use uuid::Uuid;

use crate::store::{Quota, Send};

/// Returns the id of the call for that purpose about a question: always the same one.
pub(super) fn call_about(question: &MessageId, purpose: &str) -> CallId {
    let name = format!("{purpose} {question}");
    CallId(Uuid::new_v5(&Uuid::NAMESPACE_OID, name.as_bytes()))
}

/// Returns a message in the thread of a question, without a text.
pub(super) fn bare(id: MessageId, from: AgentId, question: &Message, now: Timestamp) -> Message {
    Message {
        thread_id: question.thread_id.clone(),
        kind: Kind::Message,
        from_agent: from,
        from_host: None,
        to_agent: id.to(),
        id,
        title: None,
        message: None,
        context: None,
        priority: Priority::High,
        requires_response: false,
        reply_to: None,
        message_id: None,
        response: None,
        status: None,
        awaited: false,
        question: None,
        answer: None,
        timestamp: now,
        expires_at: now + CORRECTED_WITHIN,
        repeated: false,
        rest: None,
    }
}

/// Returns the sending of such a message, which counts for that quota.
pub(super) fn sending(message: Message, call: CallId, quota: Quota, login: Option<String>) -> Send {
    Send {
        message,
        call,
        bound: INBOX_MAX,
        kept: ARCHIVE_LIFE,
        spares_away: false,
        one_shot: false,
        quota,
        key: None,
        login,
        speaker: None,
    }
}
