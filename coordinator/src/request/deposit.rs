//! Storing one message or reply, and reporting it to its sender.

use std::pin::pin;
use std::time::Duration;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::{ARCHIVE_LIFE, INBOX_MAX, NEWS_LIFE};
use c3po_shared::message::Message;
use c3po_shared::policy::Verb;
use c3po_shared::question::Question;
use c3po_shared::receipt::{Receipt, Stage, Step, furthest};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::vocabulary::{Kind, Priority};
use tokio::time::Instant;

use super::guard::{self, Exchange};
use super::own::Own;
use super::permission::Permission;
use super::price::{note_offers, note_to_people};
use super::{Caller, Services};
use crate::clock;
use crate::store::{Quota, Send, SendOutcome, StoreError, stored_at};

/// How many ids are tried if an id is taken: a collision has a chance of 1 in 4 billion per stored message.
pub(super) const ID_TRIES: u32 = 8;

/// Replies may exceed the quota by the quota divided by this number, because other agents wait for them.
pub(super) const REPLY_MARGIN: u64 = 8;

/// An accepted message and its receipt.
pub(super) type Accepted = (Message, Receipt);

/// A message without a recipient.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    /// The id that is tried before those of the call.
    pub(super) id: Option<MessageId>,
    pub(super) kind: Kind,
    pub(super) thread: Option<MessageId>,
    pub(super) title: Option<String>,
    pub(super) message: String,
    pub(super) context: Option<String>,
    pub(super) priority: Priority,
    pub(super) requires_response: bool,
    pub(super) life: Duration,
    /// In a question to people: its parts.
    pub(super) question: Option<Box<Question>>,
    /// The policy check for the call.
    pub(super) permission: Permission,
}

impl Draft {
    pub(super) fn envelope(&self, caller: &Caller, id: MessageId) -> Message {
        let (now, to) = (clock::now(), id.to());
        Message {
            thread_id: self.thread.clone().unwrap_or_else(|| id.clone()),
            id,
            kind: self.kind,
            from_agent: caller.agent.clone(),
            from_host: caller.host.clone(),
            to_agent: to,
            title: self.title.clone(),
            message: Some(self.message.clone()),
            context: self.context.clone(),
            priority: self.priority,
            requires_response: self.requires_response,
            reply_to: None,
            message_id: None,
            response: None,
            status: None,
            awaited: false,
            question: self.question.clone(),
            answer: None,
            timestamp: now,
            expires_at: now + self.life,
            repeated: false,
            rest: None,
        }
    }
}

/// Returns how long a message stays readable after it is settled: longer for questions, answers and escalations than for other
/// news.
pub(super) fn kept(message: &Message) -> Duration {
    let is_news = !message.requires_response && message.kind != Kind::Reply;
    let is_escalation = message.to_agent.is_human() && message.thread_id != message.id;
    if is_news && !is_escalation {
        NEWS_LIFE
    } else {
        ARCHIVE_LIFE
    }
}

/// Puts the draft into one inbox, if the policy and the loop guard allow it.
pub(super) async fn deposit(
    services: &Services,
    caller: &Caller,
    call: CallId,
    draft: &Draft,
    to: &AgentId,
) -> Result<Accepted, Refusal> {
    draft.permission.check(services, caller, to).await?;
    // Pinned here: a future that is passed as an argument takes its size twice.
    let storing = pin!(store_draft(services, caller, call, draft, to));
    if draft.kind == Kind::Broadcast {
        // A broadcast needs no answer, so it cannot continue a loop.
        return storing.await;
    }
    let turn = Exchange {
        call,
        to,
        verb: Verb::Message,
        thread: None,
    };
    guard::bounded(services, caller, turn, storing).await
}

