//! The streams of the reply topics: taps on buttons, and answers in words.
//!
//! Every coordinator reads every topic. The id of the call is made of that of the reply, so the store applies it once.

use std::time::Duration;

use c3po_shared::ids::CallId;
use c3po_shared::message::Message;
use c3po_shared::question::AnswerContent;
use c3po_shared::refusal::ErrorCode;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::bounds::WrongReplies;
use super::client::{Ask, ClientError, Lines, open};
use super::codes::{self, Codes};
use super::config::Person;
use super::reply::{Line, Reply, Tap, in_words, takes_words};
use super::{ANSWERS, Notifier};
use crate::clock;
use crate::request::{answer_by_code, asked, open_after, with_parts};

/// The namespace of the ids of calls: a constant random UUID.
const CALLS: Uuid = Uuid::from_u128(0x6e1f_37a2_90bd_4c55_8f04_1b7a_5cc3_0004);
/// The shortest and the longest pause before a stream is opened again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// A stream that lasted this long was stable: then the pauses begin again with the shortest.
const STABLE: Duration = Duration::from_secs(10);

/// The longest id of a message: those of ntfy have 12 characters.
const ID_MAX: usize = 64;

/// Reads a person's reply topic for ever.
pub(super) async fn follow(notifier: &Notifier, person: &Person) {
    let Some(reply) = person.reply.as_ref().filter(|_| person.token.is_some()) else {
        return std::future::pending().await;
    };
    let mut wrong = WrongReplies::since(clock::now().millis() / 1000);
    let (mut since, mut pause) = ("all".to_owned(), PAUSE.0);
    loop {
        let path = format!("/{}/json?since={since}", reply.topic);
        let lines = open(&person.server, Ask::get(&path, person.token.as_ref())).await;
        notifier.record(person, ANSWERS, &lines);
        let opened = Instant::now();
        if let Ok(mut lines) = lines {
            let read = read(notifier, person, (&mut lines, &mut wrong, &mut since)).await;
            notifier.record(person, ANSWERS, &read);
        }
        if opened.elapsed() >= STABLE {
            pause = PAUSE.0;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Applies the replies of one stream until it ends. `since` becomes the id of the latest one.
async fn read(
    notifier: &Notifier,
    person: &Person,
    (lines, wrong, since): (&mut Lines, &mut WrongReplies, &mut String),
) -> Result<(), ClientError> {
    while let Some(text) = lines.next().await? {
        let Ok(line) = serde_json::from_str::<Line>(&text) else {
            continue;
        };
        if line.event == "message" && is_id(&line.id) {
            apply(notifier, person, wrong, &line).await?;
            *since = line.id;
        }
    }
    Ok(())
}

/// Returns whether the text can be the id of a message: it becomes a part of a path.
fn is_id(text: &str) -> bool {
    (1..=ID_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Applies one reply. Wrong ones are counted.
///
/// Errors: the store is unavailable, so the reply must be read again.
async fn apply(
    notifier: &Notifier,
    person: &Person,
    wrong: &mut WrongReplies,
    line: &Line,
) -> Result<(), ClientError> {
    let reply = Reply::parse(&line.message);
    // The code of a button is too long to be guessed.
    let is_tap = matches!(reply, Reply::Tap(_));
    if !is_tap && wrong.ignores(line.time) {
        return Ok(());
    }
    let codes = notifier.codes(person).await.map_err(unavailable)?;
    let Some(codes) = codes else {
        return Ok(());
    };
    let found = match reply {
        Reply::Tap(tap) => tapped(notifier, person, &codes, &tap).await?,
        Reply::Words { code, text } => match in_own_words(notifier, &codes, &code, &text).await? {
            Found::Wrong if wrong.was_used(&code) => Found::Late,
            found => {
                if matches!(found, Found::Answer(..)) {
                    wrong.note_used(code);
                }
                found
            }
        },
        Reply::Test => return Ok(()),
        Reply::Unreadable => Found::Wrong,
    };
    let (question, content) = match found {
        Found::Answer(question, content) => (question, content),
        Found::Late => return Ok(()),
        Found::Wrong => {
            if !is_tap && wrong.count(line.time) {
                let name = &person.name;
                tracing::warn!(
                    "answers of {name} in words by ntfy are ignored for a minute: too many wrong codes"
                );
            }
            return Ok(());
        }
    };
    answer(notifier, person, line, &question, content).await
}

/// Answers the question, as the person of that reply.
///
/// Errors: the store is unavailable.
async fn answer(
    notifier: &Notifier,
    person: &Person,
    line: &Line,
    question: &Message,
    content: AnswerContent,
) -> Result<(), ClientError> {
    let call = format!("{}/{}", person.server, line.id);
    let call = CallId(Uuid::new_v5(&CALLS, call.as_bytes()));
    let answered = answer_by_code(
        &notifier.services,
        &person.name,
        call,
        &question.id,
        content,
    )
    .await;
    match answered {
        Ok(_) => {
            tracing::info!("{} answered {} by ntfy", person.name, question.id);
            Ok(())
        }
        Err(refusal) if refusal.code == ErrorCode::StoreUnavailable => Err(unavailable(refusal)),
        Err(refusal) => {
            tracing::debug!(
                "an answer of {} by ntfy was not applied: {refusal}",
                person.name
            );
            Ok(())
        }
    }
}

/// The meaning of a reply.
enum Found {
    /// The answer to a question.
    Answer(Box<Message>, AnswerContent),
    /// The code was right, and the question is gone.
    Late,
    /// There is no such code.
    Wrong,
}

async fn tapped(
    notifier: &Notifier,
    person: &Person,
    codes: &Codes,
    tap: &Tap,
) -> Result<Found, ClientError> {
    let Some(asked) = asked(&notifier.services, &tap.question)
        .await
        .map_err(unavailable)?
    else {
        return Ok(Found::Late);
    };
    if !tap.is_right(codes, &asked.message) {
        return Ok(Found::Wrong);
    }
    let standing = notifier.standing(person).await?;
    let frame = notifier.frame(person, standing, Some(codes));
    let has_button = frame
        .buttons(&asked.message)
        .iter()
        .any(|(id, _)| *id == tap.option);
    let question = asked.message.question.as_deref().filter(|_| has_button);
    let content = question.and_then(|question| tap.content(question));
    Ok(match content {
        Some(content) => Found::Answer(Box::new(asked.message), content),
        None => Found::Late,
    })
}

async fn in_own_words(
    notifier: &Notifier,
    codes: &Codes,
    code: &str,
    text: &str,
) -> Result<Found, ClientError> {
    let is_meant =
        |message: &Message| takes_words(message) && codes::same(&codes.typed(message), code);
    let mut next = Some(0);
    while let Some(after) = next {
        let page = open_after(&notifier.services, after).await;
        let page = page.map_err(unavailable)?;
        let mut questions = page.questions.into_iter().map(with_parts);
        let meant = questions.find(is_meant);
        if let Some(question) = meant {
            let part = question
                .question
                .as_deref()
                .and_then(|question| question.parts.first());
            let content = part.map(|part| in_words(part, text));
            return Ok(content.map_or(Found::Wrong, |content| {
                Found::Answer(Box::new(question), content)
            }));
        }
        next = page.next;
    }
    Ok(Found::Wrong)
}

fn unavailable(error: impl std::fmt::Display) -> ClientError {
    ClientError::Unreachable(format!("an answer waits for the store: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_word() {
        assert!(is_id("hwQ2YpKdmg1B"));
        for text in ["", "a b", "a&since=all", "a\r\n", "é"] {
            assert!(!is_id(text), "{text}");
        }
        assert!(!is_id(&"a".repeat(ID_MAX + 1)));
    }
}
