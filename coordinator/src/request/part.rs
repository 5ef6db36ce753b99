//! The part of a long message that a result has room for, and by which call the rest of it is read.
//!
//! The characters of a message are those of its text, followed by those of its context.

use std::str::FromStr;

use c3po_shared::message::Message;

use crate::store::Mark;

/// What a message may grow by on its way to the reader: the mark that it is repeated, which its host may set.
const GROWTH: usize = r#","repeated":true"#.len();
/// What the name of a text takes that may be empty.
const TEXT_NAME: usize = r#""response":"","#.len();

/// Where a message stands, and so by which call the rest of it is read.
#[derive(Debug, Clone)]
pub(super) enum ReadFrom {
    /// At that position of the inbox.
    Inbox(u64),
    /// There in its thread.
    Thread(Mark),
}

impl ReadFrom {
    /// Returns the cursor of what stands behind the message.
    pub(super) fn behind(&self) -> String {
        match self {
            Self::Inbox(position) => position.to_string(),
            Self::Thread(mark) => mark.to_string(),
        }
    }

    /// Returns the cursor of the message from that character on.
    fn within(&self, from: usize) -> String {
        format!("{}+{from}", self.behind())
    }

    /// Returns the call that reads the message from that character on, in words.
    fn call(&self, from: usize) -> String {
        let cursor = self.within(from);
        match self {
            Self::Inbox(_) => format!("get_messages and cursor \"{cursor}\""),
            Self::Thread(mark) => format!("get_thread, message_id \"{}\" and cursor \"{cursor}\"", mark.id),
        }
    }
}

/// Where a page begins: behind what stands there, or within it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cursor<P> {
    pub(super) at: P,
    /// From which character of the message that stands there; `None` for what stands behind it.
    pub(super) from: Option<usize>,
}

impl<P: FromStr> FromStr for Cursor<P> {
    type Err = P::Err;

    fn from_str(text: &str) -> Result<Self, P::Err> {
        let within = text.rsplit_once('+').and_then(|(at, from)| Some((at, from.parse().ok()?)));
        Ok(match within {
            Some((at, from)) => Self { at: at.parse()?, from: Some(from) },
            None => Self { at: text.parse()?, from: None },
        })
    }
}

/// Returns how many characters a message has.
pub(super) fn length(message: &Message) -> usize {
    message.text().chars().count() + message.context.as_deref().map_or(0, |context| context.chars().count())
}

/// Returns how many bytes a message takes in a result.
pub(super) fn size(message: &Message) -> usize {
    serde_json::to_vec(message).map_or(0, |json| json.len()) + GROWTH
}

/// Returns a message from that character on, as far as there is room. Where that is not to its end, it is marked by its
/// `rest` and at the end of its text.
pub(super) fn part(message: Message, from: usize, room: usize, place: &ReadFrom) -> Message {
    if from == 0 && size(&message) <= room {
        return message;
    }
    let (text, context) = behind(message.text(), message.context.as_deref().unwrap_or_default(), from);
    let all = with_texts(&message, text, context);
    if size(&all) <= room {
        return all;
    }
    let total = length(&message);
    let mark = |read| format!("\n[cut: {read} of {total} characters; read on with {}]", place.call(read));
    // Nowhere are the marks longer than at the end.
    let longest = Message { rest: Some(place.within(total)), ..with_texts(&message, "", &mark(total)) };
    let room = room.saturating_sub(size(&longest) + TEXT_NAME);
    let (kept, left) = fitting(text, room);
    let kept_context = if kept.len() == text.len() { fitting(context, left).0 } else { "" };
    let read = from + kept.chars().count() + kept_context.chars().count();
    let rest = Some(place.within(read));
    if kept_context.is_empty() {
        Message { rest, ..with_texts(&message, &format!("{kept}{}", mark(read)), "") }
    } else {
        Message { rest, ..with_texts(&message, kept, &format!("{kept_context}{}", mark(read))) }
    }
}

