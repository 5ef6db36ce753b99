//! Sends messages, replies and broadcasts.

use c3po_shared::catalogue::{self as tools, Copies, Copy, Reply, Sent};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::INBOX_MAX;
use c3po_shared::message::Message;
use c3po_shared::policy::Verb;
use c3po_shared::question::Answer;
use c3po_shared::receipt::{Stage, refused_answer};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::vocabulary::{Kind, ReplyStatus};
use futures_util::StreamExt;
use futures_util::stream;
use std::pin::pin;
use std::time::Duration;

use super::deposit::{
    Accepted, Draft, ID_TRIES, REPLY_MARGIN, deposit, heard, kept, sent, take_turn,
};
use super::guard::{self, Exchange};
use super::identity::check_right;
use super::permission::Permission;
use super::price::{json_bytes, note_copies};
use super::target::{self, Target};
use super::{Caller, Services, begin_read, check_read, repeated};
use crate::auth::Right;
use crate::clock;
use crate::store::{Agent, AnswerOutcome, Quota, Send, Speaker};

/// How many copies of one broadcast are sent concurrently, and the limit of their text bytes together.
const COPIES_AT_ONCE: usize = 8;
const COPIES_BYTES: usize = 512 << 10;

/// `send_message`
pub(super) async fn send_message(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: tools::SendMessage,
) -> Result<Reply, Refusal> {
    let target = Target::parse(&call.target)?;
    take_turn(services, caller, id, Verb::Message)?;
    let mut draft = Draft {
        id: None,
        permission: Permission::of(services, caller, Verb::Message).await?,
        kind: Kind::Message,
        thread: None,
        title: call.title,
        message: call.message,
        context: call.context,
        priority: call.priority.unwrap_or_default(),
        requires_response: call.requires_response.unwrap_or(true),
        life: life(services, call.expires_in)?,
        question: None,
    };
    match target {
        Target::One(name, host) => {
            let (message, receipt) =
                send_to_one(services, caller, id, &draft, name, host.as_deref()).await?;
            Ok(Reply::Sent(Sent { message, receipt }))
        }
        Target::Role(role) => {
            let of_role = |agent: &Agent| agent.role.as_deref() == Some(role.as_str());
            let mut recipients = others(services, caller, of_role).await?;
            if recipients.is_empty() {
                recipients = repeated::recipients_of_copies(services, caller, id).await?;
            }
            if recipients.is_empty() {
                return Err(Refusal::new(
                    ErrorCode::AgentNotFound,
                    format!("no other agent has the role {role}"),
                ));
            }
            draft.thread = Some(MessageId::of_call(&caller.agent, &AgentId::all(), id, 0));
            let _place = begin_read(&caller.principal).await?;
            services.limit.weigh(&caller.agent, &id, recipients.len());
            Ok(Reply::Copies(
                copies(services, caller, id, draft, recipients).await,
            ))
        }
    }
}

/// Returns the lifetime of a message, given the number of seconds that its sender requested, if any.
fn life(services: &Services, expires_in: Option<u64>) -> Result<Duration, Refusal> {
    let most = services.message_life;
    match expires_in.map(Duration::from_secs) {
        Some(life) if life > most => {
            let (wished, limit) = (life.as_secs(), most.as_secs());
            let error = format!(
                "expires_in is {wished}; this coordinator keeps messages for at most {limit} seconds"
            );
            Err(Refusal::invalid(error)
                .detail("limit", limit)
                .detail("count", wished))
        }
        life => Ok(life.unwrap_or(most)),
    }
}

/// `broadcast`
pub(super) async fn broadcast(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: tools::Broadcast,
) -> Result<Reply, Refusal> {
    take_turn(services, caller, id, Verb::Broadcast)?;
    // Each copy is checked too; monitors get the text before.
    check_read(services, caller).await?;
    let wanted = |agent: &Agent| {
        call.role
            .as_ref()
            .is_none_or(|role| agent.role.as_ref() == Some(role))
            && call
                .host
                .as_ref()
                .is_none_or(|host| agent.host.as_ref() == Some(host))
    };
    let recipients = others(services, caller, wanted).await?;
    let _place = begin_read(&caller.principal).await?;
    services.limit.weigh(&caller.agent, &id, recipients.len());
    let permission = Permission::of(services, caller, Verb::Broadcast).await?;
    // Monitors get it at most once; the copies do not depend on them.
    let (agent, speaker) = (&caller.agent, caller.speaker());
    let announced = services
        .store
        .announce(agent, speaker.as_ref(), &call.message);
    if let Err(error) = announced.await {
        tracing::debug!("a broadcast was not published to monitors: {error}");
    }
    let draft = Draft {
        id: None,
        permission,
        kind: Kind::Broadcast,
        thread: Some(MessageId::of_call(&caller.agent, &AgentId::all(), id, 0)),
        title: call.title,
        message: call.message,
        context: None,
        priority: call.priority.unwrap_or_default(),
        requires_response: false,
        life: services.message_life,
        question: None,
    };
    Ok(Reply::Copies(
        copies(services, caller, id, draft, recipients).await,
    ))
}

