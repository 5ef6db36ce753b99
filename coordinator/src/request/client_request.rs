//! Requests of a client's session for a permission: made as questions to people, and withdrawn when they or their session end.

use std::time::Duration;

use c3po_shared::catalogue::{self as tools, Reply, Sent};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::policy::Verb;
use c3po_shared::question::ClientRequest;
use c3po_shared::receipt::{Stage, Via, furthest};
use c3po_shared::refusal::Refusal;
use c3po_shared::vocabulary::{Kind, Priority};
use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

use super::deposit::{Draft, deposit, take_turn};
use super::permission::Permission;
use super::receipts::{own_message, tracked};
use super::{Caller, Services, begin_read};
use crate::clock;
use crate::store::{Conclusion, REQUEST_CHECKED_EVERY, StoreError};

/// How many bytes of the hash of a request are kept.
const HASH_BYTES: usize = 16;

/// `request_permission`
pub(super) async fn request_permission(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: tools::RequestPermission,
) -> Result<Reply, Refusal> {
    let mut question = call.question;
    if let Some(request) = &mut question.request {
        request.hash = hash(request);
        request.generation = caller.tenure.as_ref().map(|tenure| tenure.generation);
    }
    question.needs_person = true;
    take_turn(services, caller, id, Verb::Message)?;
    let draft = Draft {
        id: None,
        permission: Permission::of(services, caller, Verb::Message).await?,
        kind: Kind::Message,
        thread: None,
        title: None,
        message: call.message,
        context: None,
        priority: Priority::High,
        requires_response: true,
        life: services.message_life,
        question: Some(Box::new(question)),
    };
    let (message, receipt) = deposit(services, caller, id, &draft, &AgentId::human()).await?;
    Ok(Reply::Sent(Sent { message, receipt }))
}

/// Withdraws a request of a client if its session is over. Returns the time until the next look if it is open.
pub(crate) async fn end_request(
    services: &Services,
    id: &MessageId,
) -> Result<Option<Duration>, StoreError> {
    let Some(kept) = services.store.message(id).await? else {
        return Ok(None);
    };
    if furthest(&kept.history).is_final() {
        return Ok(None);
    }
    if !is_over(services, &kept.message).await? {
        return Ok(Some(REQUEST_CHECKED_EVERY));
    }
    let conclusion = Conclusion {
        asker: id.from(),
        question: id.clone(),
        stage: Stage::Withdrawn,
        via: Via::SessionEnd,
        key: None,
        speaker: None,
    };
    services.store.conclude(&conclusion).await?;
    Ok(None)
}

/// Returns whether the session that made a request of its client is over.
pub(super) async fn is_over(services: &Services, message: &Message) -> Result<bool, StoreError> {
    let request = message
        .question
        .as_ref()
        .and_then(|question| question.request.as_ref());
    let Some(request) = request else {
        return Ok(false);
    };
    let agent = services.store.agent(&message.from_agent).await?;
    Ok(agent.is_none_or(|agent| {
        Some(agent.generation) != request.generation || !agent.is_online(clock::now())
    }))
}

/// Returns the hash of a request, in hexadecimal digits.
fn hash(request: &ClientRequest) -> String {
    let shown = format!("{}\n{}", request.tool, request.input);
    let digest = digest(&SHA256, shown.as_bytes());
    HEXLOWER.encode(&digest.as_ref()[..HASH_BYTES])
}

/// `conclude`
pub(super) async fn conclude(
    services: &Services,
    caller: &Caller,
    call: tools::Conclude,
) -> Result<Reply, Refusal> {
    let id = call.message_id;
    // Other ways are reported by those who act on them.
    if !matches!(
        call.via,
        Via::Terminal | Via::SessionEnd | Via::TimeOut | Via::ToolCall | Via::Transcript
    ) {
        let error = format!("an asker does not conclude by {}", call.via);
        return Err(Refusal::invalid(error));
    }
    let _place = begin_read(&caller.principal).await?;
    let Message {
        to_agent,
        requires_response,
        ..
    } = own_message(services, caller, &id).await?.message;
    if !to_agent.is_human() || !requires_response {
        return Err(Refusal::message_not_found(&id));
    }
    let conclusion = Conclusion {
        asker: caller.agent.clone(),
        question: id.clone(),
        stage: call.stage,
        via: call.via,
        key: caller.principal.key_id().map(str::to_owned),
        speaker: caller.speaker(),
    };
    let concluded = services.store.conclude(&conclusion).await?;
    services.duties_due.notify_one();
    let kept = services.message(&caller.principal, &id).await?;
    match (concluded, kept) {
        (Some(_), Some(kept)) => Ok(Reply::Tracked(tracked(kept))),
        _ => Err(Refusal::message_not_found(&id)),
    }
}