async fn store_draft(
    services: &Services,
    caller: &Caller,
    call: CallId,
    draft: &Draft,
    to: &AgentId,
) -> Result<Accepted, Refusal> {
    let of_call = (0..ID_TRIES).map(|at| MessageId::of_call(&caller.agent, to, call, at));
    for id in draft.id.iter().cloned().chain(of_call) {
        let message = draft.envelope(caller, id);
        // An agent that is away accepts only urgent messages; news and broadcasts do not disturb it.
        let spares_away = draft.kind == Kind::Message && draft.priority < Priority::Urgent;
        let (kept, one_shot) = (kept(&message), caller.is_one_shot());
        let quota = services.quota(&caller.principal);
        let (key, login) = caller.credentials();
        let send = Send {
            message,
            call,
            bound: INBOX_MAX,
            kept,
            spares_away,
            one_shot,
            quota,
            key,
            login,
            speaker: caller.speaker(),
        };
        let outcome = {
            let taking = pin!(store(services, &send));
            heard(services, caller, &send.message, taking).await?
        };
        if let Some(sent) = sent(services, caller, send.message, outcome).await? {
            return Ok(sent);
        }
    }
    Err(Refusal::new(
        ErrorCode::Internal,
        "no free message id was found",
    ))
}

/// Stores a message. The first one to people introduces their agent.
pub(super) async fn store(services: &Services, send: &Send) -> Result<SendOutcome, StoreError> {
    let (outcome, to) = (services.store.send(send).await?, &send.message.to_agent);
    if !to.is_human() || !matches!(outcome, SendOutcome::NoSuchAgent) {
        return Ok(outcome);
    }
    let quota = Quota::default();
    services.store.introduce(to, None, &quota).await?;
    services.store.send(send).await
}

/// Counts the price of a message, also of one that is repeated, and waits for the store to take it. If the outcome stays unknown,
/// the audit records that, because it may have been stored.
pub(super) async fn heard<T>(
    services: &Services,
    caller: &Caller,
    message: &Message,
    taking: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    if message.to_agent.is_human() {
        let policy = services.policies.current();
        let triage = policy.triage();
        note_to_people(&caller.principal, message.requires_response);
        if triage.may_have(message) {
            note_offers(&caller.principal, triage.agents().len());
        }
    }
    let mut unheard = Unheard {
        services,
        caller,
        message,
        is_over: false,
    };
    let outcome = taking.await;
    unheard.is_over = !matches!(outcome, Err(StoreError::Unavailable(_)));
    if let Err(StoreError::OverQuota(_)) = &outcome {
        let why = "the storage quota of the key is used up".to_owned();
        services
            .audit
            .note(entry(caller, Event::Denied, message).because(why));
    }
    outcome
}

/// A message that is being stored. If dropped before the store replied, it leaves an entry in the audit.
struct Unheard<'a> {
    services: &'a Services,
    caller: &'a Caller,
    message: &'a Message,
    is_over: bool,
}

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.services
                .audit
                .note(entry(self.caller, Event::Unknown, self.message));
        }
    }
}

/// Returns the result for the caller, or `None` if another id must be tried.
pub(super) async fn sent(
    services: &Services,
    caller: &Caller,
    message: Message,
    outcome: SendOutcome,
) -> Result<Option<Accepted>, Refusal> {
    match outcome {
        SendOutcome::Stored => {
            let answers = message
                .reply_to
                .as_ref()
                .is_some_and(|asked| asked.to().is_human());
            if answers || message.to_agent.is_human() {
                services.duties_due.notify_one();
            }
            services.metrics.messages_stored.inc();
            let receipt = Receipt {
                stage: Stage::Stored,
                at: Some(message.timestamp),
            };
            Ok(Some((message, receipt)))
        }
        SendOutcome::Repeated(accepted)
            if !says_the_same(&accepted, &message)
                || !caller.principal.covers(&accepted.from_agent) =>
        {
            Err(call_taken())
        }
        SendOutcome::CallTaken => Err(call_taken()),
        SendOutcome::Repeated(accepted) => {
            let kept = services.message(&caller.principal, &accepted.id).await?;
            let history = kept.map(|kept| kept.history).unwrap_or_default();
            if is_of_another_host(&accepted, &message)
                && !is_of_renamed_host(services, caller, &accepted, &history).await?
            {
                return Err(call_taken());
            }
            let receipt = Receipt {
                stage: furthest(&history),
                at: history.last().map(|step| step.at),
            };
            Ok(Some((*accepted, receipt)))
        }
        SendOutcome::Full(count) => Err(Refusal::inbox_full(&message.to_agent, count)),
        SendOutcome::TooManyQuestions { count, limit } => {
            Err(Refusal::too_many_questions(count, limit))
        }
        SendOutcome::NoSuchAgent => Err(Refusal::agent_not_found(message.to_agent.as_str(), &[])),
        SendOutcome::Away => {
            let error = format!("{} is away and accepts no new messages", message.to_agent);
            Err(Refusal::new(ErrorCode::AgentUnavailable, error))
        }
        SendOutcome::IdTaken => Ok(None),
    }
}

