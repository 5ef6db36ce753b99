//! Questions to people, as people see them, and their answers and verdicts.

use std::sync::Arc;

use c3po_shared::catalogue::{self as tools, Reply, Sent, Tracked};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::message::Message;
use c3po_shared::question::{Answer, AnswerContent, PartAnswer, Question, Verdict};
use c3po_shared::receipt::{Progress, Receipt, Stage, Step, Via, furthest};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::vocabulary::Decision;

use super::client_request::{end_request, is_over};
use super::receipts::tracked;
use super::send::{self, envelope_of_reply, store_reply};
use super::{Caller, Memory, Services, begin_call, begin_read, check_right, triage};
use crate::auth::{Principal, Right};
use crate::store::Selection;

/// A question as people see it.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The question. Its message always has parts.
    pub(crate) message: Message,
    /// Whether it was asked with parts, and not as a plain message.
    is_structured: bool,
    /// The stages that it has reached.
    pub(crate) history: Vec<Step>,
    /// The reply, if there is one.
    pub(crate) reply: Option<Message>,
}

/// Returns the open questions to people, oldest first. Errors: as for [`begin_read`].
pub(crate) async fn open(
    services: &Services,
    principal: &Principal,
) -> Result<Vec<Message>, Refusal> {
    let _reading = begin_read(principal).await?;
    let selection = Selection {
        limit: PAGE_MAX,
        ..Selection::default()
    };
    let placed = services.store.inbox(&AgentId::human(), selection).await?;
    let messages = placed.into_iter().map(|placed| placed.message);
    Ok(messages
        .filter(|message| message.requires_response)
        .map(with_parts)
        .collect())
}

/// Returns one question to people.
///
/// Errors: `MESSAGE_NOT_FOUND`, and those of [`begin_read`].
pub(crate) async fn show(
    services: &Services,
    principal: &Principal,
    id: &MessageId,
) -> Result<Asked, Refusal> {
    let _reading = begin_read(principal).await?;
    let asked = asked(services, id).await?;
    asked.ok_or_else(|| Refusal::message_not_found(id))
}

/// Returns one question to people, or `None` if there is no such question.
pub(crate) async fn asked(services: &Services, id: &MessageId) -> Result<Option<Asked>, Refusal> {
    let kept = services.store.message(id).await?;
    let is_question = |message: &Message| message.to_agent.is_human() && message.requires_response;
    let Some(kept) = kept.filter(|kept| is_question(&kept.message)) else {
        return Ok(None);
    };
    let reply = match &kept.reply {
        Some(reply) => services
            .store
            .message(reply)
            .await?
            .map(|kept| kept.message),
        None => None,
    };
    Ok(Some(Asked {
        is_structured: kept.message.question.is_some(),
        message: with_parts(kept.message),
        history: kept.history,
        reply,
    }))
}

/// Records that a question was displayed to a person (`in_session`), or that a person acted on it (`seen`, which proves the
/// other). Returns its receipt.
///
/// Errors: `INVALID_REQUEST` for another stage or way, `MESSAGE_NOT_FOUND`, and those of the store.
pub(crate) async fn record_shown(
    services: &Services,
    principal: &Principal,
    id: &MessageId,
    stage: Stage,
    via: Via,
) -> Result<Tracked, Refusal> {
    if !matches!(stage, Stage::InSession | Stage::Seen) || via != Via::Page {
        let error = "a page reports the stages in_session and seen, via page";
        return Err(Refusal::invalid(error));
    }
    show(services, principal, id).await?;
    let progress = Progress {
        message_ids: vec![id.clone()],
        stage: Stage::InSession,
        via,
        seen_via: (stage == Stage::Seen).then_some(via),
        context: 0,
    };
    let _place = begin_call(principal).await?;
    let human = AgentId::human();
    services.store.advance(&human, None, &progress).await?;
    let kept = services.store.message(id).await?;
    kept.map(tracked)
        .ok_or_else(|| Refusal::message_not_found(id))
}

/// Adds the part of a question that is a plain message.
pub(crate) fn with_parts(mut message: Message) -> Message {
    if message.question.is_none() {
        message.question = Some(Box::new(Question::ask(message.text(), &[])));
    }
    message
}

/// Answers a question for people, or gives a verdict. The first answer wins.
///
/// Errors: `MESSAGE_NOT_FOUND`, `FORBIDDEN`, `INVALID_REQUEST`, `ALREADY_ANSWERED` with `by`, `via` and `at`, `WITHDRAWN`, and
/// those of the store.
pub(crate) async fn answer(
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
        return Err(Refusal::new(ErrorCode::Forbidden, error)
            .suggest("Log in: a link is made by `c3po-coordinator login NAME`."));
    }
    let by = principal.answers_as().unwrap_or_default();
    // The same call again gets its stored reply.
    let own = MessageId::of_call(&AgentId::human(), &asked.message.from_agent, call, 0);
    if asked.reply.as_ref().is_none_or(|reply| reply.id != own) {
        let login = principal.login_of(&AgentId::human()).map(str::to_owned);
        if let Some(sent) = triage::correct(services, by, login, &asked, content.clone()).await? {
            return Ok(sent);
        }
        check_asked(services, &asked).await?;
    }
    let answer = answer_of(&asked, by, content)?;
    store_answer(services, &person(principal), call, &asked, &answer).await
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
    if let Some(sent) = triage::correct(services, name, None, &asked, content.clone()).await? {
        return Ok(sent);
    }
    check_asked(services, &asked).await?;
    let answer = answer_of(&asked, name, content)?;
    let caller = person(&Arc::new(Principal::local()));
    store_answer(services, &caller, call, &asked, &answer).await
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