/// Sends to the name exactly as given. Only if that fails, looks for the intended recipient.
async fn send_to_one(
    services: &Services,
    caller: &Caller,
    id: CallId,
    draft: &Draft,
    name: AgentId,
    host: Option<&str>,
) -> Result<Accepted, Refusal> {
    if host.is_none() && !name.is_reserved() {
        match deposit(services, caller, id, draft, &name).await {
            Err(refusal) if refusal.code == ErrorCode::AgentNotFound => {}
            outcome => return outcome,
        }
    }
    let looking = target::recipient(services, &caller.principal, &name, host);
    let recipient = match Box::pin(looking).await {
        Err(refusal) if refusal.code == ErrorCode::AgentNotFound && host.is_some() => {
            let earlier =
                Box::pin(repeated::recipient_of_message(services, caller, id, &name)).await?;
            earlier.ok_or(refusal)?
        }
        found => found?.id,
    };
    deposit(services, caller, id, draft, &recipient).await
}

async fn others(
    services: &Services,
    caller: &Caller,
    wanted: impl Fn(&Agent) -> bool,
) -> Result<Vec<AgentId>, Refusal> {
    let of_others = |agent: Agent| (agent.id != caller.agent && wanted(&agent)).then_some(agent.id);
    target::select(services, &caller.principal, of_others).await
}

/// Sends one copy to each recipient, many at a time: the caller holds a place of few. A refused copy does not stop the
/// others; its refusal is part of the reply.
async fn copies(
    services: &Services,
    caller: &Caller,
    id: CallId,
    draft: Draft,
    recipients: Vec<AgentId>,
) -> Copies {
    let draft = &draft;
    let bytes = json_bytes(&draft.message, draft.context.as_deref());
    note_copies(&caller.principal, recipients.len(), bytes);
    let outcomes: Vec<(AgentId, Result<_, Refusal>)> = stream::iter(recipients)
        .map(|to| async move {
            let outcome = deposit(services, caller, id, draft, &to).await;
            // The message is dropped, because each copy has the whole text.
            (
                to,
                outcome.map(|(message, receipt)| (message.id, message.thread_id, receipt.stage)),
            )
        })
        .buffered(copies_at_once(bytes))
        .collect()
        .await;
    let mut thread = draft.thread.clone();
    let mut receipts = Vec::with_capacity(outcomes.len());
    for (agent_id, outcome) in outcomes {
        receipts.push(match outcome {
            Ok((message_id, of_thread, stage)) => {
                // A repeated call keeps its first thread.
                thread = Some(of_thread);
                Copy {
                    agent_id,
                    message_id: Some(message_id),
                    stage,
                    refusal: None,
                }
            }
            Err(refusal) => Copy {
                agent_id,
                message_id: None,
                stage: Stage::Refused,
                refusal: Some(refusal),
            },
        });
    }
    let id = thread.unwrap_or_else(|| MessageId::random(&caller.agent, &AgentId::all()));
    let recipients = receipts
        .iter()
        .filter(|copy| copy.refusal.is_none())
        .map(|copy| copy.agent_id.clone())
        .collect();
    Copies {
        id,
        recipients,
        receipts,
    }
}

/// Returns how many copies of a text of this size are sent concurrently.
fn copies_at_once(bytes: usize) -> usize {
    (COPIES_BYTES / bytes.max(1)).clamp(1, COPIES_AT_ONCE)
}

