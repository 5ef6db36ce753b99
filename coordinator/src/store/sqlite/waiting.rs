//! Waits for answers with SQLite. They are in memory, because one process serves the file and no wait outlives it.

use std::sync::PoisonError;
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::MessageId;
use tokio::time::Instant;

use super::SqliteStore;
use crate::store::{Result, WaitStore};

#[async_trait]
impl WaitStore for SqliteStore {
    async fn await_answer(&self, message: &MessageId, lease: Duration) -> Result<Vec<MessageId>> {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(waits.begin(message, lease, Instant::now()))
    }
}
