//! Reads threads through their index; only the envelopes of a page are read.

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, furthest};
use c3po_shared::time::Timestamp;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::records::{self, corrupt};
use super::{RedisStore, messages};
use crate::store::{Excerpt, InThread, Mark, Result, SentStages, Stretch};

/// How many messages one call scans, with up to two commands each: no call runs more than 500.
const STEP: usize = 200;

/// How many histories are read at once.
const AT_ONCE: usize = 16;

/// Returns an excerpt of a stored thread.
pub(super) async fn read(
    store: &RedisStore,
    thread: &MessageId,
    stretch: Stretch<'_>,
) -> Result<Excerpt> {
    let (found, next) = walk(store, thread, stretch, "env").await?;
    let messages = found.chunks(2).map(|one| match one {
        [envelope, stored] => Ok(InThread {
            message: records::envelope(envelope)?,
            stored_at: Timestamp::from_millis(records::parse(stored)?),
        }),
        _ => Err(corrupt("a message without its time")),
    });
    Ok(Excerpt {
        messages: messages.collect::<Result<_>>()?,
        next,
    })
}

/// Returns how far the messages came that the reader sent in that part of the thread.
pub(super) async fn sent(
    store: &RedisStore,
    thread: &MessageId,
    stretch: Stretch<'_>,
) -> Result<SentStages> {
    let (ids, next) = walk(store, thread, stretch, "sent").await?;
    let stage = async |id: String| -> Result<Option<Stage>> {
        let history = messages::history(store, &records::parse(&id)?).await?;
        Ok(history.as_deref().map(furthest))
    };
    let stages: Vec<_> = stream::iter(ids)
        .map(stage)
        .buffered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(SentStages {
        stages: stages.into_iter().flatten().collect(),
        next,
    })
}

/// Returns the envelopes of a part of a thread, each with the time of storing, or only the ids of the messages that the reader
/// sent, and the mark at its end.
async fn walk(
    store: &RedisStore,
    thread: &MessageId,
    stretch: Stretch<'_>,
    kind: &str,
) -> Result<(Vec<String>, Option<Mark>)> {
    let mut call = store.names.call("thread", [store.names.thread(thread)]);
    call.arg(thread.as_str());
    match stretch.after {
        Some(mark) => call.arg(mark.at.millis()).arg(mark.id.as_str()),
        None => call.arg("").arg(""),
    };
    call.arg(stretch.reader.as_str())
        .arg(STEP)
        .arg(stretch.limit)
        .arg(stretch.bytes)
        .arg(kind);
    let mut answer: Vec<String> = store.connection.invoke(&call).await?;
    if answer.len() < 2 {
        return Err(corrupt("a part without its end"));
    }
    let found = answer.split_off(2);
    let next = match answer[1].as_str() {
        "" => None,
        id => Some(Mark {
            at: Timestamp::from_millis(records::parse(&answer[0])?),
            id: records::parse(id)?,
        }),
    };
    Ok((found, next))
}
