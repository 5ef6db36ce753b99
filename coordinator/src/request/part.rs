//! Splits a long message to fit a result, and names the call that reads the rest.
//!
//! The characters of a message are those of its text followed by those of its context.

use std::mem;
use std::str::FromStr;

use c3po_shared::message::Message;

use crate::store::Mark;

/// The possible growth of a message after this check: its host may mark it as repeated.
const GROWTH: usize = r#","repeated":true"#.len();
/// The size of the name of a text that may be empty.
const TEXT_NAME: usize = r#""response":"","#.len();

/// The place of a message, which determines the call that reads its rest.
#[derive(Debug, Clone)]
pub(super) enum ReadFrom {
    /// A position in the inbox.
    Inbox(u64),
    /// A mark in its thread.
    Thread(Mark),
}

impl ReadFrom {
    /// Returns the cursor after the message.
    pub(super) fn behind(&self) -> String {
        match self {
            Self::Inbox(position) => position.to_string(),
            Self::Thread(mark) => mark.to_string(),
        }
    }

    /// Returns the cursor of the message starting at that character.
    fn within(&self, from: usize) -> String {
        format!("{}+{from}", self.behind())
    }

    /// Returns a description of the call that reads the message starting at that character.
    fn call(&self, from: usize) -> String {
        let cursor = self.within(from);
        match self {
            Self::Inbox(_) => format!("get_messages and cursor \"{cursor}\""),
            Self::Thread(mark) => format!(
                "get_thread, message_id \"{}\" and cursor \"{cursor}\"",
                mark.id
            ),
        }
    }
}

/// The start of a page: after a message, or within it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cursor<P> {
    pub(super) at: P,
    /// The character at which to start within the message; `None` to start after it.
    pub(super) from: Option<usize>,
}

impl<P: FromStr> FromStr for Cursor<P> {
    type Err = P::Err;

    fn from_str(text: &str) -> Result<Self, P::Err> {
        let within = text
            .rsplit_once('+')
            .and_then(|(at, from)| Some((at, from.parse().ok()?)));
        Ok(match within {
            Some((at, from)) => Self {
                at: at.parse()?,
                from: Some(from),
            },
            None => Self {
                at: text.parse()?,
                from: None,
            },
        })
    }
}

/// Returns the length of a message in characters.
pub(super) fn length(message: &Message) -> usize {
    message.text().chars().count()
        + message
            .context
            .as_deref()
            .map_or(0, |context| context.chars().count())
}

/// Returns the size of a message in a result, in bytes.
pub(super) fn size(message: &Message) -> usize {
    serde_json::to_vec(message).map_or(0, |json| json.len()) + GROWTH
}

/// Returns the part of a message that starts at that character and fits. An incomplete part is marked by its `rest` and at
/// the end of its text.
pub(super) fn part(mut message: Message, from: usize, room: usize, place: &ReadFrom) -> Message {
    if from == 0
        && texts_fit(message.text(), message.context.as_deref(), room)
        && size(&message) <= room
    {
        return message;
    }
    let total = length(&message);
    // The rest of the message is copied often, and the texts may be long.
    let about = message.context.take().unwrap_or_default();
    let said = match &mut message.response {
        Some(response) => mem::take(response),
        None => message.message.take().unwrap_or_default(),
    };
    let (text, context) = behind(&said, &about, from);
    if texts_fit(text, Some(context), room) {
        let all = with_texts(&message, text, context);
        if size(&all) <= room {
            return all;
        }
    }
    let mark = |read| {
        format!(
            "\n[cut: {read} of {total} characters; read on with {}]",
            place.call(read)
        )
    };
    // The marks are longest at the end of the message.
    let longest = Message {
        rest: Some(place.within(total)),
        ..with_texts(&message, "", &mark(total))
    };
    let room = room.saturating_sub(size(&longest) + TEXT_NAME);
    let (kept, left) = fitting(text, room);
    let kept_context = if kept.len() == text.len() {
        fitting(context, left).0
    } else {
        ""
    };
    let read = from + kept.chars().count() + kept_context.chars().count();
    let rest = Some(place.within(read));
    if kept_context.is_empty() {
        Message {
            rest,
            ..with_texts(&message, &format!("{kept}{}", mark(read)), "")
        }
    } else {
        Message {
            rest,
            ..with_texts(&message, kept, &format!("{kept_context}{}", mark(read)))
        }
    }
}

/// Returns whether texts may fit, before they are written as JSON, which makes them no shorter.
fn texts_fit(text: &str, context: Option<&str>, room: usize) -> bool {
    text.len() + context.map_or(0, str::len) <= room
}

/// Returns the text and context after the first `from` characters.
fn behind<'a>(text: &'a str, context: &'a str, from: usize) -> (&'a str, &'a str) {
    let count = text.chars().count();
    (skip(text, from), skip(context, from.saturating_sub(count)))
}

fn skip(text: &str, count: usize) -> &str {
    text.char_indices()
        .nth(count)
        .map_or("", |(at, _)| &text[at..])
}

/// Returns the longest prefix of a text that fits as JSON, and the remaining room.
fn fitting(text: &str, room: usize) -> (&str, usize) {
    let mut left = room;
    for (at, c) in text.char_indices() {
        let Some(less) = left.checked_sub(json_size(c)) else {
            return (&text[..at], left);
        };
        left = less;
    }
    (text, left)
}

