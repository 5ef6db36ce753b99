//! Reads inboxes by position. The cost depends on the page, not on the length of the inbox.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::KindFilter;

use super::RedisStore;
use super::records::{self, corrupt};
use crate::store::{Backlog, Placed, Result, Selection};

/// How many messages one call scans, with up to two commands each: no call runs more than 500.
pub(super) const STEP: usize = 150;
/// How many messages one call searches: others want their turns between, and most may be looked at in vain.
const SEARCH_STEP: usize = 25;

/// The lists of an inbox.
#[derive(Debug, Clone, Copy)]
pub(super) enum List {
    /// All messages of the inbox.
    Inbox,
    /// Messages that the present session has not been shown.
    Unshown,
}

impl List {
    fn name(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Unshown => "unshown",
        }
    }
}

/// Reads a page.
pub(super) async fn page(
    store: &RedisStore,
    agent: &AgentId,
    list: List,
    selection: Selection<'_>,
) -> Result<Vec<Placed>> {
    let everything = selection.kind == KindFilter::Any && selection.thread.is_none();
    let mut page = Vec::new();
    let mut after = selection.after;
    let mut read = 0;
    while page.len() < selection.limit && read <= selection.bytes {
        let wanted = selection.limit - page.len();
        let step = if everything {
            wanted.min(STEP)
        } else {
            SEARCH_STEP
        };
        let mut call = store.names.call_about("page", agent);
        call.arg(list.name())
            .arg(after)
            .arg(wanted)
            .arg(selection.kind.as_str())
            .arg(selection.thread.map(MessageId::as_str).unwrap_or_default())
            .arg(step)
            .arg(selection.bytes - read);
        let answer: Vec<String> = store.connection.invoke(&call).await?;
        let Some((next, found)) = answer.split_first() else {
            return Err(corrupt("a page without its first word"));
        };
        for facts in found.chunks_exact(3) {
            let message = Message {
                repeated: facts[2] == "1",
                ..records::envelope(&facts[1])?
            };
            let bytes = facts[1].len();
            read += bytes;
            page.push(Placed {
                position: records::parse(&facts[0])?,
                message,
                bytes,
            });
        }
        if next.is_empty() {
            break;
        }
        after = records::parse(next)?;
    }
    Ok(page)
}

/// Returns the number of messages in an inbox and the age of the oldest.
pub(super) async fn pending(store: &RedisStore, agent: &AgentId) -> Result<Backlog> {
    let (count, oldest): (usize, Option<u64>) = store
        .connection
        .invoke(&store.names.call_about("pending", agent))
        .await?;
    Ok(Backlog {
        count,
        oldest: oldest.map(Timestamp::from_millis),
    })
}