fn call_taken() -> Refusal {
    let error = "this call_id was used for another call; nothing was sent";
    Refusal::new(ErrorCode::Conflict, error)
        .suggest("Give every call its own id (UUIDv7), and every request its own Idempotency-Key.")
}

/// Returns an audit entry about a message, without any of its texts.
fn entry(caller: &Caller, event: Event, message: &Message) -> Entry {
    let (message_id, about) = (Some(message.id.clone()), message.reply_to.clone());
    Entry {
        message_id,
        about,
        ..caller
            .entry(event)
            .to(&message.to_agent)
            .verb(message.kind.as_str())
    }
}

/// Counts a send against the caller's rate limit. A send over the limit is refused and recorded.
pub(super) fn take_turn(
    services: &Services,
    caller: &Caller,
    id: CallId,
    verb: Verb,
) -> Result<(), Refusal> {
    services
        .limit
        .take(&caller.agent, id, Instant::now())
        .inspect_err(|refusal| {
            services.audit.note(
                caller
                    .entry(Event::Denied)
                    .verb(verb.as_str())
                    .because(refusal.error.clone()),
            );
        })
}

/// Returns whether another host sent the accepted message. People are of no host, although an earlier build recorded one.
fn is_of_another_host(accepted: &Message, message: &Message) -> bool {
    accepted.from_host != message.from_host && !message.from_agent.is_human()
}

/// Returns whether the accepted message is of the caller's host, which had another name then: no other host has had the name of
/// the agent since.
async fn is_of_renamed_host(
    services: &Services,
    caller: &Caller,
    accepted: &Message,
    history: &[Step],
) -> Result<bool, StoreError> {
    let own = Own::of(services, caller);
    Ok(accepted.from_agent == caller.agent && own.had(stored_at(history)).await?)
}

/// Returns whether an earlier call with the same id had the same content. Its sender may have been renamed since, on the same
/// host.
fn says_the_same(accepted: &Message, message: &Message) -> bool {
    fn texts(one: &Message) -> [&Option<String>; 4] {
        [&one.title, &one.message, &one.context, &one.response]
    }
    texts(accepted) == texts(message)
        && accepted.kind == message.kind
        && accepted.reply_to == message.reply_to
        && accepted.question == message.question
        && accepted.answer == message.answer
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_repeated_call_of_a_person_may_be_of_a_machine_and_of_none() {
        let of = |from: &str, host: &str| -> Message {
            let message = json!({"id": format!("{from}::b::0a1b2c3d"), "thread_id": format!("{from}::b::0a1b2c3d"),
                "kind": "message", "from_agent": from, "from_host": host, "to_agent": "b", "message": "hi",
                "priority": "normal", "requires_response": false, "timestamp": "2026-01-01T00:00:00Z",
                "expires_at": "2026-01-02T00:00:00Z"});
            serde_json::from_value(message).expect("a message")
        };
        for (from, expected) in [("human", false), ("a", true)] {
            let (before, now) = (of(from, "nas"), of(from, "human"));
            assert_eq!(is_of_another_host(&before, &now), expected, "{from}");
        }
    }
}
