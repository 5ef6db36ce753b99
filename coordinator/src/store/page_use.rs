//! The use of pages by people, for a short time. It is lost with the store's memory, which only makes pushes come earlier.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::Result;

/// The interface for the use of pages of every store.
#[async_trait]
pub trait PageUseStore: Send + Sync {
    /// Records that a person uses a page. That counts for this time from now.
    async fn use_page(&self, person: &str, time: Duration) -> Result<()>;

    /// Returns for how long the latest use of a page by this person counts yet; zero if it does not.
    async fn page_use(&self, person: &str) -> Result<Duration>;
}

/// The uses in a store that serves one process only.
#[derive(Debug, Default)]
pub(super) struct PageUses {
    /// By person, the time until which a use counts.
    until: HashMap<String, Instant>,
}

impl PageUses {
    /// Records a use.
    pub(super) fn begin(&mut self, person: &str, time: Duration, now: Instant) {
        self.until.retain(|_, until| *until > now);
        self.until.insert(person.to_owned(), now + time);
    }

    /// Returns the time that is left of a use.
    pub(super) fn left(&self, person: &str, now: Instant) -> Duration {
        let until = self.until.get(person);
        until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }
}
