//! Reading an inbox page by page, and taking messages out of it.

use c3po_shared::catalogue::{self as tools, Acked, Inbox, Reply};
use c3po_shared::limits::{PAGE_CHARS, PAGE_DEFAULT};
use c3po_shared::message::Message;
use c3po_shared::refusal::Refusal;

use super::{Caller, Office};
use crate::store::{Placed, Selection};

/// What a page's own members take besides its messages.
const PAGE_FRAME: usize = 120;

/// `get_messages`
pub(super) async fn get_messages(office: &Office, caller: &Caller, call: tools::GetMessages) -> Result<Reply, Refusal> {
    let after = match &call.cursor {
        None => 0,
        Some(cursor) => cursor.parse().map_err(|_| {
            Refusal::invalid(format!("cursor: '{}' is not a next_cursor", cursor.chars().take(40).collect::<String>()))
        })?,
    };
    let limit = call.limit.unwrap_or(PAGE_DEFAULT);
    let selection =
        Selection { kind: call.kind.unwrap_or_default(), thread: call.thread_id.as_ref(), after, limit: limit + 1 };
    let (placed, pending) =
        futures_util::try_join!(office.store.inbox(&caller.agent, selection), office.store.pending(&caller.agent))?;
    let (messages, next_cursor) = page(placed, limit);
    Ok(Reply::Inbox(Inbox { messages, count: pending.count, next_cursor }))
}

/// Returns what fits into one page, and where the next one begins. A single longer message comes alone and whole.
fn page(placed: Vec<Placed>, limit: usize) -> (Vec<Message>, Option<String>) {
    let (mut messages, mut size, mut last) = (Vec::new(), PAGE_FRAME, 0);
    for one in placed {
        let length = serde_json::to_string(&one.message).map_or(0, |text| text.chars().count()) + 1;
        let full = messages.len() == limit || (!messages.is_empty() && size + length > PAGE_CHARS);
        if full {
            return (messages, Some(last.to_string()));
        }
        size += length;
        last = one.position;
        messages.push(one.message);
    }
    (messages, None)
}

/// `ack_messages`
pub(super) async fn acknowledge(office: &Office, caller: &Caller, call: tools::AckMessages) -> Result<Reply, Refusal> {
    let settled = office.store.acknowledge(&caller.agent, caller.tenure.as_ref(), &call.message_ids).await?;
    Ok(Reply::Acked(Acked { acked: settled.acked, unknown: settled.unknown }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::ids::{AgentId, MessageId};
    use c3po_shared::time::Timestamp;
    use c3po_shared::vocabulary::Kind;

    fn placed(position: u64, characters: usize) -> Placed {
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
        };
        Placed { position, message }
    }

    #[test]
    fn pages_end_at_the_limit_and_at_thirty_thousand_characters() {
        let check = |sizes: &[usize], limit, expected: usize, next: Option<&str>| {
            let all = (1..).zip(sizes).map(|(position, size)| placed(position, *size)).collect();
            let (messages, cursor) = page(all, limit);
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
