//! Keeps the keyring as the store is: whatever coordinator changed a key, this one knows it well within a second.

use std::time::Duration;

use c3po_shared::time::Timestamp;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Auth;
use crate::store::{Result, Store, StoreError};

/// How often it is asked whether keys have changed: one small read, whatever else goes on.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// Reads the keys. Returns how often they have changed.
pub(crate) async fn load(auth: &Auth, store: &dyn Store) -> Result<u64> {
    // The count first: a change in between is read twice, never missed.
    let changes = store.key_changes().await?;
    auth.keyring.replace(store.keys().await?, Timestamp::now());
    Ok(changes)
}

/// Follows the store from what is known of it until `stop` is cancelled. A store that is away leaves the keys as they are, but for their ends.
pub(crate) async fn follow(auth: &Auth, store: &dyn Store, mut known: Option<u64>, stop: &CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        auth.keyring.expire(Timestamp::now());
        let outcome = async {
            if Some(store.key_changes().await?) != known {
                known = Some(load(auth, store).await?);
            }
            Ok::<_, StoreError>(())
        };
        if let Err(error) = outcome.await {
            tracing::debug!("keys were not looked at: {error}");
        }
    }
}
