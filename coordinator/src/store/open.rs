//! Opening whichever store the address names.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Store;
use super::redis::{OpenError, RedisStore};
use super::sqlite::SqliteStore;
use crate::config::{Fleet, RedisAddress, StoreAddress};

/// After what a Redis that does not answer is reported, though the first attempt may go on.
const PATIENCE: Duration = Duration::from_millis(500);
/// How long after an attempt the next one begins.
const PAUSE: Duration = Duration::from_millis(500);

/// Opens the store of that fleet. Waits for a Redis that does not answer: after a power cut it may start later than this process.
///
/// Errors say what is wrong with it; nothing is overwritten then.
pub async fn open(address: &StoreAddress, fleet: &Fleet) -> anyhow::Result<Arc<dyn Store>> {
    open_within(address, fleet, None).await
}

/// Opens the store of that fleet; the embedded one takes new messages up to so many bytes.
///
/// Errors: as of [`open`].
pub async fn open_within(address: &StoreAddress, fleet: &Fleet, max: Option<u64>) -> anyhow::Result<Arc<dyn Store>> {
    match address {
        StoreAddress::Sqlite(path) => Ok(Arc::new(SqliteStore::open_within(path, fleet, max).await?)),
        StoreAddress::Redis(address) => Ok(Arc::new(open_redis(address, fleet).await?)),
    }
}

async fn open_redis(address: &RedisAddress, fleet: &Fleet) -> Result<RedisStore, OpenError> {
    let mut patience = pin!(sleep(PATIENCE));
    let mut reported = String::new();
    loop {
        let mut opening = pin!(RedisStore::open(address, fleet));
        let opened = tokio::select! {
            opened = &mut opening => opened,
            () = &mut patience, if reported.is_empty() => {
                reported = format!("no Redis answers at {address} so far");
                tracing::warn!("{reported}; waiting for it");
                opening.await
            }
        };
        match opened {
            Err(error @ OpenError::Unreachable { .. }) if error.to_string() != reported => {
                reported = error.to_string();
                tracing::warn!("{reported}; trying again until it does");
            }
            Err(OpenError::Unreachable { .. }) => {}
            opened => return opened,
        }
        sleep(PAUSE).await;
    }
}
