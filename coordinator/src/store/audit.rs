//! What any store keeps of the audit.

use async_trait::async_trait;
use c3po_shared::audit::Entry;

use super::Result;

/// The audit of all coordinators on one store: entries in one order, the oldest forgotten beyond a bound.
#[async_trait]
pub trait AuditStore {
    /// Adds entries behind all others, in one step. Of all of them about `bound` are kept, the latest.
    ///
    /// Where the answer is an error they may have been added all the same.
    async fn note(&self, entries: &[Entry], bound: u64) -> Result<()>;

    /// Returns entries behind that position, in order, with their positions: about `limit`, and none only where
    /// there are none.
    async fn audit(&self, after: u64, limit: usize) -> Result<Vec<Entry>>;

    /// Returns the position of the last entry; 0 where there is none.
    async fn audit_end(&self) -> Result<u64>;
}
