//! The audit as a stream, each entry of which holds a whole batch: Redis is asked once for many.

use c3po_shared::audit::Entry;
use redis::Value;

use super::{RedisStore, records};
use crate::store::{Result, StoreError};

/// How many entries of the stream are read at once, each of some hundred of ours at most.
const BATCHES: usize = 32;

/// Adds entries as one of the stream, which forgets the oldest of its own beyond the bound.
pub(super) async fn note(store: &RedisStore, entries: &[Entry], bound: u64) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut call = store.names.call("audit", [store.names.key("audit")]);
    call.arg(bound).arg(entries.len()).arg(records::write(&entries)?);
    store.connection.invoke::<u64>(&call).await.map(drop)
}

/// Reads the entries behind that position, of the first batches that have any.
pub(super) async fn read(store: &RedisStore, after: u64) -> Result<Vec<Entry>> {
    let mut range = redis::cmd("XRANGE");
    range.arg(store.names.key("audit")).arg(after.saturating_add(1)).arg("+").arg("COUNT").arg(BATCHES);
    let batches: Vec<(String, Vec<(String, String)>)> =
        store.connection.run::<Value>(&range).await.and_then(|answer| {
            redis::from_redis_value(answer).map_err(|error| StoreError::Corrupt(format!("the audit: {error}")))
        })?;
    let mut entries = Vec::new();
    for (id, fields) in batches {
        let last: u64 = id.split('-').next().and_then(|number| number.parse().ok()).unwrap_or_default();
        let text = fields.iter().find(|(name, _)| name == "e").map_or("[]", |(_, text)| text.as_str());
        let batch: Vec<Entry> = serde_json::from_str(text)
            .map_err(|error| StoreError::Corrupt(format!("entry {id} of the audit: {error}")))?;
        let first = (last + 1).saturating_sub(batch.len() as u64);
        let placed = (first..).zip(batch).map(|(position, entry)| Entry { position, ..entry });
        entries.extend(placed.filter(|entry| entry.position > after));
    }
    Ok(entries)
}
