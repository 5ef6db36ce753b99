//! The use of pages with SQLite. It is in memory, because one process serves the file.

use std::sync::PoisonError;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::SqliteStore;
use crate::store::{PageUseStore, Result};

#[async_trait]
impl PageUseStore for SqliteStore {
    async fn use_page(&self, person: &str, time: Duration) -> Result<()> {
        let mut uses = self
            .page_uses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        uses.begin(person, time, Instant::now());
        Ok(())
    }

    async fn page_use(&self, person: &str) -> Result<Duration> {
        let uses = self
            .page_uses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(uses.left(person, Instant::now()))
    }
}
