//! Pages that no client must truncate, limited in messages and bytes. Longer messages are split.

use std::str::FromStr;

use c3po_shared::limits::PAGE_BYTES;
use c3po_shared::message::Message;
use c3po_shared::refusal::Refusal;

use super::Caller;
use super::part::{Cursor, ReadFrom, length, part, size};

/// The overhead of a page in bytes, without its messages. The longest part is the cursor of a thread: a time, an id with the
/// names of two agents, and a number of characters.
pub(super) const PAGE_FRAME: usize = 250;

/// A page under construction.
#[derive(Debug)]
pub(super) struct Page {
    messages: Vec<Message>,
    limit: usize,
    size: usize,
    /// Whether a message that is longer than a page is returned whole.
    is_whole: bool,
    /// The place of the last message.
    last: Option<ReadFrom>,
    /// The cursor of the next page, once this one is complete.
    next: Option<String>,
}

impl Page {
    /// Begins a page with at most `limit` messages for that reader.
    pub(super) fn of(caller: &Caller, limit: usize) -> Self {
        Self {
            is_whole: caller.is_person(),
            ..Self::new(limit)
        }
    }

    fn new(limit: usize) -> Self {
        Self {
            messages: Vec::new(),
            limit,
            size: PAGE_FRAME,
            is_whole: false,
            last: None,
            next: None,
        }
    }

    /// Adds the message at that place, starting at character `from`. Returns whether the page continues after it.
    ///
    /// A message that is longer than a page must be first on its page. Its part that fits is added, or, for a person, all of
    /// it.
    pub(super) fn add(&mut self, message: Message, place: ReadFrom, from: usize) -> bool {
        let is_first = self.messages.is_empty();
        let room = if self.is_whole {
            usize::MAX
        } else {
            self.room()
        };
        let message = if is_first {
            part(message, from, room, &place)
        } else {
            message
        };
        let size = size(&message) + 1;
        if !is_first && (self.free() == 0 || size > self.room()) {
            self.next = self.last.as_ref().map(ReadFrom::behind);
            return false;
        }
        self.size += size;
        self.next.clone_from(&message.rest);
        self.messages.push(message);
        self.last = Some(place);
        self.next.is_none()
    }

    /// Returns how many more messages the page may have.
    pub(super) fn free(&self) -> usize {
        self.limit - self.messages.len()
    }

    /// Returns how many more bytes the page may have.
    pub(super) fn room(&self) -> usize {
        PAGE_BYTES.saturating_sub(self.size)
    }

    /// Returns the messages, and the cursor of the next page if this one was full.
    pub(super) fn finish(self) -> (Vec<Message>, Option<String>) {
        (self.messages, self.next)
    }
}

/// Parses a cursor, if there is one.
pub(super) fn cursor<P: FromStr>(cursor: Option<&str>) -> Result<Option<Cursor<P>>, Refusal> {
    let read = |cursor: &str| {
        cursor.parse().map_err(|_| {
            Refusal::invalid(format!(
                "cursor: '{}' is not a next_cursor",
                cursor.chars().take(40).collect::<String>()
            ))
        })
    };
    cursor.map(read).transpose()
}