/// Returns what stands behind so many characters of a text and its context.
fn behind<'a>(text: &'a str, context: &'a str, from: usize) -> (&'a str, &'a str) {
    let count = text.chars().count();
    (skip(text, from), skip(context, from.saturating_sub(count)))
}

fn skip(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or("", |(at, _)| &text[at..])
}

/// Returns as much of the beginning of a text as has room in JSON, and what is left of the room.
fn fitting(text: &str, room: usize) -> (&str, usize) {
    let mut left = room;
    for (at, c) in text.char_indices() {
        let Some(less) = left.checked_sub(json_size(c)) else { return (&text[..at], left) };
        left = less;
    }
    (text, left)
}

/// Returns how many bytes a character takes within a text in JSON.
fn json_size(c: char) -> usize {
    match c {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..'\u{20}' => 6,
        c => c.len_utf8(),
    }
}

/// Returns the message with those texts in place of its own. An empty one is left out.
fn with_texts(message: &Message, text: &str, context: &str) -> Message {
    let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let (said, response) = match message.response {
        Some(_) => (None, filled(text)),
        None => (filled(text), None),
    };
    Message { message: said, response, context: filled(context), ..message.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::page::tests::message;
    use c3po_shared::ids::{AgentId, MessageId};
    use c3po_shared::time::Timestamp;

    const ROOM: usize = 2_000;

    fn mark() -> Mark {
        Mark { at: Timestamp::from_millis(1), id: MessageId::new(&AgentId::human(), &AgentId::all(), 1) }
    }

    /// Reads a message to its end in parts, each of which fits and names the next. Returns its text and its context.
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
            assert!(from_here > begun && cursor.at == place.behind(), "{rest} behind {begun}");
            from = from_here;
            let mark = format!("\n[cut: {from} of {} characters; read on with {}]", length(whole), place.call(from));
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
            for part in ["x", "é", "\u{4e00}", "\u{1f6f0}", "\"\\", "a\n", "\u{1}", "\u{7f}\u{2028}", "e\u{301}"] {
                let long = &*part.repeat(5_000);
                for (text, context) in [(long, ""), ("x", long), (long, long), (long, "x"), ("", long)] {
                    let mut whole = message(1, text);
                    whole.context = Some(context.to_owned());
                    assert_eq!(joined(&whole, &place), (text.to_owned(), context.to_owned()), "{part:?}");
                    (whole.response, whole.message, whole.context) = (whole.message.take(), None, None);
                    assert_eq!(joined(&whole, &place), (text.to_owned(), String::new()), "{part:?}");
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
            assert_eq!((part == whole, part.rest.is_none()), (fits, fits), "{length}");
        }
    }

    #[test]
    fn a_cut_says_how_much_there_is_and_how_to_read_on() {
        let check = |place: ReadFrom, expected: &str| {
            let part = part(message(1, &"x".repeat(50_000)), 0, 24_000, &place);
            let read = part.text().find('\n').expect("a line of its own");
            assert_eq!(part.text()[read + 1..], expected.replace("READ", &read.to_string()));
        };
        check(ReadFrom::Inbox(17), "[cut: READ of 50000 characters; read on with get_messages and cursor \"17+READ\"]");
        check(
            ReadFrom::Thread(mark()),
            "[cut: READ of 50000 characters; read on with get_thread, message_id \"human::all::00000001\" \
             and cursor \"1.human::all::00000001+READ\"]",
        );
    }

    #[test]
    fn a_cursor_is_behind_a_place_or_within_it() {
        let check = |text: &str, expected: Option<(u64, Option<usize>)>| {
            let read = text.parse::<Cursor<u64>>().ok().map(|cursor| (cursor.at, cursor.from));
            assert_eq!(read, expected, "{text}");
        };
        check("17", Some((17, None)));
        check("17+24000", Some((17, Some(24_000))));
        check("17+0", Some((17, Some(0))));
        for text in ["", "x", "17+x", "17+", "+", "17+1+2", "17+-1", "17+99999999999999999999999"] {
            check(text, None);
        }
    }
}
