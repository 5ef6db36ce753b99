//! What became of a message, and the conversation it belongs to.

use c3po_shared::audit::{Entry, Event};
use c3po_shared::catalogue::{self as tools, Reply, Thread, Tracked};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::receipt::{Progress, furthest};
use c3po_shared::refusal::Refusal;

use super::page::{self, Page};
use super::{Caller, Office};
use crate::store::{Kept, Mark, StoreError, Stretch};

/// How many stretches of a thread one page may take. Where most of it is others', the page ends there with what was found.
const STRETCHES_MAX: usize = 20;

/// Records that the caller's messages got further, and notes in the audit what was recorded.
pub(crate) async fn advance(office: &Office, caller: &Caller, progress: &Progress) -> Result<(), StoreError> {
    for (id, stage) in office.store.advance(&caller.agent, caller.tenure.as_ref(), progress).await? {
        let via = progress.stages().find(|(reached, _)| *reached == stage).map(|(_, via)| via);
        let entry = caller.entry(Event::Receipt).to(&id.from());
        office.audit.note(Entry { message_id: Some(id), stage: Some(stage), via, ..entry });
    }
    Ok(())
}

/// Returns the message if the caller sent or received it; to everybody else it does not exist.
pub(super) async fn own_message(office: &Office, caller: &Caller, id: &MessageId) -> Result<Kept, Refusal> {
    match office.store.message(id).await? {
        Some(kept) if kept.message.concerns(&caller.agent) => Ok(kept),
        _ => Err(Refusal::message_not_found(id)),
    }
}

/// `message_status`
pub(super) async fn message_status(
    office: &Office,
    caller: &Caller,
    call: tools::MessageStatus,
) -> Result<Reply, Refusal> {
    let kept = own_message(office, caller, &call.message_id).await?;
    Ok(Reply::Tracked(tracked(kept)))
}

/// Returns the receipt that readers see.
pub(super) fn tracked(kept: Kept) -> Tracked {
    Tracked { message_id: kept.message.id, stage: furthest(&kept.history), history: kept.history }
}

/// `get_thread`
pub(super) async fn get_thread(office: &Office, caller: &Caller, call: tools::GetThread) -> Result<Reply, Refusal> {
    let id = call.message_id;
    let is_own_broadcast = |thread: &MessageId| thread.to() == AgentId::all() && thread.from() == caller.agent;
    // The id of a broadcast itself is that of a thread.
    let thread = if is_own_broadcast(&id) { id } else { own_message(office, caller, &id).await?.message.thread_id };
    let mut after = page::behind::<Mark>(call.cursor.as_deref())?;
    let (mut page, mut last) = (Page::new(PAGE_MAX), None);
    // A stretch is as long as the page if each character is one byte; more is read only where they are longer, or
    // where most of the thread is not the caller's.
    for _ in 0..STRETCHES_MAX {
        let (limit, bytes) = (page.free() + 1, page.room());
        let stretch = Stretch { reader: &caller.agent, after: after.as_ref(), limit, bytes };
        let excerpt = office.store.thread(&thread, stretch).await?;
        for message in excerpt.messages {
            let mark = Mark::of(&message);
            if !page.add(message) {
                return Ok(shown(page, last));
            }
            last = Some(mark);
        }
        after = excerpt.next;
        if after.is_none() {
            break;
        }
    }
    // Nothing else tells the id of a broadcast of one's own from one that was made up.
    if page.free() == PAGE_MAX && after.is_none() && call.cursor.is_none() {
        return Err(Refusal::message_not_found(&thread));
    }
    Ok(shown(page, after))
}

/// Returns a page of a thread that goes on behind that mark, or ends.
fn shown(page: Page, behind: Option<Mark>) -> Reply {
    let next_cursor = behind.map(|mark| mark.to_string());
    Reply::Thread(Thread { messages: page.into_messages(), next_cursor })
}