/// Returns an error if the message has no text at that character or after it.
pub(super) fn check_within(message: &Message, from: usize) -> Result<(), Refusal> {
    let length = length(message);
    if from < length || from == 0 {
        return Ok(());
    }
    Err(Refusal::invalid(format!(
        "cursor: {} has only {length} characters, and the cursor starts at {from}",
        message.id
    )))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::store::Mark;
    use c3po_shared::catalogue::Thread;
    use c3po_shared::ids::{AgentId, MessageId};
    use c3po_shared::time::Timestamp;
    use c3po_shared::vocabulary::Kind;

    /// Returns a message with that number and text.
    pub(in crate::request) fn message(number: u32, text: &str) -> Message {
        let id = MessageId::new(&AgentId::human(), &AgentId::human(), number);
        Message {
            id: id.clone(),
            thread_id: id,
            kind: Kind::Message,
            from_agent: AgentId::human(),
            from_host: None,
            to_agent: AgentId::human(),
            title: None,
            message: Some(text.to_owned()),
            context: None,
            priority: Default::default(),
            requires_response: true,
            reply_to: None,
            message_id: None,
            response: None,
            status: None,
            awaited: false,
            question: None,
            answer: None,
            timestamp: Timestamp::from_millis(0),
            expires_at: Timestamp::from_millis(0),
            repeated: false,
            rest: None,
        }
    }

    fn bytes(messages: &[Message]) -> usize {
        serde_json::to_vec(messages).expect("JSON").len()
    }

    #[test]
    fn pages_end_at_the_limit_and_at_so_many_bytes() {
        let check = |sizes: &[usize], limit, expected: usize, next: Option<&str>| {
            let mut page = Page::new(limit);
            for (number, size) in (1..).zip(sizes) {
                // Two bytes per character.
                if !page.add(
                    message(number, &"é".repeat(*size)),
                    ReadFrom::Inbox(number.into()),
                    0,
                ) {
                    break;
                }
            }
            assert_eq!(
                (page.messages.len(), page.next.as_deref()),
                (expected, next),
                "{sizes:?}"
            );
            assert!(
                bytes(&page.messages) <= PAGE_BYTES,
                "{} bytes",
                bytes(&page.messages)
            );
        };
        check(&[], 50, 0, None);
        check(&[10, 10, 10], 2, 2, Some("2"));
        check(&[10, 10], 2, 2, None);
        check(&[5_000, 5_000, 5_000], 50, 2, Some("2"));
        check(&[10, 50_000], 50, 1, Some("1"));
    }

    #[test]
    fn a_longer_message_comes_in_parts_to_a_session_and_whole_to_a_person() {
        let long = message(7, &"é".repeat(50_000));
        let (mut page, mut whole) = (
            Page::new(50),
            Page {
                is_whole: true,
                ..Page::new(50)
            },
        );
        assert!(!page.add(long.clone(), ReadFrom::Inbox(7), 0));
        assert_eq!(
            (page.next.is_some(), &page.next),
            (true, &page.messages[0].rest)
        );
        assert!(bytes(&page.messages) <= PAGE_BYTES);
        assert!(
            whole.add(long.clone(), ReadFrom::Inbox(7), 0)
                && !whole.add(message(8, "x"), ReadFrom::Inbox(8), 0)
        );
        assert_eq!(
            (whole.messages, whole.next.as_deref()),
            (vec![long.clone()], Some("7"))
        );

        let mut last = Page::new(50);
        assert!(
            last.add(long, ReadFrom::Inbox(7), 49_000)
                && last.add(message(8, "x"), ReadFrom::Inbox(8), 0)
        );
        assert_eq!(
            (
                last.messages[0].text().chars().count(),
                last.messages.len(),
                last.next
            ),
            (1_000, 2, None)
        );
    }

    #[test]
    fn a_page_that_is_full_to_the_brim_is_short_enough_with_the_longest_cursor_and_all_marks() {
        let id: MessageId = format!("{}::{}::0000abcd", "a".repeat(64), "b".repeat(64))
            .parse()
            .expect("an id");
        let longest = Mark {
            at: Timestamp::from_millis(u64::from(u32::MAX) * 1_000),
            id,
        };
        for length in (0..400).chain(23_000..25_000) {
            let mut page = Page::new(1_000);
            let place = || ReadFrom::Thread(longest.clone());
            if page.add(message(1, &"x".repeat(length)), place(), 0) {
                while page.add(message(2, ""), place(), 0) {}
            }
            let (next_cursor, mut messages) = (page.next, page.messages);
            assert!(next_cursor.is_some());
            messages
                .iter_mut()
                .for_each(|message| message.repeated = true);
            let reply = Thread {
                messages,
                next_cursor,
            };
            let bytes = serde_json::to_vec(&reply).expect("JSON").len();
            assert!(bytes <= PAGE_BYTES, "{bytes} bytes");
        }
    }

    #[test]
    fn a_cursor_begins_within_the_text() {
        let long = message(1, "four");
        assert!(
            check_within(&long, 0).is_ok()
                && check_within(&long, 3).is_ok()
                && check_within(&long, 4).is_err()
        );
        assert!(check_within(&message(1, ""), 0).is_ok());
    }
}
