//! Pages that no client has to cut: so many messages, so many characters.

use std::str::FromStr;

use c3po_shared::limits::PAGE_CHARS;
use c3po_shared::message::Message;
use c3po_shared::refusal::Refusal;

/// What a page's own members take besides its messages. The longest is the cursor of a thread: a time and an id with the
/// names of two agents.
const PAGE_FRAME: usize = 200;

/// A page in the making.
#[derive(Debug)]
pub(super) struct Page {
    messages: Vec<Message>,
    limit: usize,
    size: usize,
}

impl Page {
    /// Begins a page of so many messages at most.
    pub(super) fn new(limit: usize) -> Self {
        Self { messages: Vec::new(), limit, size: PAGE_FRAME }
    }

    /// Adds a message, and returns whether it fitted. A single longer one comes alone and whole.
    pub(super) fn add(&mut self, message: Message) -> bool {
        let length = serde_json::to_string(&message).map_or(0, |text| text.chars().count()) + 1;
        let fits = self.free() > 0 && (self.messages.is_empty() || length <= self.room());
        if fits {
            self.size += length;
            self.messages.push(message);
        }
        fits
    }

    /// Returns how many further messages it may have.
    pub(super) fn free(&self) -> usize {
        self.limit - self.messages.len()
    }

    /// Returns how many further characters it may have.
    pub(super) fn room(&self) -> usize {
        PAGE_CHARS.saturating_sub(self.size)
    }

    /// Returns what is on it.
    pub(super) fn into_messages(self) -> Vec<Message> {
        self.messages
    }
}

/// Returns the position or mark behind which the page begins that a `next_cursor` names; nothing where there is none.
pub(super) fn behind<P: FromStr>(cursor: Option<&str>) -> Result<Option<P>, Refusal> {
    let read = |cursor: &str| {
        cursor.parse().map_err(|_| {
            Refusal::invalid(format!("cursor: '{}' is not a next_cursor", cursor.chars().take(40).collect::<String>()))
        })
    };
    cursor.map(read).transpose()
}

/// Returns what fits into one page, and where the next one begins. A single longer message comes alone and whole.
pub(super) fn of(placed: impl IntoIterator<Item = (u64, Message)>, limit: usize) -> (Vec<Message>, Option<String>) {
    let (mut page, mut last) = (Page::new(limit), 0);
    for (position, message) in placed {
        if !page.add(message) {
            return (page.messages, Some(last.to_string()));
        }
        last = position;
    }
    (page.messages, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::catalogue::Thread;
    use c3po_shared::ids::{AgentId, MessageId};
    use c3po_shared::time::Timestamp;
    use c3po_shared::vocabulary::Kind;

    fn placed(position: u64, characters: usize) -> (u64, Message) {
        let id = MessageId::new(&AgentId::human(), &AgentId::human(), u32::try_from(position).expect("small"));
        let message = Message {
            id: id.clone(),
            thread_id: id,
            kind: Kind::Message,
            from_agent: AgentId::human(),
            from_host: None,
            to_agent: AgentId::human(),
            title: None,
            message: Some("é".repeat(characters)),
            context: None,
            priority: Default::default(),
            requires_response: true,
            reply_to: None,
            message_id: None,
            response: None,
            status: None,
            timestamp: Timestamp::from_millis(0),
            expires_at: Timestamp::from_millis(0),
            repeated: false,
        };
        (position, message)
    }

    #[test]
    fn pages_end_at_the_limit_and_at_thirty_thousand_characters() {
        let check = |sizes: &[usize], limit, expected: usize, next: Option<&str>| {
            let all = (1..).zip(sizes).map(|(position, size)| placed(position, *size));
            let (messages, cursor) = of(all, limit);
            assert_eq!((messages.len(), cursor.as_deref()), (expected, next), "{sizes:?}");
            let length = serde_json::to_string(&messages).expect("JSON").chars().count();
            assert!(messages.len() == 1 || length <= PAGE_CHARS, "{length} characters");
        };
        check(&[], 50, 0, None);
        check(&[10, 10, 10], 2, 2, Some("2"));
        check(&[10, 10], 2, 2, None);
        check(&[14_000, 14_000, 14_000], 50, 2, Some("2"));
        check(&[50_000, 10], 50, 1, Some("1"));
    }

    #[test]
    fn a_page_that_is_full_to_the_brim_is_short_enough_with_the_longest_cursor() {
        let (one, other) = ("a".repeat(64), "b".repeat(64));
        let longest = format!("{}.{one}::{other}::0000abcd", u64::from(u32::MAX) * 1_000);
        for size in 0..1_000 {
            let mut page = Page::new(1_000);
            assert!(page.add(placed(1, 25_000 + size).1));
            while page.add(placed(2, 0).1) {}
            let reply = Thread { messages: page.into_messages(), next_cursor: Some(longest.clone()) };
            let length = serde_json::to_string(&reply).expect("JSON").chars().count();
            assert!(length <= PAGE_CHARS, "{length} characters");
        }
    }
}
