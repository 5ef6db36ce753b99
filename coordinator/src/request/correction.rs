//! Corrections: a person answers a question that a triage agent has answered for people.

use c3po_shared::catalogue::Sent;
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::{CORRECTED_WITHIN, TITLE_MAX};
use c3po_shared::message::Message;
use c3po_shared::question::{Answer, AnswerContent};
use c3po_shared::receipt::{Receipt, Stage};
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;

use super::Services;
use super::questions::{self, Asked};
use super::triage::{bare, call_about, sending};
use crate::store::SendOutcome;

/// Returns the message by which people correct the answer of a triage agent.
pub(super) fn correction_of(question: &Message) -> MessageId {
    let call = call_about(&question.id, "correct");
    MessageId::of_call(&AgentId::human(), &question.from_agent, call, 0)
}

/// Sends the answer of a person to an agent that has one of a triage agent. Returns `None` if it is too late, or if another
/// one was sent.
pub(super) async fn correct(
    services: &Services,
    by: &str,
    login: Option<String>,
    asked: &Asked,
    content: AnswerContent,
) -> Result<Option<Sent>, Refusal> {
    let now = Timestamp::now();
    let Some(reply) = asked.reply.as_ref().filter(|reply| {
        let is_of_triage = reply
            .answer
            .as_ref()
            .is_some_and(|answer| answer.is_of_triage());
        is_of_triage && now.since(reply.timestamp) < CORRECTED_WITHIN
    }) else {
        return Ok(None);
    };
    let (answer, text) = questions::worded(asked, by, content)?;
    let question = &asked.message;
    let title = format!("{by} corrects triage's answer to {}", question.id);
    let message = Message {
        title: Some(title.chars().take(TITLE_MAX).collect()),
        message: Some(text),
        answer: Some(Box::new(Answer {
            to_ask_user: false,
            ..answer
        })),
        expires_at: reply.expires_at,
        ..bare(correction_of(question), AgentId::human(), question, now)
    };
    let send = sending(message, call_about(&question.id, "correct"), login);
    Ok(match services.store.send(&send).await? {
        SendOutcome::Stored => {
            let receipt = Receipt {
                stage: Stage::Stored,
                at: Some(now),
            };
            let message = send.message;
            Some(Sent { message, receipt })
        }
        _ => None,
    })
}