/// Returns the answer of that person, if it fits the question.
pub(super) fn answer_of(
    asked: &Asked,
    by: &str,
    content: AnswerContent,
) -> Result<Answer, Refusal> {
    let question = asked.message.question.as_deref();
    let question = question.ok_or_else(|| Refusal::message_not_found(&asked.message.id))?;
    let content = question.accept(content)?;
    let answer = Answer {
        by: by.to_owned(),
        via: content.via.unwrap_or(Via::Rest),
        parts: content.parts,
        verdict: content.verdict,
        to_ask_user: asked.is_structured && !question.needs_verdict(),
    };
    Ok(answer)
}

/// Returns the answer of that person, and its words.
pub(super) fn worded(
    asked: &Asked,
    by: &str,
    content: AnswerContent,
) -> Result<(Answer, String), Refusal> {
    let answer = answer_of(asked, by, content)?;
    let text = words_of(asked, &answer);
    Ok((answer, text))
}

/// Returns the answer in words. That of another agent begins with its name, so no reader takes it for a person's.
fn words_of(asked: &Asked, answer: &Answer) -> String {
    let question = asked.message.question.as_deref();
    let text = question.map_or_else(String::new, |question| in_words(question, answer));
    if answer.is_of_triage() {
        return format!("[{}, not a person] {text}", answer.by);
    }
    text
}

/// Stores the answer to a question as a reply of people.
pub(super) async fn store_answer(
    services: &Services,
    caller: &Caller,
    call: CallId,
    asked: &Asked,
    answer: &Answer,
) -> Result<Sent, Refusal> {
    let id = &asked.message.id;
    let text = words_of(asked, answer);
    let envelope =
        |reply: MessageId| reply_with(caller, &asked.message, reply, &text, answer, services);
    let stored = store_reply(services, caller, call, &asked.message, envelope).await;
    let (message, receipt): (Message, Receipt) = match stored {
        Ok(accepted) => accepted,
        Err(refusal) if refusal.code == ErrorCode::AlreadyAnswered => {
            // It was answered a moment ago.
            if let Some(asked) = self::asked(services, id).await? {
                check_open(&asked)?;
            }
            return Err(refusal);
        }
        Err(refusal) => return Err(refusal),
    };
    Ok(Sent { message, receipt })
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
    if asked.message.from_agent != caller.agent {
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
        to_ask_user: asked.is_structured,
    };
    let sent = store_answer(services, &person(principal), call, &asked, &answer).await?;
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
        let kept = services.store.message(&call.message_id).await?;
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
    let content = content_of(message, text);
    answer(services, &caller.principal, call, &message.id, content).await
}

/// Returns a text as the answer to a question. The label of an option chooses that option.
pub(super) fn content_of(message: &Message, text: String) -> AnswerContent {
    let parts = message
        .question
        .as_ref()
        .map_or(&[][..], |asked| &asked.parts);
    let options = parts.iter().flat_map(|part| &part.options);
    let chosen = options
        .filter(|option| option.label.eq_ignore_ascii_case(text.trim()))
        .map(|option| option.id.clone());
    let options: Vec<_> = chosen.take(1).collect();
    let part = PartAnswer {
        text: options.is_empty().then_some(text),
        options,
        ..PartAnswer::default()
    };
    AnswerContent {
        parts: vec![part],
        via: Some(Via::Reply),
        ..AnswerContent::default()
    }
}

/// Refuses an answer to a question that is not open any more.
pub(super) fn check_open(asked: &Asked) -> Result<(), Refusal> {
    let id = &asked.message.id;
    if let Some(reply) = &asked.reply {
        let refusal =
            Refusal::already_answered(id, &reply.id).detail("at", reply.timestamp.to_string());
        let Some(answer) = &reply.answer else {
            return Err(refusal.detail("by", reply.from_agent.as_str()));
        };
        return Err(refusal
            .detail("by", answer.by.as_str())
            .detail("via", answer.via.as_str()));
    }
    match furthest(&asked.history) {
        Stage::Withdrawn | Stage::Expired => Err(Refusal::withdrawn(id)),
        _ => Ok(()),
    }
}

pub(super) fn person(principal: &Arc<Principal>) -> Caller {
    Caller {
        agent: AgentId::human(),
        principal: Arc::clone(principal),
        host: None,
        tenure: None,
        dead: Arc::default(),
        renamable: false,
        memory: Arc::new(Memory::default()),
    }
}

/// Returns the answer as the asker reads it.
fn in_words(question: &Question, answer: &Answer) -> String {
    let decision = answer.verdict.as_ref().map(|verdict| match verdict {
        Verdict {
            decision: Decision::Deny,
            text: Some(text),
            ..
        } => format!("deny: {text}"),
        verdict => verdict.decision.to_string(),
    });
    let parts = answer.parts.iter().filter_map(|one| {
        let part = question.parts.iter().find(|part| part.id == one.id)?;
        Some(part.in_words(one))
    });
    decision
        .into_iter()
        .chain(parts)
        .collect::<Vec<_>>()
        .join("\n")
}

fn reply_with(
    caller: &Caller,
    question: &Message,
    id: MessageId,
    text: &str,
    answer: &Answer,
    services: &Services,
) -> Message {
    let call = tools::ReplyTo {
        message_id: question.id.clone(),
        response: text.to_owned(),
        status: None,
        requires_response: None,
        queue_if_down: None,
    };
    Message {
        // A verdict goes to the client that asked, not to its model.
        awaited: answer.verdict.is_none(),
        answer: Some(Box::new(answer.clone())),
        ..envelope_of_reply(caller, question, &call, id, services.message_life)
    }
}
