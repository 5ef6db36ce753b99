//! Pages that no client has to cut: so many messages, so many characters.

use c3po_shared::limits::PAGE_CHARS;
use c3po_shared::message::Message;
use c3po_shared::refusal::Refusal;

/// What a page's own members take besides its messages.
const PAGE_FRAME: usize = 120;

/// Returns the position behind which the page begins that a `next_cursor` names; 0 where there is none.
pub(super) fn behind(cursor: Option<&str>) -> Result<u64, Refusal> {
    let Some(cursor) = cursor else { return Ok(0) };
    cursor.parse().map_err(|_| {
        Refusal::invalid(format!("cursor: '{}' is not a next_cursor", cursor.chars().take(40).collect::<String>()))
    })
}

/// Returns what fits into one page, and where the next one begins. A single longer message comes alone and whole.
pub(super) fn of(placed: impl IntoIterator<Item = (u64, Message)>, limit: usize) -> (Vec<Message>, Option<String>) {
    let (mut messages, mut size, mut last) = (Vec::new(), PAGE_FRAME, 0);
    for (position, message) in placed {
        let length = serde_json::to_string(&message).map_or(0, |text| text.chars().count()) + 1;
        let full = messages.len() == limit || (!messages.is_empty() && size + length > PAGE_CHARS);
        if full {
            return (messages, Some(last.to_string()));
        }
        size += length;
        last = position;
        messages.push(message);
    }
    (messages, None)
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
