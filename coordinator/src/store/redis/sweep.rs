//! The slow repair of everything that did not repair itself.

use std::sync::PoisonError;

use c3po_shared::ids::AgentId;
use futures_util::{StreamExt, stream};

use super::{RedisStore, agents, answers, scripts};
use crate::store::Result;

/// How many agents one sweep looks at; the next one goes on behind them.
const AGENTS: usize = 1_000;
/// How many of them at the same time, so that a sweep never fills the connection.
const ABREAST: usize = 16;

/// Removes what is past its time in the inboxes of some agents, and completes unfinished answers.
///
/// Every command has its own deadline; the whole may take longer, for nobody waits for it.
pub(super) async fn sweep(store: &RedisStore) -> Result<()> {
    let completed = answers::sweep(store).await;
    visit(store).await.and(completed)
}

/// Looks at the next agents. One whose server is away does not keep the others from being looked at.
async fn visit(store: &RedisStore) -> Result<()> {
    let after = store.swept.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let names = agents::names(&store.connection, after.as_ref(), AGENTS).await?;
    let last = if names.len() < AGENTS { None } else { names.last().cloned() };
    let visits = names.into_iter().map(|name| async move { expire(store, &name).await });
    let visited: Vec<Result<()>> = stream::iter(visits).buffer_unordered(ABREAST).collect().await;
    *store.swept.lock().unwrap_or_else(PoisonError::into_inner) = last;
    visited.into_iter().collect()
}

async fn expire(store: &RedisStore, name: &AgentId) -> Result<()> {
    let unfinished: u64 = store.connection.invoke(&scripts::about(&scripts::EXPIRE, name)).await?;
    if unfinished == 0 { Ok(()) } else { answers::resume(store, name).await }
}
