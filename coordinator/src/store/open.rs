//! Opening whichever store the address names.

use std::sync::Arc;

use super::Store;
use super::redis::RedisStore;
use super::sqlite::SqliteStore;
use crate::config::{Fleet, StoreAddress};

/// Opens the store of that fleet. Errors say what is wrong with it; nothing is overwritten then.
pub async fn open(address: &StoreAddress, fleet: &Fleet) -> anyhow::Result<Arc<dyn Store>> {
    match address {
        StoreAddress::Sqlite(path) => Ok(Arc::new(SqliteStore::open(path, fleet).await?)),
        StoreAddress::Redis(address) => Ok(Arc::new(RedisStore::open(address, fleet).await?)),
    }
}
