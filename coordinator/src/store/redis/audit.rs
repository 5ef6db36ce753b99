//! The audit as a Redis stream. Each stream entry contains a whole batch, which saves calls to Redis.

use c3po_shared::audit::{Entry, Event};
use c3po_shared::limits::AUDIT_ENTRIES_LEAST;
use redis::{Cmd, Value};
use tokio::task::yield_now;

use super::{RedisStore, records, room};
use crate::store::{Result, StoreError};

/// Entries of the stream: ids with their fields.
type Batches = Vec<(String, Vec<(String, String)>)>;

/// How many stream entries are read at once, each with at most a few hundred audit entries.
const BATCHES: usize = 32;

/// Begins the log if there is none, and deletes its oldest entries beyond the bound. A server that is nearly full keeps
/// few: they must not keep messages out. Without a bound, ends the log.
pub(super) async fn keep(store: &RedisStore, bound: Option<u64>) -> Result<()> {
    let Some(bound) = bound else {
        let mut end = redis::cmd("DEL");
        let end = end.arg(store.names.key("audit_end")).to_owned();
        return store.connection.run::<u64>(&end).await.map(drop);
    };
    let bound = match room::is_nearly_full(&store.connection).await? {
        true => bound.min(AUDIT_ENTRIES_LEAST),
        false => bound,
    };
    let keys = ["audit", "audit_end", "audit_most"].map(|name| store.names.key(name));
    let mut call = store.names.call("keep_log", keys);
    store
        .connection
        .invoke::<u64>(call.arg(bound))
        .await
        .map(drop)
}

/// Appends the entries as one stream entry.
pub(super) async fn note(store: &RedisStore, entries: &[Entry]) -> Result<()> {
    if entries.is_empty() {
        return Ok(());
    }
    let mut call = store.names.call("audit", []);
    for entry in entries {
        call.arg(records::write(entry)?);
    }
    store.connection.invoke::<u64>(&call).await?;
    store.wakes.log_grew();
    Ok(())
}

/// Returns the position of the last entry.
pub(super) async fn end(store: &RedisStore) -> Result<u64> {
    let mut last = redis::cmd("XREVRANGE");
    last.arg(store.names.key("audit"))
        .arg("+")
        .arg("-")
        .arg("COUNT")
        .arg(1);
    Ok(batches(store, &last)
        .await?
        .first()
        .map_or(0, |(id, _)| position(id)))
}

async fn batches(store: &RedisStore, range: &Cmd) -> Result<Batches> {
    store
        .connection
        .run::<Value>(range)
        .await
        .and_then(|answer| {
            redis::from_redis_value(answer)
                .map_err(|error| StoreError::Corrupt(format!("the audit: {error}")))
        })
}

/// Returns the position of the last entry of a batch.
fn position(id: &str) -> u64 {
    id.split('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or_default()
}

/// Returns the entries after this position from the first batches that contain any.
pub(super) async fn read(store: &RedisStore, after: u64) -> Result<Vec<Entry>> {
    let mut range = redis::cmd("XRANGE");
    range
        .arg(store.names.key("audit"))
        .arg(after.saturating_add(1))
        .arg("+")
        .arg("COUNT")
        .arg(BATCHES);
    let mut entries = Vec::new();
    for (id, fields) in batches(store, &range).await? {
        let last = position(&id);
        let text = fields
            .iter()
            .find(|(name, _)| name == "e")
            .map_or("[]", |(_, text)| text.as_str());
        // One that cannot be read must not end the log for everybody.
        let batch = serde_json::from_str(text).unwrap_or_else(|_| vec![gap()]);
        let first = (last + 1).saturating_sub(batch.len() as u64);
        let placed = (first..)
            .zip(batch)
            .map(|(position, entry)| Entry { position, ..entry });
        entries.extend(placed.filter(|entry| entry.position > after));
        // Parsing all of them takes some milliseconds.
        yield_now().await;
    }
    Ok(entries)
}

/// Returns the entry in place of those that cannot be read.
fn gap() -> Entry {
    Entry {
        count: Some(1),
        ..Entry::new(Event::Gap)
    }
}
