//! Keeps the cached keys and logins up to date: a change at any coordinator takes effect here well within a second.

use std::time::Duration;

use c3po_shared::time::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::looks::uptime;
use super::{Auth, logins};
use crate::clock;
use crate::store::{Result, Store};

/// How often changes of keys and logins are checked, at the cost of two small reads.
const LOOK_EVERY: Duration = Duration::from_millis(400);

/// How long after a change all coordinators have seen it, if nothing delays them.
const SEEN_WITHIN: Duration = Duration::from_millis(600);

/// How often keys and logins are read without a change of their counters: a store that lost its latest writes in a failover may
/// count other changes by the same numbers.
const READ_EVERY: Duration = Duration::from_secs(60);

/// How often the uses of keys and logins are written.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// Waits until the other coordinators of the store accept a new credential too: its holder may reach any of them.
pub(crate) async fn seen_by_others(store: &dyn Store) {
    if store.is_shared() {
        sleep(SEEN_WITHIN).await;
    }
}

/// Loads the keys and the logins.
pub(crate) async fn load(auth: &Auth, store: &dyn Store) -> Result<()> {
    load_keys(auth, store).await?;
    load_logins(auth, store).await
}

async fn load_keys(auth: &Auth, store: &dyn Store) -> Result<()> {
    let (reading, began) = (auth.keyring.begin(), uptime());
    // The counter is read first, so that a concurrent change is read twice rather than missed.
    let changes = store.key_changes().await?;
    auth.keyring
        .replace(reading, changes, store.keys().await?, clock::now());
    auth.keyring.looks.completed(began);
    Ok(())
}

async fn load_logins(auth: &Auth, store: &dyn Store) -> Result<()> {
    let (reading, began) = (auth.logins.begin(), uptime());
    let changes = store.login_changes().await?;
    auth.logins
        .replace(reading, changes, store.logins().await?, clock::now());
    auth.logins.looks.completed(began);
    Ok(())
}

/// Follows the store until `stop` is cancelled. While the store is unavailable, keys and logins stay
/// unchanged, but begin no call.
pub(crate) async fn follow(auth: &Auth, store: &dyn Store, stop: &CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut complained, mut read_at) = (false, Instant::now());
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let looked = if complained || read_at.elapsed() >= READ_EVERY {
            read_at = Instant::now();
            load(auth, store).await
        } else {
            look(auth, store).await
        };
        match looked {
            Ok(()) if complained => {
                tracing::info!("changes of keys and logins can be read again");
                complained = false;
            }
            Err(error) if !complained => {
                tracing::warn!(
                    "changes of keys and logins take no effect here until the store can be read again: {error}"
                );
                complained = true;
            }
            Ok(()) | Err(_) => {}
        }
    }
}

/// Ends expired keys and logins until `stop` is cancelled. It does not need the store, so they expire even while that is
/// unavailable.
pub(crate) async fn expire(auth: &Auth, stop: &CancellationToken) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        auth.keyring.expire(clock::now());
        auth.logins.expire(clock::now());
    }
}

/// Writes the uses of keys once a minute until `stop` is cancelled, and once more at the end. Logins in use are extended.
pub(crate) async fn note_uses(auth: &Auth, store: &dyn Store, stop: &CancellationToken) {
    let mut ticks = interval(NOTE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut noted = Timestamp::from_millis(0);
    loop {
        let is_over = stop.run_until_cancelled(ticks.tick()).await.is_none();
        let now = clock::now();
        let uses = auth.keyring.used_since(noted, now);
        if !uses.is_empty() {
            match store.note_uses(&uses).await {
                Ok(()) => noted = now,
                Err(error) => tracing::debug!("could not record when keys were used: {error}"),
            }
        }
        if let Err(error) = logins::extend_used(auth, store, now).await {
            tracing::debug!("could not extend the logins in use: {error}");
        }
        if is_over {
            return;
        }
    }
}

async fn look(auth: &Auth, store: &dyn Store) -> Result<()> {
    let began = uptime();
    if Some(store.key_changes().await?) != auth.keyring.changes() {
        load_keys(auth, store).await?;
    }
    auth.keyring.looks.completed(began);
    let began = uptime();
    if Some(store.login_changes().await?) != auth.logins.changes() {
        load_logins(auth, store).await?;
    }
    auth.logins.looks.completed(began);
    Ok(())
}
