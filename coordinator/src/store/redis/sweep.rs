//! Removes expired messages from inboxes that are not read, and agents that did not come back.

use std::sync::PoisonError;

use c3po_shared::ids::AgentId;
use c3po_shared::limits::NAME_LIFE;
use futures_util::{StreamExt, TryStreamExt, stream};

use super::{RedisStore, millis, records};
use crate::store::{FORMER_LIFE, RETURN_MAX, Result};

/// How many agents one sweep visits; the next sweep continues after them.
const AGENTS: usize = 1_000;
/// How many agents are visited concurrently, so that a sweep never fills the connection.
const ABREAST: usize = 16;

/// Removes the expired messages from the inboxes of some agents.
///
/// Every command has its own deadline. The whole sweep may take longer, because no caller waits for it.
pub(super) async fn sweep(store: &RedisStore) -> Result<()> {
    let after = store
        .swept
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    let names = names(store, after.as_ref()).await?;
    let last = if names.len() < AGENTS {
        None
    } else {
        names.last().cloned()
    };
    let visits: Vec<_> = names.iter().map(|name| visit(store, name)).collect();
    let visited: Result<()> = stream::iter(visits)
        .buffer_unordered(ABREAST)
        .try_collect()
        .await;
    *store.swept.lock().unwrap_or_else(PoisonError::into_inner) = last;
    visited
}

async fn visit(store: &RedisStore, name: &AgentId) -> Result<()> {
    let mut call = store.names.call_about("sweep", name);
    call.arg(millis(RETURN_MAX))
        .arg(millis(FORMER_LIFE))
        .arg(millis(NAME_LIFE));
    store.connection.invoke::<u8>(&call).await.map(drop)
}

/// Returns the names of agents, in order.
async fn names(store: &RedisStore, after: Option<&AgentId>) -> Result<Vec<AgentId>> {
    let from = after.map_or_else(|| "-".to_owned(), |id| format!("({id}"));
    let mut range = redis::cmd("ZRANGEBYLEX");
    range
        .arg(store.names.key("agents"))
        .arg(from)
        .arg("+")
        .arg("LIMIT")
        .arg(0)
        .arg(AGENTS);
    let names: Vec<String> = store.connection.run(&range).await?;
    names.iter().map(|name| records::parse(name)).collect()
}
