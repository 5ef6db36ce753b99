//! Reads an inbox page by page, and takes messages out of it.

use c3po_shared::catalogue::{self as tools, Acked, Inbox, Reply};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::{PAGE_BYTES, PAGE_DEFAULT};
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::page::{self, Page};
use super::part::{Cursor, ReadFrom};
use super::price::{note_page, note_search};
use super::{CHANGED_AT_ONCE, Caller, Services, begin_read};
use crate::store::{CHANGED_BY_CALL, Placed, Selection, Store, StoreError};

/// How many bytes of messages are read at once: the store does nothing else meanwhile.
pub(super) const READ_AT_ONCE: usize = 8 << 10;

/// `get_messages`
pub(super) async fn get_messages(
    services: &Services,
    caller: &Caller,
    call: tools::GetMessages,
) -> Result<Reply, Refusal> {
    let cursor = page::cursor::<u64>(call.cursor.as_deref())?;
    let limit = call.limit.unwrap_or(PAGE_DEFAULT);
    let selection = Selection {
        kind: call.kind.unwrap_or_default(),
        thread: call.thread_id.as_ref(),
        after: cursor.as_ref().map_or(0, |cursor| {
            cursor.at.saturating_sub(u64::from(cursor.from.is_some()))
        }),
        limit: limit + 1,
        bytes: PAGE_BYTES,
    };
    let store = services.store.as_ref();
    let (placed, pending) = futures_util::try_join!(
        placed(store, &caller.agent, selection),
        store.pending(&caller.agent)
    )?;
    note_search(&caller.principal, selection, pending.count);
    note_page(&caller.principal, &placed);
    let mut from = begins_at(cursor.as_ref(), &placed)?;
    let last = placed
        .last()
        .filter(|_| selection.is_filled_by(&placed))
        .map(|last| last.position.to_string());
    let mut page = Page::of(caller, limit);
    // A verdict is for the client, not for its model.
    let placed = placed
        .into_iter()
        .filter(|placed| placed.message.verdict().is_none());
    for one in placed {
        if !page.add(
            one.message,
            ReadFrom::Inbox(one.position),
            std::mem::take(&mut from),
        ) {
            break;
        }
    }
    let (messages, next_cursor) = page.finish();
    // All messages that were read may fit, although more follow.
    let next_cursor = next_cursor.or(last);
    Ok(Reply::Inbox(Inbox {
        messages,
        count: pending.count,
        next_cursor,
    }))
}

/// Returns the selected messages of an inbox. They are read in parts, so that others have their turns at the store.
pub(crate) async fn placed(
    store: &dyn Store,
    agent: &AgentId,
    selection: Selection<'_>,
) -> Result<Vec<Placed>, StoreError> {
    let (mut placed, mut left) = (Vec::new(), selection);
    loop {
        let next = Selection {
            bytes: left.bytes.min(READ_AT_ONCE),
            ..left
        };
        let part = store.inbox(agent, next).await?;
        let is_over = !next.is_filled_by(&part);
        for one in part {
            left.after = one.position;
            left.limit -= 1;
            left.bytes = left.bytes.saturating_sub(one.bytes);
            placed.push(one);
        }
        if is_over || selection.is_filled_by(&placed) {
            return Ok(placed);
        }
    }
}

/// Returns the character at which the first message of a page begins. The message that the cursor points into must exist.
fn begins_at(cursor: Option<&Cursor<u64>>, placed: &[Placed]) -> Result<usize, Refusal> {
    let Some(Cursor {
        at,
        from: Some(from),
    }) = cursor
    else {
        return Ok(0);
    };
    let Some(first) = placed.first().filter(|first| first.position == *at) else {
        let error = format!(
            "cursor: the message at {at} is no longer in your inbox, or does not match this request"
        );
        return Err(
            Refusal::new(ErrorCode::MessageNotFound, error).suggest("It is still in its thread.")
        );
    };
    page::check_within(&first.message, *from)?;
    Ok(*from)
}

/// Refuses to take a question out of the inbox of people: it would disappear for all of them, and its asker would wait in vain.
async fn check_no_question(
    services: &Services,
    caller: &Caller,
    ids: &[MessageId],
) -> Result<(), Refusal> {
    // A longer call has such a place already.
    let _reading = match ids.len() {
        ..=CHANGED_BY_CALL => Some(begin_read(&caller.principal).await?),
        _ => None,
    };
    for id in ids {
        let Some(kept) = services.message(&caller.principal, id).await? else {
            continue;
        };
        let message = kept.message;
        if message.requires_response && message.to_agent.is_human() && kept.reply.is_none() {
            let error =
                format!("{id} is a question to people, and leaves their inbox by an answer");
            return Err(Refusal::invalid(error).suggest("Answer it, or leave it out."));
        }
    }
    Ok(())
}

/// `ack_messages`: a few at a time. If one part fails, the call may be repeated.
pub(super) async fn acknowledge(
    services: &Services,
    caller: &Caller,
    call: tools::AckMessages,
) -> Result<Reply, Refusal> {
    if caller.agent.is_human() {
        check_no_question(services, caller, &call.message_ids).await?;
    }
    let actor = caller.actor();
    let (mut acked, mut unknown) = (Vec::new(), Vec::new());
    for ids in call.message_ids.chunks(CHANGED_AT_ONCE) {
        let settled = services
            .store
            .acknowledge(&caller.agent, &actor, ids)
            .await?;
        acked.extend(settled.acked);
        unknown.extend(settled.unknown);
    }
    Ok(Reply::Acked(Acked { acked, unknown }))
}
