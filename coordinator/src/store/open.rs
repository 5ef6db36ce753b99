//! Opening whichever store the address names.

use std::sync::Arc;

use super::Store;
use super::redis::RedisStore;
use super::sqlite::SqliteStore;
use crate::config::StoreAddress;

/// Opens the store. Errors say what is wrong with it; nothing is overwritten then.
pub async fn open(address: &StoreAddress) -> anyhow::Result<Arc<dyn Store>> {
    match address {
        StoreAddress::Sqlite(path) => Ok(Arc::new(SqliteStore::open(path).await?)),
        StoreAddress::Redis(address) => Ok(Arc::new(RedisStore::open(address).await?)),
    }
}
