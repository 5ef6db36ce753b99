//! Notices of the coordinator itself to people: news in the inbox of `human`.

use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::{INBOX_MAX, NEWS_LIFE};
use c3po_shared::message::Message;
use c3po_shared::vocabulary::{Kind, Priority};

use super::{Services, deposit};
use crate::clock;
use crate::store::{Quota, Result, Send, SendOutcome};

/// Stores a notice for people. If it cannot be stored, that is logged: what it reports is in the audit too.
pub(crate) async fn notify_people(services: &Services, title: &str, text: String) {
    match store(services, title, text).await {
        Ok(SendOutcome::Stored | SendOutcome::Repeated(_)) => {}
        Ok(outcome) => tracing::warn!("a notice for people was not stored: {outcome:?}"),
        Err(error) => tracing::warn!("a notice for people was not stored: {error}"),
    }
}

async fn store(services: &Services, title: &str, text: String) -> Result<SendOutcome> {
    let (from, to, call) = (AgentId::system(), AgentId::human(), CallId::fresh());
    let (id, now) = (MessageId::of_call(&from, &to, call, 0), clock::now());
    let message = Message {
        thread_id: id.clone(),
        id,
        kind: Kind::System,
        from_agent: from,
        from_host: None,
        to_agent: to,
        title: Some(title.to_owned()),
        message: Some(text),
        context: None,
        priority: Priority::Normal,
        requires_response: false,
        reply_to: None,
        message_id: None,
        response: None,
        status: None,
        awaited: false,
        question: None,
        answer: None,
        timestamp: now,
        expires_at: now + services.message_life,
        repeated: false,
        rest: None,
    };
    let send = Send {
        message,
        call,
        bound: INBOX_MAX,
        kept: NEWS_LIFE,
        spares_away: false,
        one_shot: false,
        quota: Quota::default(),
        key: None,
        login: None,
        speaker: None,
    };
    deposit::store(services, &send).await
}
