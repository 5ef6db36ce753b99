//! The audit writer: one task that writes entries in batches, in order, and retries after store errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use c3po_shared::audit::{Entry, Event};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::gap;
use crate::metrics::Metrics;
use crate::store::Store;

/// The largest batch.
const TOGETHER: usize = 256;
/// How long the first entry waits for others. A crash may lose these entries even if the store is available.
const GATHER: Duration = Duration::from_millis(20);
/// The pause before a retry after a store error.
const RETRY: Duration = Duration::from_secs(1);

/// The writer of the audit.
#[derive(Debug)]
pub(crate) struct Writer {
    entries: mpsc::Receiver<Entry>,
    missing: Arc<AtomicU64>,
    written: Counter,
    lost: Counter,
}

impl Writer {
    pub(super) fn new(
        entries: mpsc::Receiver<Entry>,
        missing: Arc<AtomicU64>,
        metrics: &Metrics,
    ) -> Self {
        let (written, lost) = (metrics.audit_entries.clone(), metrics.audit_lost.clone());
        Self {
            entries,
            missing,
            written,
            lost,
        }
    }

    /// Writes until `done` is cancelled, and then writes the remaining entries once.
    pub(crate) async fn run(mut self, store: Arc<dyn Store>, done: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            done.run_until_cancelled(self.entries.recv_many(&mut batch, TOGETHER))
                .await;
            if batch.is_empty() {
                break;
            }
            // Entries received before the timeout are in the batch: cancelling the receive loses none.
            let _ = timeout(
                GATHER,
                done.run_until_cancelled(gather(&mut self.entries, &mut batch)),
            )
            .await;
            self.mind_the_gap(&mut batch);
            self.write(&*store, &mut batch, &done).await;
        }
        while self
            .entries
            .try_recv()
            .map(|entry| batch.push(entry))
            .is_ok()
        {
            if batch.len() == TOGETHER {
                self.write(&*store, &mut batch, &done).await;
            }
        }
        self.mind_the_gap(&mut batch);
        if !batch.is_empty() {
            self.write(&*store, &mut batch, &done).await;
        }
    }

    /// Records a gap if entries are missing and no later entry is queued that would record it.
    fn mind_the_gap(&self, batch: &mut Vec<Entry>) {
        if self.entries.is_empty() {
            match self.missing.swap(0, Ordering::Relaxed) {
                0 => {}
                count => batch.push(gap(count)),
            }
        }
    }

    /// Writes a batch, retrying until it succeeds; only once if the coordinator is stopping.
    async fn write(&self, store: &dyn Store, batch: &mut Vec<Entry>, done: &CancellationToken) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let mut complained = false;
        while let Err(error) = store.note(batch).await {
            if done.is_cancelled() || !error.passes() {
                tracing::error!("{count} audit entries were lost: {error}");
                for entry in batch.drain(..) {
                    // A gap counts for its missing entries, which were counted as lost before.
                    self.missing
                        .fetch_add(entry.count.unwrap_or(1), Ordering::Relaxed);
                    self.lost.inc_by(u64::from(entry.event != Event::Gap));
                }
                return;
            }
            if !complained {
                tracing::warn!("audit entries wait for the store: {error}");
                complained = true;
            }
            // Shutdown ends the pause, for a last attempt.
            done.run_until_cancelled(sleep(RETRY)).await;
        }
        self.written.inc_by(count);
        batch.clear();
    }
}

/// Adds entries to the batch until it is full.
async fn gather(entries: &mut mpsc::Receiver<Entry>, batch: &mut Vec<Entry>) {
    while batch.len() < TOGETHER && entries.recv_many(batch, TOGETHER - batch.len()).await > 0 {}
}
