//! The one task that writes the audit: many entries at once, in order, also after the store was away.

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

/// How many entries are written together.
const TOGETHER: usize = 256;
/// How long the first of them waits for the others: what a crash may take with it while the store can be reached.
const GATHER: Duration = Duration::from_millis(20);
/// How soon a store that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// What writes.
#[derive(Debug)]
pub(crate) struct Writer {
    entries: mpsc::Receiver<Entry>,
    missing: Arc<AtomicU64>,
    bound: u64,
    written: Counter,
    lost: Counter,
}

impl Writer {
    pub(super) fn new(entries: mpsc::Receiver<Entry>, missing: Arc<AtomicU64>, bound: u64, metrics: &Metrics) -> Self {
        let (written, lost) = (metrics.audit_entries.clone(), metrics.audit_lost.clone());
        Self { entries, missing, bound, written, lost }
    }

    /// Writes until `done` is cancelled, and then what waits still, once.
    pub(crate) async fn run(mut self, store: Arc<dyn Store>, done: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            done.run_until_cancelled(self.entries.recv_many(&mut batch, TOGETHER)).await;
            if batch.is_empty() {
                break;
            }
            // What came by the end of the time is there: receiving loses nothing when it is cut.
            let _ = timeout(GATHER, done.run_until_cancelled(gather(&mut self.entries, &mut batch))).await;
            self.mind_the_gap(&mut batch);
            self.write(&*store, &mut batch, &done).await;
        }
        while self.entries.try_recv().map(|entry| batch.push(entry)).is_ok() {
            if batch.len() == TOGETHER {
                self.write(&*store, &mut batch, &done).await;
            }
        }
        self.mind_the_gap(&mut batch);
        if !batch.is_empty() {
            self.write(&*store, &mut batch, &done).await;
        }
    }

    /// Notes what is missing, where nobody came after it who would have done so.
    fn mind_the_gap(&self, batch: &mut Vec<Entry>) {
        if self.entries.is_empty() {
            match self.missing.swap(0, Ordering::Relaxed) {
                0 => {}
                count => batch.push(gap(count)),
            }
        }
    }

    /// Writes a batch, as often as it takes; once where the coordinator stops.
    async fn write(&self, store: &dyn Store, batch: &mut Vec<Entry>, done: &CancellationToken) {
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let mut complained = false;
        while let Err(error) = store.note(batch, self.bound).await {
            if done.is_cancelled() || !error.passes() {
                tracing::error!("{count} entries of the audit were lost: {error}");
                for entry in batch.drain(..) {
                    // A gap stands for others, which were counted.
                    self.missing.fetch_add(entry.count.unwrap_or(1), Ordering::Relaxed);
                    self.lost.inc_by(u64::from(entry.event != Event::Gap));
                }
                return;
            }
            if !complained {
                tracing::warn!("the audit waits for the store: {error}");
                complained = true;
            }
            // The end is a reason to try at once, for the last time.
            done.run_until_cancelled(sleep(RETRY)).await;
        }
        self.written.inc_by(count);
        batch.clear();
    }
}

/// Adds what comes to the batch until that is full.
async fn gather(entries: &mut mpsc::Receiver<Entry>, batch: &mut Vec<Entry>) {
    while batch.len() < TOGETHER && entries.recv_many(batch, TOGETHER - batch.len()).await > 0 {}
}
