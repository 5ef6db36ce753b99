//! The audit interface of every store.

use async_trait::async_trait;
use c3po_shared::audit::Entry;

use super::Result;

/// The audit of all coordinators on one store: entries in one order, bounded by deleting the oldest.
#[async_trait]
pub trait AuditStore {
    /// Appends entries in one step. About `bound` entries are kept in total, the latest ones.
    ///
    /// If this returns an error, the entries may have been appended nevertheless.
    async fn note(&self, entries: &[Entry], bound: u64) -> Result<()>;

    /// Returns about `limit` entries after this position, in order and with their positions. The result is empty only if
    /// there are no such entries.
    async fn audit(&self, after: u64, limit: usize) -> Result<Vec<Entry>>;

    /// Returns the position of the last entry, or 0 if there is none.
    async fn audit_end(&self) -> Result<u64>;
}
