//! Opens the store that the address names.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::Store;
use super::redis::{OpenError, RedisStore};
use super::sqlite::SqliteStore;
use crate::config::{Fleet, RedisAddress, StoreAddress};

/// How long Redis may take to respond before a warning is logged; the first attempt may continue.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// Opens the store of this fleet. Waits for Redis if it does not respond, because after a power cut it may start later than
/// this process.
///
/// Errors name the problem with the store; nothing is overwritten.
pub async fn open(address: &StoreAddress, fleet: &Fleet) -> anyhow::Result<Arc<dyn Store>> {
    open_within(address, fleet, None).await
}

/// Opens the store of this fleet. The embedded store accepts new messages up to `max` bytes.
///
/// Errors: as for [`open`].
pub async fn open_within(
    address: &StoreAddress,
    fleet: &Fleet,
    max: Option<u64>,
) -> anyhow::Result<Arc<dyn Store>> {
    match address {
        StoreAddress::Sqlite(path) => {
            Ok(Arc::new(SqliteStore::open_within(path, fleet, max).await?))
        }
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
                reported = format!("no Redis answers at {address} yet");
                tracing::warn!("{reported}; retrying");
                opening.await
            }
        };
        match opened {
            Err(error @ OpenError::Unreachable { .. }) if error.to_string() != reported => {
                reported = error.to_string();
                tracing::warn!("{reported}; retrying until it does");
            }
            Err(OpenError::Unreachable { .. }) => {}
            opened => return opened,
        }
        sleep(PAUSE).await;
    }
}
