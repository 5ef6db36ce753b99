//! Questions to people, as people see them, and the replies that answer them.

use std::sync::Arc;

use c3po_shared::catalogue::{self as tools, Sent, Tracked};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::message::Message;
use c3po_shared::question::{Answer, AnswerContent, Choice, PartAnswer, Question, Verdict};
use c3po_shared::receipt::{Progress, Receipt, Stage, Step, Via, refused_answer};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::vocabulary::Decision;

use super::receipts::{advance, tracked};
use super::send::{envelope_of_reply, store_reply};
use super::{Caller, Memory, Services, begin, begin_call, begin_read, room_for_texts};
use crate::auth::{Principal, Work};
use crate::store::{Selection, Speaker, StoreError};
use crate::unfinished::Charge;

/// How many bytes of the inbox of people are read at once: other reads wait meanwhile.
const READ_BYTES: usize = 32 << 10;
/// How many such parts of the inbox one page of questions has: with all copies of its answer, that stays small.
const PARTS_LISTED: usize = 4;
/// How many characters of each text a list of questions has.
const LISTED_MAX: usize = 2_000;
/// The longest rules that a client offers in a list of questions, in bytes of JSON. Longer ones are with the question alone.
const LISTED_RULES_MAX: usize = 8 << 10;

/// A question as people see it.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The question. Its message always has parts.
    pub(crate) message: Message,
    /// Whether it was asked with parts, and not as a plain message.
    pub(super) is_structured: bool,
    /// The stages that it has reached.
    pub(crate) history: Vec<Step>,
    /// The reply, if there is one.
    pub(crate) reply: Option<Message>,
}

/// Returns a page of the open questions to people after a position, oldest first, with the beginnings of their texts, and its
/// charge. Each part is read with a place of the principal: others have it between the parts.
///
/// Errors: `RATE_LIMITED` without room for the answer, and those of [`begin_read`].
pub(crate) async fn open(
    services: &Services,
    principal: &Principal,
    after: u64,
) -> Result<(OpenPage, Charge), Refusal> {
    let _page = begin(principal, Work::QuestionPage).await?;
    let charge = room_for_texts(services, principal).await?;
    let mut open = OpenPage {
        questions: Vec::new(),
        next: Some(after),
    };
    for _ in 0..PARTS_LISTED {
        let Some(after) = open.next else { break };
        let part = {
            let _reading = begin_read(principal).await?;
            open_after(services, after).await?
        };
        let brief = part.questions.into_iter().map(with_parts).map(in_brief);
        open.questions.extend(brief);
        open.next = part.next;
    }
    Ok((open, charge))
}

/// Some of the open questions to people.
#[derive(Debug)]
pub(crate) struct OpenPage {
    /// The questions, oldest first.
    pub(crate) questions: Vec<Message>,
    /// The position after which there may be more.
    pub(crate) next: Option<u64>,
}

/// Returns the open questions to people after a position, as they are stored, a few at a time: the inbox of people can be long.
pub(crate) async fn open_after(services: &Services, after: u64) -> Result<OpenPage, StoreError> {
    let selection = Selection {
        after,
        limit: PAGE_MAX,
        bytes: READ_BYTES,
        ..Selection::default()
    };
    let page = services.store.inbox(&AgentId::human(), selection).await?;
    let is_full = selection.is_filled_by(&page);
    let last = page.last().map(|placed| placed.position);
    let messages = page.into_iter().map(|placed| placed.message);
    Ok(OpenPage {
        questions: messages
            .filter(|message| message.requires_response)
            .collect(),
        next: last.filter(|_| is_full),
    })
}

