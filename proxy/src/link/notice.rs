//! Notices to a session about its own queued sends that were rejected.

use c3po_shared::catalogue::Call;
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::MESSAGE_LIFE;
use c3po_shared::message::Message;
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Kind, Priority};

use super::journal::Line;

/// The length of a quoted excerpt, in characters: enough to recognise the text.
const EXCERPT: usize = 200;

/// Returns the notice for the agent that queued the line. It does not come from a coordinator, so its receipts are dropped.
pub(super) fn of_refusal(agent: &AgentId, line: &Line, refusal: &Refusal) -> Message {
    let (system, now) = (AgentId::system(), Timestamp::now());
    let id = MessageId::of_call(&system, agent, line.call_id, 0);
    let (what, text) = match Call::parse(&line.tool, &line.arguments) {
        Ok(Call::SendMessage(send)) => (format!("message to {}", send.target), send.message),
        Ok(Call::Reply(reply)) => (format!("reply to {}", reply.message_id), reply.response),
        _ => (line.tool.clone(), String::new()),
    };
    let excerpt: String = text.chars().take(EXCERPT).collect();
    let told = format!(
        "Your {what} was queued on this host at {}, and was refused when the coordinator was back: {}. It was not \
         delivered. It begins: {excerpt}",
        line.at, refusal.error
    );
    Message {
        thread_id: id.clone(),
        id,
        kind: Kind::System,
        from_agent: system,
        from_host: None,
        to_agent: agent.clone(),
        title: Some("One of your messages was refused".to_owned()),
        message: Some(told),
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
        expires_at: now + MESSAGE_LIFE,
        repeated: false,
        rest: None,
    }
}
