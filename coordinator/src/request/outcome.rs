//! The outcome of a question to people, for the agent that asked.

use c3po_shared::catalogue::{UserAnswer, waited};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, furthest};
use c3po_shared::refusal::Refusal;

use super::receipts::own_message;
use super::{Caller, Services, correction};
use crate::clock;
use crate::store::StoredMessage;

/// Returns the outcome of a question to people, once there is one.
pub(super) async fn outcome(
    services: &Services,
    caller: &Caller,
    id: &MessageId,
) -> Result<Option<UserAnswer>, Refusal> {
    let kept = own_message(services, caller, id).await?;
    check_own(caller, &kept)?;
    let question = kept.message;
    if let Some(reply) = &kept.reply {
        let reply = services.message(&caller.principal, reply).await?;
        let Some(reply) = reply else {
            return Ok(None);
        };
        let mut outcome = UserAnswer::answered(&question, &reply.message);
        if reply
            .message
            .answer
            .is_some_and(|answer| answer.is_of_triage())
        {
            let corrected = correction::stored(services, &question).await?;
            if let Some(Message { title, message, .. }) = corrected {
                let (title, text) = (title.unwrap_or_default(), message.unwrap_or_default());
                outcome.note = Some(format!("{title}: {text}"));
            }
        }
        return Ok(Some(outcome));
    }
    let is_over = matches!(
        furthest(&kept.history),
        Stage::Withdrawn | Stage::Expired | Stage::Refused
    );
    let waited = waited(question.timestamp, clock::now());
    Ok(is_over.then(|| UserAnswer::withdrawn(question.id, waited)))
}

/// Refuses a message that is not a question of the caller to people.
pub(super) fn check_own(caller: &Caller, kept: &StoredMessage) -> Result<(), Refusal> {
    let message = &kept.message;
    let is_own = message.from_agent == caller.agent && message.to_agent == AgentId::human();
    if is_own && message.requires_response {
        return Ok(());
    }
    let error = format!("{} is not a question of yours to people", message.id);
    Err(Refusal::invalid(error).suggest("Use the question_id that ask_user returned."))
}
