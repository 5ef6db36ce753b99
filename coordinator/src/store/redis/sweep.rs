//! The slow repair of everything that did not repair itself.

use std::sync::PoisonError;

use futures_util::{TryStreamExt, stream};

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
    expire(store).await?;
    answers::sweep(store).await
}

async fn expire(store: &RedisStore) -> Result<()> {
    let after = store.swept.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let names = agents::names(&store.connection, after.as_ref(), AGENTS).await?;
    let last = if names.len() < AGENTS { None } else { names.last().cloned() };
    stream::iter(names.into_iter().map(Ok))
        .try_for_each_concurrent(ABREAST, |name| async move {
            store.connection.invoke(&scripts::about(&scripts::EXPIRE, &name)).await
        })
        .await?;
    *store.swept.lock().unwrap_or_else(PoisonError::into_inner) = last;
    Ok(())
}