/// Returns a question with the beginnings of its texts.
fn in_brief(mut message: Message) -> Message {
    let cut = |text: &mut String| {
        if let Some((at, _)) = text.char_indices().nth(LISTED_MAX) {
            text.truncate(at);
            text.push('…');
        }
    };
    let texts = [
        &mut message.title,
        &mut message.message,
        &mut message.context,
    ];
    texts.into_iter().flatten().for_each(cut);
    if let Some(question) = &mut message.question {
        question
            .parts
            .iter_mut()
            .map(|part| &mut part.text)
            .for_each(cut);
        if let Some(request) = &mut question.request {
            cut(&mut request.tool);
            cut(&mut request.input);
            request.subagent.iter_mut().for_each(cut);
            let rules = request.suggestions.iter().map(|rule| rule.as_str().len());
            if rules.sum::<usize>() > LISTED_RULES_MAX {
                request.suggestions.clear();
            }
        }
    }
    message
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
    principal: &Arc<Principal>,
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
    advance(services, &person(principal), &progress).await?;
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
        saved: content.saved,
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

/// Returns the answer in words. That of another agent begins with its name, so no reader takes it for a person's. A saved one
/// begins with its name too.
pub(super) fn words_of(asked: &Asked, answer: &Answer) -> String {
    let question = asked.message.question.as_deref();
    let text = question.map_or_else(String::new, |question| in_words(question, answer));
    if answer.is_of_triage() {
        return format!("[{}, not a person] {text}", answer.by);
    }
    match &answer.saved {
        Some(name) => format!("[saved answer {name} of {}] {text}", answer.by),
        None => text,
    }
}

/// Stores the answer to a question as a reply of people, which that speaker gives for them.
pub(super) async fn store_answer(
    services: &Services,
    caller: &Caller,
    call: CallId,
    speaker: Option<Speaker>,
    asked: &Asked,
    answer: &Answer,
) -> Result<Sent, Refusal> {
    let id = &asked.message.id;
    let text = words_of(asked, answer);
    let envelope =
        |reply: MessageId| reply_with(caller, &asked.message, reply, &text, answer, services);
    let stored = store_reply(services, caller, call, speaker, &asked.message, envelope).await;
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

/// Returns a text as the answer to a question. The label of an option chooses that option.
pub(super) fn content_of(message: &Message, text: String) -> AnswerContent {
    let parts = message
        .question
        .as_ref()
        .map_or(&[][..], |asked| &asked.parts);
    let chosen = labelled(parts.iter().flat_map(|part| &part.options), &text);
    let options: Vec<_> = chosen.iter().map(|option| option.id.clone()).collect();
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

/// Returns the option with that label; without one, the only one whose label differs in case alone.
pub(crate) fn labelled<'a>(
    options: impl Iterator<Item = &'a Choice> + Clone,
    text: &str,
) -> Option<&'a Choice> {
    let text = text.trim();
    let exact = options.clone().find(|option| option.label.trim() == text);
    exact.or_else(|| {
        let mut alike = options.filter(|option| option.label.trim().eq_ignore_ascii_case(text));
        alike.next().filter(|_| alike.next().is_none())
    })
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
    refused_answer(id, &asked.history).map_or(Ok(()), Err)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_listed_question_has_the_beginnings_of_its_texts() {
        let long = "ä".repeat(5_000);
        let part = json!({"id": "1", "text": long});
        let message = serde_json::from_value(json!({
            "id": "web::human::0a1b2c3d", "thread_id": "web::human::0a1b2c3d", "kind": "message", "from_agent": "web",
            "to_agent": "human", "message": long, "context": long, "priority": "normal", "requires_response": true,
            "timestamp": "2026-01-15T00:00:00.000Z", "expires_at": "2026-01-22T00:00:00.000Z",
            "question": {"kind": "permission", "parts": [part],
                "request": {"tool": long, "subagent": long, "input": long, "hash": "h", "suggestions": [long]}},
        }));
        let brief = in_brief(message.expect("a message"));
        let question = brief.question.expect("a question");
        let request = question.request.expect("a request");
        for text in [
            brief.message.as_deref(),
            brief.context.as_deref(),
            Some(&*question.parts[0].text),
            Some(&*request.tool),
            Some(&*request.input),
            request.subagent.as_deref(),
        ] {
            let count = text.expect("a text").chars().count();
            assert_eq!(count, LISTED_MAX + 1);
        }
        assert!(request.suggestions.is_empty() && request.hash == "h");
    }
}
