//! The places that a principal has, of each kind.

use std::sync::Arc;

use c3po_shared::limits::{
    CALLS_PER_KEY, CALLS_WITHOUT_KEY, EVENT_READERS, EVENT_READERS_PER_KEY, LISTS_PER_KEY,
    LISTS_WITHOUT_KEY, LOG_PAGES_PER_KEY, LOG_PAGES_WITHOUT_KEY, QUESTION_PAGES_PER_KEY,
    QUESTION_PAGES_WITHOUT_KEY, READS_PER_KEY, READS_WITHOUT_KEY,
};
use tokio::sync::Semaphore;

/// The places of one principal.
#[derive(Debug)]
pub(super) struct Places {
    /// For requests by REST, until the head of the answer.
    pub(super) requests: Arc<Semaphore>,
    /// For upgrades to links, until the head of the answer.
    pub(super) upgrades: Arc<Semaphore>,
    /// For calls, and for long work in the store.
    pub(super) calls: Semaphore,
    pub(super) reads: Semaphore,
    /// For pages of the log.
    pub(super) log_pages: Semaphore,
    /// For pages of the open questions.
    pub(super) question_pages: Semaphore,
    /// For lists without texts.
    pub(super) lists: Semaphore,
    /// For streams of events.
    pub(super) streams: Arc<Semaphore>,
}

impl Places {
    /// Returns free places. `limit` returns that of the principal, of one for a host and one for many.
    pub(super) fn new(limit: impl Fn((usize, usize)) -> usize) -> Self {
        let places = |limits| Semaphore::new(limit(limits));
        Self {
            // Hosts that share a token share these, too: a flood of them costs others as much as one under a key.
            requests: Arc::new(Semaphore::new(CALLS_PER_KEY)),
            upgrades: Arc::new(Semaphore::new(CALLS_PER_KEY)),
            calls: places((CALLS_PER_KEY, CALLS_WITHOUT_KEY)),
            reads: places((READS_PER_KEY, READS_WITHOUT_KEY)),
            log_pages: places((LOG_PAGES_PER_KEY, LOG_PAGES_WITHOUT_KEY)),
            question_pages: places((QUESTION_PAGES_PER_KEY, QUESTION_PAGES_WITHOUT_KEY)),
            lists: places((LISTS_PER_KEY, LISTS_WITHOUT_KEY)),
            streams: Arc::new(places((EVENT_READERS_PER_KEY, EVENT_READERS))),
        }
    }
}
