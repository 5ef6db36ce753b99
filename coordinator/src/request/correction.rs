//! Corrections: a person answers a question that a triage agent has answered for people.

use c3po_shared::catalogue::Sent;
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::{CORRECTED_WITHIN, TITLE_MAX};
use c3po_shared::message::Message;
use c3po_shared::question::{Answer, AnswerContent};
use c3po_shared::receipt::{Receipt, Stage};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;

use super::about_question::{bare, call_about, sending};
use super::deposit::ID_TRIES;
use super::questions::{self, Asked};
use super::{Services, begin_read};
use crate::auth::Principal;
use crate::clock;
use crate::store::{Quota, SendOutcome, StoreError, stored_at};

/// The correction of an answer to a question.
#[derive(Debug, Default)]
pub(crate) struct Correction {
    /// The message by which a person corrected it.
    pub(crate) message: Option<Message>,
    /// Until when a person may correct it. Absent for an answer of a person, and after a correction.
    pub(crate) until: Option<Timestamp>,
}

/// Returns the correction of the answer to a question, or until when a person may correct it.
///
/// Errors: as for [`begin_read`].
pub(crate) async fn find(
    services: &Services,
    principal: &Principal,
    asked: &Asked,
) -> Result<Correction, Refusal> {
    let Some(reply) = answer_of_triage(asked) else {
        return Ok(Correction::default());
    };
    let _reading = begin_read(principal).await?;
    let message = stored(services, &asked.message).await?;
    let until = Some(corrected_until(reply));
    let is_open = message.is_none() && !is_asker_gone(services, asked).await?;
    Ok(Correction {
        until: until.filter(|until| is_open && clock::now() < *until),
        message,
    })
}

/// Returns whether no agent has the asker's name, or one of another host that was made after the question was stored.
async fn is_asker_gone(services: &Services, asked: &Asked) -> Result<bool, StoreError> {
    let question = &asked.message;
    let agent = services.store.agent(&question.from_agent).await?;
    Ok(agent.is_none_or(|agent| !agent.sent(question, stored_at(&asked.history))))
}

/// Returns the correction of the answer to a question, if there is one.
pub(super) async fn stored(
    services: &Services,
    question: &Message,
) -> Result<Option<Message>, StoreError> {
    for (_, id) in tries(question) {
        match services.store.message(&id).await? {
            Some(kept) if corrects(&kept.message, question) => return Ok(Some(kept.message)),
            // Another message has that id.
            Some(_) => {}
            None => break,
        }
    }
    Ok(None)
}

/// Returns the calls that may send the correction, and its id by each, in the order in which they are tried. Any login can
/// use one of them before.
fn tries(question: &Message) -> impl Iterator<Item = (CallId, MessageId)> {
    (0..ID_TRIES).map(|attempt| {
        let call = call_about(&question.id, &format!("correct {attempt}"));
        let id = MessageId::of_call(&AgentId::human(), &question.from_agent, call, 0);
        (call, id)
    })
}

fn corrects(message: &Message, question: &Message) -> bool {
    let is_answer = message.answer.is_some() && message.reply_to.is_none();
    is_answer && message.thread_id == question.thread_id
}

/// Returns the answer of a triage agent, if the question has one.
fn answer_of_triage(asked: &Asked) -> Option<&Message> {
    let is_of_triage = |reply: &&Message| {
        reply
            .answer
            .as_ref()
            .is_some_and(|answer| answer.is_of_triage())
    };
    asked.reply.as_ref().filter(is_of_triage)
}

fn corrected_until(reply: &Message) -> Timestamp {
    reply.timestamp + CORRECTED_WITHIN
}

/// Sends the answer of a person to an agent that has one of a triage agent. Returns `None` if it is too late, or if another
/// one was sent. The same answer of the same person again returns the first.
pub(super) async fn correct(
    services: &Services,
    by: &str,
    login: Option<String>,
    asked: &Asked,
    content: AnswerContent,
) -> Result<Option<Sent>, Refusal> {
    let now = clock::now();
    let Some(reply) = answer_of_triage(asked).filter(|reply| now < corrected_until(reply)) else {
        return Ok(None);
    };
    if is_asker_gone(services, asked).await? {
        return Ok(None);
    }
    let (answer, text) = questions::worded(asked, by, content)?;
    let question = &asked.message;
    let title = format!("{by} corrects triage's answer to {}", question.id);
    let answer = Box::new(Answer {
        to_ask_user: false,
        ..answer
    });
    let correction = |id| Message {
        title: Some(title.chars().take(TITLE_MAX).collect()),
        message: Some(text.clone()),
        answer: Some(answer.clone()),
        expires_at: reply.expires_at,
        ..bare(id, AgentId::human(), question, now)
    };
    for (call, id) in tries(question) {
        let send = sending(correction(id), call, Quota::default(), login.clone());
        let message = match services.store.send(&send).await? {
            SendOutcome::Stored => send.message,
            SendOutcome::Repeated(first) if first.answer == send.message.answer => *first,
            SendOutcome::Repeated(first) if corrects(&first, question) => return Ok(None),
            SendOutcome::Repeated(_) | SendOutcome::CallTaken | SendOutcome::IdTaken => continue,
            _ => return Ok(None),
        };
        let receipt = Receipt {
            stage: Stage::Stored,
            at: Some(message.timestamp),
        };
        return Ok(Some(Sent { message, receipt }));
    }
    Ok(None)
}
