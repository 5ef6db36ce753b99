//! The log of every store: what changed, in order. The audit and the stream of events are views of it.

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use tokio::sync::watch;

use super::Result;

/// The log of all coordinators on one store: entries in one order, bounded by deleting the oldest.
///
/// Once a log is kept, each change appends its entries in its own atomic step: sends, answers, acknowledgements, receipts,
/// expiries, the beginning, the end and the state of sessions, and changes of agents, keys, logins, their codes, and pairs of
/// agents.
#[async_trait]
pub trait AuditStore {
    /// Begins the log if there is none, and deletes all but about the latest `bound` entries. With `None`, nothing is appended
    /// from now on. Callers repeat this from time to time.
    async fn keep_log(&self, bound: Option<u64>) -> Result<()>;

    /// Appends entries that change nothing else, in one step, if a log is kept.
    ///
    /// If this returns an error, the entries may have been appended nevertheless.
    async fn note(&self, entries: &[Entry]) -> Result<()>;

    /// Subscribes to hints that the log may have grown.
    fn log_grows(&self) -> watch::Receiver<()>;

    /// Returns about `limit` entries after this position, in order and with their positions. The result is empty only if
    /// there are no such entries.
    async fn audit(&self, after: u64, limit: usize) -> Result<Vec<Entry>>;

    /// Returns the position of the last entry, or 0 if there is none.
    async fn audit_end(&self) -> Result<u64>;
}