/// `reply`
pub(super) async fn reply(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: tools::ReplyTo,
) -> Result<Reply, Refusal> {
    let asked = &call.message_id;
    if caller.agent == AgentId::human() {
        check_right(services, &caller.principal, Right::Answer)?;
    }
    let reading = begin_read(&caller.principal).await?;
    let question = match services.message(&caller.principal, asked).await? {
        Some(kept) if kept.message.to_agent == caller.agent => kept.message,
        _ => return Err(Refusal::message_not_found(asked)),
    };
    drop(reading);
    // Answers to a person are not limited, because their number is bounded by the person's questions.
    if question.from_agent != AgentId::human() {
        take_turn(services, caller, id, Verb::Reply)?;
    }
    Permission::of(services, caller, Verb::Reply)
        .await?
        .check(services, caller, &question.from_agent)
        .await?;
    let turn = Exchange {
        call: id,
        to: &question.from_agent,
        verb: Verb::Reply,
        thread: Some(&question.thread_id),
    };
    let envelope =
        |reply| envelope_of_reply(caller, &question, &call, reply, services.message_life);
    let speaker = caller.speaker();
    let storing = pin!(store_reply(
        services, caller, id, speaker, &question, envelope
    ));
    let (message, receipt) = guard::bounded(services, caller, turn, storing).await?;
    Ok(Reply::Sent(Sent { message, receipt }))
}

/// Stores a reply of that speaker, made for the first id that is free, and settles the question.
pub(super) async fn store_reply(
    services: &Services,
    caller: &Caller,
    id: CallId,
    speaker: Option<Speaker>,
    question: &Message,
    envelope: impl Fn(MessageId) -> Message,
) -> Result<Accepted, Refusal> {
    let asked = &question.id;
    // An answer of a person is never refused: the asker waits for it.
    let bound = if caller.agent == AgentId::human() {
        usize::MAX
    } else {
        INBOX_MAX
    };
    for attempt in 0..ID_TRIES {
        let reply = MessageId::of_call(&caller.agent, &question.from_agent, id, attempt);
        let message = envelope(reply);
        let (kept, one_shot) = (kept(&message), caller.is_one_shot());
        let (key, login) = caller.credentials();
        let login = login.or_else(|| message.answer.as_deref().map(Answer::signature));
        let bytes = services
            .store_quota
            .map(|bytes| bytes + bytes / REPLY_MARGIN);
        let quota = Quota {
            bytes,
            ..services.quota(&caller.principal)
        };
        let answer = Send {
            message,
            call: id,
            bound,
            kept,
            spares_away: false,
            one_shot,
            quota,
            key,
            login,
            speaker: speaker.clone(),
        };
        let outcome = match heard(
            services,
            caller,
            &answer.message,
            services.store.answer(&answer),
        )
        .await?
        {
            AnswerOutcome::Sent(outcome) => outcome,
            AnswerOutcome::NotFound => return Err(Refusal::message_not_found(asked)),
            AnswerOutcome::Withdrawn => {
                let kept = services.message(&caller.principal, asked).await?;
                let refusal = kept.and_then(|kept| refused_answer(asked, &kept.history));
                return Err(refusal.unwrap_or_else(|| Refusal::withdrawn(asked)));
            }
            AnswerOutcome::AlreadyAnswered(reply) => {
                return Err(Refusal::already_answered(asked, &reply));
            }
        };
        if let Some(sent) = sent(services, caller, answer.message, outcome).await? {
            return Ok(sent);
        }
    }
    Err(Refusal::new(
        ErrorCode::Internal,
        "no free message id was found",
    ))
}

/// Returns the envelope of a reply.
pub(super) fn envelope_of_reply(
    caller: &Caller,
    question: &Message,
    call: &tools::ReplyTo,
    id: MessageId,
    life: Duration,
) -> Message {
    let now = clock::now();
    Message {
        id,
        thread_id: question.thread_id.clone(),
        kind: Kind::Reply,
        from_agent: caller.agent.clone(),
        from_host: caller.host.clone(),
        to_agent: question.from_agent.clone(),
        title: None,
        message: None,
        context: None,
        priority: question.priority,
        requires_response: call.requires_response.unwrap_or(false),
        reply_to: Some(question.id.clone()),
        message_id: Some(question.id.clone()),
        response: Some(call.response.clone()),
        status: Some(call.status.unwrap_or(ReplyStatus::Success)),
        awaited: question.requires_response,
        question: None,
        answer: None,
        timestamp: now,
        expires_at: now + life,
        repeated: false,
        rest: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_copies_of_a_long_text_are_sent_at_once() {
        for (bytes, copies) in [
            (0, COPIES_AT_ONCE),
            (1_000, COPIES_AT_ONCE),
            (100_000, 5),
            (200_000, 2),
            (1 << 20, 1),
        ] {
            assert_eq!(copies_at_once(bytes), copies, "{bytes}");
        }
        let longest = "\u{1}".repeat(50_000);
        assert_eq!(
            copies_at_once(json_bytes("x", Some(&longest))),
            1,
            "in JSON"
        );
    }
}
