//! Reads threads through their index; only the envelopes of a page are read.

use c3po_shared::ids::MessageId;
use c3po_shared::time::Timestamp;

use super::RedisStore;
use super::records::{self, corrupt};
use crate::store::{Excerpt, Mark, Result, Stretch};

/// How many messages one call scans, with up to two commands each: no call runs more than 500.
const STEP: usize = 200;

/// Returns an excerpt of a stored thread.
pub(super) async fn read(
    store: &RedisStore,
    thread: &MessageId,
    stretch: Stretch<'_>,
) -> Result<Excerpt> {
    let mut call = store.names.call("thread", [store.names.thread(thread)]);
    call.arg(thread.as_str());
    match stretch.after {
        Some(mark) => call.arg(mark.at.millis()).arg(mark.id.as_str()),
        None => call.arg("").arg(""),
    };
    call.arg(stretch.reader.as_str())
        .arg(STEP)
        .arg(stretch.limit)
        .arg(stretch.bytes);
    let answer: Vec<String> = store.connection.invoke(&call).await?;
    let [at, id, envelopes @ ..] = answer.as_slice() else {
        return Err(corrupt("a part without its end"));
    };
    let messages = envelopes
        .iter()
        .map(|text| records::envelope(text))
        .collect::<Result<_>>()?;
    let next = match id.as_str() {
        "" => None,
        id => Some(Mark {
            at: Timestamp::from_millis(records::parse(at)?),
            id: records::parse(id)?,
        }),
    };
    Ok(Excerpt { messages, next })
}
