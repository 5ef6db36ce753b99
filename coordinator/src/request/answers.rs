//! Answers of people to questions, and verdicts: over REST, by a code, in a dialog of the client, and in words.

use std::sync::Arc;

use c3po_shared::catalogue::{self as tools, Reply, Sent};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::question::{Answer, AnswerContent};
use c3po_shared::receipt::Via;
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::client_request::{end_request, is_over};
use super::own::Own;
use super::questions::{
    Asked, answer_of, asked, check_open, content_of, labelled, person, show, store_answer,
};
use super::{Caller, Services, begin_read, check_right, correction, send, triage};
use crate::auth::{Principal, Right};
use crate::store::stored_at;

/// The next step of a person without a login.
const LOG_IN: &str = "Log in: a link is made by `c3po-coordinator login NAME`.";

/// Answers a question for people, or gives a verdict. The first answer wins.
///
/// Errors: `MESSAGE_NOT_FOUND`, `FORBIDDEN`, `INVALID_REQUEST`, `ALREADY_ANSWERED` with `by`, `via` and `at`, `WITHDRAWN`,
/// `TOO_LATE`, and those of the store.
pub(crate) async fn answer(
    services: &Services,
    principal: &Arc<Principal>,
    call: CallId,
    id: &MessageId,
    content: AnswerContent,
) -> Result<Sent, Refusal> {
    if !matches!(
        content.via,
        None | Some(Via::Page | Via::Terminal | Via::Rest)
    ) {
        let error = "an answer over REST comes via page, terminal or rest";
        return Err(Refusal::invalid(error).suggest("Leave out `via`."));
    }
    give(services, principal, call, id, content).await
}

/// As [`answer`], by any way.
async fn give(
    services: &Services,
    principal: &Arc<Principal>,
    call: CallId,
    id: &MessageId,
    content: AnswerContent,
) -> Result<Sent, Refusal> {
    let asked = show(services, principal, id).await?;
    let question = asked.message.question.as_deref();
    let question = question.ok_or_else(|| Refusal::message_not_found(id))?;
    let right = if question.needs_verdict() {
        Right::Verdict
    } else {
        Right::Answer
    };
    check_right(services, principal, right)?;
    if question.needs_person && principal.login_id().is_none() {
        let error = "only a person who has logged in may answer this question";
        return Err(Refusal::new(ErrorCode::Forbidden, error).suggest(LOG_IN));
    }
    if content.saved.is_some() && principal.login_id().is_none() {
        let error = "only a person who has logged in may send a saved answer";
        return Err(Refusal::new(ErrorCode::Forbidden, error).suggest(LOG_IN));
    }
    let by = principal.answers_as().unwrap_or_default();
    // The same call again gets its stored reply.
    let own = MessageId::of_call(&AgentId::human(), &asked.message.from_agent, call, 0);
    if asked.reply.as_ref().is_none_or(|reply| reply.id != own) {
        let login = principal.login_of(&AgentId::human()).map(str::to_owned);
        if let Some(sent) =
            correction::correct(services, by, login, &asked, content.clone()).await?
        {
            return Ok(sent);
        }
        check_asked(services, &asked).await?;
    }
    let answer = answer_of(&asked, by, content)?;
    store_answer(services, &person(principal), call, None, &asked, &answer).await
}

/// Answers a question for a person who proved the right to it by a code that was pushed to that person alone.
///
/// Errors: as for [`answer`], but for rights.
pub(crate) async fn answer_by_code(
    services: &Services,
    name: &str,
    call: CallId,
    question: &MessageId,
    content: AnswerContent,
) -> Result<Sent, Refusal> {
    let asked = asked(services, question).await?;
    let asked = asked.ok_or_else(|| Refusal::message_not_found(question))?;
    if let Some(sent) = correction::correct(services, name, None, &asked, content.clone()).await? {
        return Ok(sent);
    }
    check_asked(services, &asked).await?;
    let answer = answer_of(&asked, name, content)?;
    let caller = person(&Arc::new(Principal::local()));
    store_answer(services, &caller, call, None, &asked, &answer).await
}

