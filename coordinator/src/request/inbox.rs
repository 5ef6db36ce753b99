//! Reading an inbox page by page, and taking messages out of it.

use c3po_shared::catalogue::{self as tools, Acked, Inbox, Reply};
use c3po_shared::limits::{PAGE_CHARS, PAGE_DEFAULT};
use c3po_shared::refusal::Refusal;

use super::{Caller, Office, page};
use crate::store::Selection;

/// How many bytes are read for a page: the longest that its characters can be.
const PAGE_BYTES: usize = 4 * PAGE_CHARS;

/// `get_messages`
pub(super) async fn get_messages(office: &Office, caller: &Caller, call: tools::GetMessages) -> Result<Reply, Refusal> {
    let after = page::behind(call.cursor.as_deref())?.unwrap_or_default();
    let limit = call.limit.unwrap_or(PAGE_DEFAULT);
    let selection = Selection {
        kind: call.kind.unwrap_or_default(),
        thread: call.thread_id.as_ref(),
        after,
        limit: limit + 1,
        bytes: PAGE_BYTES,
    };
    let (placed, pending) =
        futures_util::try_join!(office.store.inbox(&caller.agent, selection), office.store.pending(&caller.agent))?;
    let last = placed.last().filter(|_| selection.is_filled_by(&placed)).map(|last| last.position.to_string());
    let placed = placed.into_iter().map(|one| (one.position, one.message));
    let (messages, next_cursor) = page::of(placed, limit);
    // What was read may fit, and not be all.
    let next_cursor = next_cursor.or(last);
    Ok(Reply::Inbox(Inbox { messages, count: pending.count, next_cursor }))
}

/// `ack_messages`
pub(super) async fn acknowledge(office: &Office, caller: &Caller, call: tools::AckMessages) -> Result<Reply, Refusal> {
    let settled = office.store.acknowledge(&caller.agent, caller.tenure.as_ref(), &call.message_ids).await?;
    Ok(Reply::Acked(Acked { acked: settled.acked, unknown: settled.unknown }))
}
