//! Messages in the form of the stores, for tests that insert some without a sender.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::MESSAGE_LIFE;
use c3po_shared::message::Message;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Kind, Priority};

/// Returns a new message that starts a thread and needs an answer.
///
/// # Panics
///
/// Panics if a name is not a valid agent id.
pub fn message(from: &str, to: &str, text: &str) -> Message {
    let id = |name: &str| {
        name.parse::<AgentId>()
            .expect("the tests name agents properly")
    };
    let (from_agent, to_agent) = (id(from), id(to));
    let number = MessageId::random(&from_agent, &to_agent);
    let timestamp = Timestamp::now();
    Message {
        id: number.clone(),
        thread_id: number,
        kind: Kind::Message,
        from_agent,
        from_host: Some("nas2".into()),
        to_agent,
        title: None,
        message: Some(text.into()),
        context: None,
        priority: Priority::Normal,
        requires_response: true,
        reply_to: None,
        message_id: None,
        response: None,
        status: None,
        awaited: false,
        question: None,
        answer: None,
        timestamp,
        expires_at: timestamp + MESSAGE_LIFE,
        repeated: false,
        rest: None,
    }
}