/// Returns the size of a character within a JSON text, in bytes.
pub(super) fn json_size(c: char) -> usize {
    match c {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..'\u{20}' => 6,
        c => c.len_utf8(),
    }
}

/// Returns the message with these texts. An empty text is left out.
fn with_texts(message: &Message, text: &str, context: &str) -> Message {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (said, response) = match message.response {
        Some(_) => (None, filled(text)),
        None => (filled(text), None),
    };
    Message {
        message: said,
        response,
        context: filled(context),
        ..message.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::page::tests::message;
    use c3po_shared::ids::{AgentId, MessageId};
    use c3po_shared::time::Timestamp;

    const ROOM: usize = 2_000;

    fn mark() -> Mark {
        Mark {
            at: Timestamp::from_millis(1),
            id: MessageId::new(&AgentId::human(), &AgentId::all(), 1),
        }
    }

    /// Reads a message to its end in parts, each of which fits and names the next. Returns its joined text and context.
    fn joined(whole: &Message, place: &ReadFrom) -> (String, String) {
        let (mut text, mut context, mut from) = (String::new(), String::new(), 0);
        for _ in 0..10_000 {
            let part = part(whole.clone(), from, ROOM, place);
            assert!(size(&part) <= ROOM, "{} bytes", size(&part));
            let Some(rest) = &part.rest else {
                text += part.text();
                context += part.context.as_deref().unwrap_or_default();
                return (text, context);
            };
            let cursor: Cursor<String> = rest.parse().expect("a cursor");
            let (begun, from_here) = (from, cursor.from.expect("a place within"));
            assert!(
                from_here > begun && cursor.at == place.behind(),
                "{rest} behind {begun}"
            );
            from = from_here;
            let mark = format!(
                "\n[cut: {from} of {} characters; read on with {}]",
                length(whole),
                place.call(from)
            );
            let unmarked = |text: &str| text.strip_suffix(&mark).map(str::to_owned);
            match &part.context {
                Some(last) => {
                    text += part.text();
                    context += &unmarked(last).expect("the mark");
                }
                None => text += &unmarked(part.text()).expect("the mark"),
            }
            assert_eq!(text.chars().count() + context.chars().count(), from);
        }
        panic!("it does not end");
    }

    #[test]
    fn the_parts_of_a_message_are_the_whole_of_it() {
        for place in [ReadFrom::Inbox(u64::MAX), ReadFrom::Thread(mark())] {
            for part in [
                "x",
                "é",
                "\u{4e00}",
                "\u{1f6f0}",
                "\"\\",
                "a\n",
                "\u{1}",
                "\u{7f}\u{2028}",
                "e\u{301}",
            ] {
                let long = &*part.repeat(5_000);
                for (text, context) in [
                    (long, ""),
                    ("x", long),
                    (long, long),
                    (long, "x"),
                    ("", long),
                ] {
                    let mut whole = message(1, text);
                    whole.context = Some(context.to_owned());
                    assert_eq!(
                        joined(&whole, &place),
                        (text.to_owned(), context.to_owned()),
                        "{part:?}"
                    );
                    (whole.response, whole.message, whole.context) =
                        (whole.message.take(), None, None);
                    assert_eq!(
                        joined(&whole, &place),
                        (text.to_owned(), String::new()),
                        "{part:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_message_that_fits_is_not_cut() {
        for length in 0..ROOM {
            let whole = message(1, &"x".repeat(length));
            let part = part(whole.clone(), 0, ROOM, &ReadFrom::Inbox(1));
            let fits = size(&whole) <= ROOM;
            assert_eq!(
                (part == whole, part.rest.is_none()),
                (fits, fits),
                "{length}"
            );
        }
    }

    #[test]
    fn a_cut_names_the_whole_length_and_the_call_for_the_rest() {
        let check = |place: ReadFrom, expected: &str| {
            let part = part(message(1, &"x".repeat(50_000)), 0, 24_000, &place);
            let read = part.text().find('\n').expect("a line of its own");
            assert_eq!(
                part.text()[read + 1..],
                expected.replace("READ", &read.to_string())
            );
        };
        check(
            ReadFrom::Inbox(17),
            "[cut: READ of 50000 characters; read on with get_messages and cursor \"17+READ\"]",
        );
        check(
            ReadFrom::Thread(mark()),
            "[cut: READ of 50000 characters; read on with get_thread, message_id \"human::all::00000001\" \
             and cursor \"1.human::all::00000001+READ\"]",
        );
    }

    #[test]
    fn a_cursor_is_behind_a_place_or_within_it() {
        let check = |text: &str, expected: Option<(u64, Option<usize>)>| {
            let read = text
                .parse::<Cursor<u64>>()
                .ok()
                .map(|cursor| (cursor.at, cursor.from));
            assert_eq!(read, expected, "{text}");
        };
        check("17", Some((17, None)));
        check("17+24000", Some((17, Some(24_000))));
        check("17+0", Some((17, Some(0))));
        for text in [
            "",
            "x",
            "17+x",
            "17+",
            "+",
            "17+1+2",
            "17+-1",
            "17+99999999999999999999999",
        ] {
            check(text, None);
        }
    }
}