/// Refuses an answer to a question that is not asked any more.
async fn check_asked(services: &Services, asked: &Asked) -> Result<(), Refusal> {
    check_open(asked)?;
    let id = &asked.message.id;
    if is_over(services, &asked.message).await? {
        end_request(services, id).await?;
        return Err(Refusal::withdrawn(id));
    }
    Ok(())
}

/// `answer_in_dialog`
///
/// The session of the asker reports it, so it counts only for questions that need no login.
pub(super) async fn answer_in_dialog(
    services: &Services,
    caller: &Caller,
    call: CallId,
    report: tools::AnswerInDialog,
) -> Result<Reply, Refusal> {
    let (principal, id) = (&caller.principal, &report.message_id);
    let asked = show(services, principal, id).await?;
    let own = Own::of(services, caller);
    if asked.message.from_agent != caller.agent
        || !own.has(&asked.message, stored_at(&asked.history)).await?
    {
        return Err(Refusal::message_not_found(id));
    }
    let question = asked.message.question.as_deref();
    let question = question.ok_or_else(|| Refusal::message_not_found(id))?;
    if caller.is_person() || question.needs_person || question.needs_verdict() {
        let error = "this question cannot be answered in a dialog of the client";
        return Err(Refusal::new(ErrorCode::Forbidden, error));
    }
    check_open(&asked)?;
    let content = AnswerContent {
        parts: vec![report.part],
        ..AnswerContent::default()
    };
    let answer = Answer {
        by: format!("terminal@{}", caller.host.as_deref().unwrap_or("unknown")),
        via: Via::Dialog,
        parts: question.accept(content)?.parts,
        verdict: None,
        saved: None,
        to_ask_user: asked.is_structured,
    };
    let (person, speaker) = (person(principal), caller.speaker());
    let sent = store_answer(services, &person, call, speaker, &asked, &answer).await?;
    Ok(Reply::Sent(sent))
}

/// `reply`
///
/// The reply of a person to a question with parts answers these.
pub(super) async fn reply(
    services: &Services,
    caller: &Caller,
    id: CallId,
    call: tools::ReplyTo,
) -> Result<Reply, Refusal> {
    if caller.agent == AgentId::human() {
        let reading = begin_read(&caller.principal).await?;
        let kept = services
            .message(&caller.principal, &call.message_id)
            .await?;
        drop(reading);
        let message = kept.map(|kept| kept.message);
        if let Some(question) = message.filter(|message| message.question.is_some()) {
            let sent = answer_in_words(services, caller, id, &question, call.response).await?;
            return Ok(Reply::Sent(sent));
        }
    }
    if let Some(question) = triage::offered(services, caller, &call.message_id).await? {
        return triage::answer(services, caller, id, &question, call.response).await;
    }
    send::reply(services, caller, id, call).await
}

/// Answers a question with the text of a reply. The label of an option chooses that option.
async fn answer_in_words(
    services: &Services,
    caller: &Caller,
    call: CallId,
    message: &Message,
    text: String,
) -> Result<Sent, Refusal> {
    check_number(message, &text)?;
    let content = content_of(message, text);
    give(services, &caller.principal, call, &message.id, content).await
}

/// Refuses a text that is the label of one option and the number of another, by which lists show them.
fn check_number(message: &Message, text: &str) -> Result<(), Refusal> {
    let parts = message
        .question
        .as_deref()
        .map_or(&[][..], |asked| &asked.parts);
    let options = parts.iter().flat_map(|part| &part.options);
    let number = text.trim().parse::<usize>().ok();
    let numbered = number.and_then(|number| options.clone().nth(number.checked_sub(1)?));
    let labelled = labelled(options, text);
    match (numbered, labelled) {
        (Some(numbered), Some(labelled)) if numbered.id != labelled.id => {
            let error = format!(
                "{} is the label of one option and the number of another",
                text.trim()
            );
            Err(
                Refusal::new(ErrorCode::InvalidRequest, error).suggest(format!(
                    "Choose by number: `c3po answer {} --option N`.",
                    message.id
                )),
            )
        }
        _ => Ok(()),
    }
}
