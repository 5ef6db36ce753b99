//! Keeps the keyring as the store is: whatever coordinator changed a key, this one knows it well within a second.

use std::time::Duration;

use c3po_shared::time::Timestamp;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::Auth;
use crate::store::{Result, Store};

/// How often it is asked whether keys have changed: one small read, whatever else goes on.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// How often it is noted when keys were used.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// Reads the keys.
pub(crate) async fn load(auth: &Auth, store: &dyn Store) -> Result<()> {
    let reading = auth.keyring.begin();
    // The count first: a change in between is read twice, never missed.
    let changes = store.key_changes().await?;
    auth.keyring.replace(reading, changes, store.keys().await?, Timestamp::now());
    Ok(())
}

/// Follows the store until `stop` is cancelled. A store that is away leaves the keys as they are.
pub(crate) async fn follow(auth: &Auth, store: &dyn Store, stop: &CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complained = false;
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match look(auth, store).await {
            Ok(()) if complained => {
                tracing::info!("the keys are followed again");
                complained = false;
            }
            Err(error) if !complained => {
                tracing::warn!("no change of a key takes effect here until the store can be read again: {error}");
                complained = true;
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Ends keys whose time is over, until `stop` is cancelled. Waits for no store: a key ends also while that is away.
pub(crate) async fn expire(auth: &Auth, stop: &CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        auth.keyring.expire(Timestamp::now());
    }
}

/// Notes when keys are used, until `stop` is cancelled, and once more then: one write a minute, whatever goes on.
pub(crate) async fn note_uses(auth: &Auth, store: &dyn Store, stop: &CancellationToken) {
    let mut ticks = interval(NOTE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut noted = Timestamp::from_millis(0);
    loop {
        let is_over = stop.run_until_cancelled(ticks.tick()).await.is_none();
        let now = Timestamp::now();
        let uses = auth.keyring.used_since(noted, now);
        if !uses.is_empty() {
            match store.note_uses(&uses).await {
                Ok(()) => noted = now,
                Err(error) => tracing::debug!("when keys were used was not noted: {error}"),
            }
        }
        if is_over {
            return;
        }
    }
}

async fn look(auth: &Auth, store: &dyn Store) -> Result<()> {
    if Some(store.key_changes().await?) == auth.keyring.changes() { Ok(()) } else { load(auth, store).await }
}
