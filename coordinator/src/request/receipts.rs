//! Receipts and threads: the progress of a message, and its conversation.

use c3po_shared::catalogue::{self as tools, CopiesTracked, Reply, Thread, Tracked};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::message::Message;
use c3po_shared::receipt::{Progress, furthest};
use c3po_shared::refusal::Refusal;

use super::inbox::READ_AT_ONCE;
use super::own::Own;
use super::page::{self, Page};
use super::part::{Cursor, ReadFrom};
use super::price::{note_stages, note_texts};
use super::{Caller, Services};
use crate::store::{InThread, Mark, StoreError, StoredMessage, Stretch};

/// How many copies of a broadcast are summed up.
const COPIES_MAX: usize = 1_000;
/// How many of them are read at once.
const COPIES_AT_ONCE: usize = 25;

/// How many stretches of a thread one page may read. If most messages are not visible to the caller, the page then ends
/// early.
const STRETCHES_MAX: usize = 20;

/// Advances the caller's messages.
pub(super) async fn advance(
    services: &Services,
    caller: &Caller,
    progress: &Progress,
) -> Result<(), StoreError> {
    let (agent, actor) = (&caller.agent, caller.actor());
    services.store.advance(agent, &actor, progress).await?;
    Ok(())
}

/// Returns the message if the caller sent or received it ([`Own`]); for any other caller it does not exist.
pub(super) async fn own_message(
    services: &Services,
    caller: &Caller,
    id: &MessageId,
) -> Result<StoredMessage, Refusal> {
    Own::of(services, caller).message(id).await
}

/// `message_status`
pub(super) async fn message_status(
    services: &Services,
    caller: &Caller,
    call: tools::MessageStatus,
) -> Result<Reply, Refusal> {
    let id = call.message_id;
    if is_broadcast(caller, &id) {
        return Ok(Reply::Tracked(copies(services, caller, id).await?));
    }
    let kept = own_message(services, caller, &id).await?;
    Ok(Reply::Tracked(tracked(kept)))
}

/// Returns whether the id is that of a broadcast of the caller's name, which is also the id of its thread.
fn is_broadcast(caller: &Caller, id: &MessageId) -> bool {
    id.to() == AgentId::all() && id.from() == caller.agent
}

/// Refuses a broadcast of an earlier agent of the caller's name, as an unknown one. Its first copy decides.
async fn check_broadcast(
    services: &Services,
    caller: &Caller,
    broadcast: &MessageId,
) -> Result<(), Refusal> {
    let stretch = Stretch {
        reader: &caller.agent,
        after: None,
        limit: 1,
        bytes: usize::MAX,
    };
    let excerpt = services.store.thread(broadcast, stretch).await?;
    let read = excerpt.messages.iter().map(|copy| &copy.message);
    note_texts(&caller.principal, read);
    let own = Own::of(services, caller);
    match excerpt.messages.first() {
        Some(copy) if own.has(&copy.message, copy.stored_at).await? => Ok(()),
        _ => Err(Refusal::message_not_found(broadcast)),
    }
}

/// Sums up the copies of a broadcast.
async fn copies(
    services: &Services,
    caller: &Caller,
    broadcast: MessageId,
) -> Result<Tracked, Refusal> {
    check_broadcast(services, caller, &broadcast).await?;
    let (mut copies, mut after) = (CopiesTracked::default(), None);
    while copies.count < COPIES_MAX {
        let stretch = Stretch {
            reader: &caller.agent,
            after: after.as_ref(),
            limit: COPIES_AT_ONCE,
            bytes: usize::MAX,
        };
        let sent = services.store.sent(&broadcast, stretch).await?;
        copies.count += sent.stages.len();
        note_stages(&caller.principal, sent.stages.len());
        for stage in sent.stages {
            *copies.stages.entry(stage).or_default() += 1;
        }
        after = sent.next;
        if after.is_none() {
            copies.complete = true;
            break;
        }
    }
    let Some(stage) = copies.stages.keys().next().copied() else {
        return Err(Refusal::message_not_found(&broadcast));
    };
    Ok(Tracked {
        message_id: broadcast,
        stage,
        history: Vec::new(),
        copies: Some(copies),
    })
}

/// Returns the public form of a receipt.
pub(super) fn tracked(kept: StoredMessage) -> Tracked {
    Tracked {
        message_id: kept.message.id,
        stage: furthest(&kept.history),
        history: kept.history,
        copies: None,
    }
}

/// `get_thread`
pub(super) async fn get_thread(
    services: &Services,
    caller: &Caller,
    call: tools::GetThread,
) -> Result<Reply, Refusal> {
    let id = call.message_id;
    let own = Own::of(services, caller);
    let thread = if is_broadcast(caller, &id) {
        id
    } else {
        own.message(&id).await?.message.thread_id
    };
    let cursor = page::cursor::<Mark>(call.cursor.as_deref())?;
    let is_first = cursor.is_none();
    let mut page = Page::of(caller, PAGE_MAX);
    if let Some(Cursor {
        at,
        from: Some(from),
    }) = &cursor
    {
        let begun = begun(&own, &thread, at).await?;
        page::check_within(&begun, *from)?;
        if !page.add(begun, ReadFrom::Thread(at.clone()), *from) {
            return Ok(shown(page, None));
        }
    }
    let mut after = cursor.map(|cursor| cursor.at);
    // In parts, so that others have their turns at the store. Some fill the page, unless most of the thread is not visible to
    // the caller.
    for _ in 0..STRETCHES_MAX {
        let (limit, bytes) = (page.free() + 1, page.room().min(READ_AT_ONCE));
        let stretch = Stretch {
            reader: &caller.agent,
            after: after.as_ref(),
            limit,
            bytes,
        };
        let excerpt = services.store.thread(&thread, stretch).await?;
        let read = excerpt.messages.iter().map(|found| &found.message);
        note_texts(&caller.principal, read);
        for InThread { message, stored_at } in excerpt.messages {
            if !own.has(&message, stored_at).await? {
                continue;
            }
            let place = ReadFrom::Thread(Mark::of(&message));
            if !page.add(message, place, 0) {
                return Ok(shown(page, None));
            }
        }
        after = excerpt.next;
        if after.is_none() {
            break;
        }
    }
    // A broadcast of the caller has no record of its own, so an empty thread is treated as an unknown id.
    if page.free() == PAGE_MAX && after.is_none() && is_first {
        return Err(Refusal::message_not_found(&thread));
    }
    Ok(shown(page, after))
}

/// Returns the message at that mark of the thread.
async fn begun(own: &Own<'_>, thread: &MessageId, at: &Mark) -> Result<Message, Refusal> {
    let message = own.message(&at.id).await?.message;
    if message.thread_id == *thread && Mark::of(&message) == *at {
        return Ok(message);
    }
    Err(Refusal::message_not_found(&at.id))
}

/// Returns a page of a thread that was read up to that mark, or to its end.
fn shown(page: Page, read: Option<Mark>) -> Reply {
    let (messages, next_cursor) = page.finish();
    let next_cursor = next_cursor.or(read.map(|mark| mark.to_string()));
    Reply::Thread(Thread {
        messages,
        next_cursor,
    })
}
