//! The audit queue: callers never wait, and one task writes the entries to the store.

mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use c3po_shared::audit::{Entry, Event};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;

use crate::metrics::Metrics;
pub(crate) use writer::Writer;

/// How many entries the queue holds: some seconds of a busy coordinator.
const QUEUE: usize = 8_192;

/// A handle on the audit. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audit {
    /// `None` if no audit is kept.
    queue: Option<Queue>,
}

#[derive(Debug, Clone)]
struct Queue {
    entries: mpsc::Sender<Entry>,
    /// How many entries were dropped since the last recorded gap.
    missing: Arc<AtomicU64>,
    lost: Counter,
}

impl Audit {
    /// Makes the handle and the writer, if an audit is kept.
    pub(crate) fn new(is_kept: bool, metrics: &Metrics) -> (Self, Option<Writer>) {
        if !is_kept {
            return (Self::default(), None);
        }
        let (sender, receiver) = mpsc::channel(QUEUE);
        let queue = Queue {
            entries: sender,
            missing: Arc::default(),
            lost: metrics.audit_lost.clone(),
        };
        let writer = Writer::new(receiver, Arc::clone(&queue.missing), metrics);
        (Self { queue: Some(queue) }, Some(writer))
    }

    /// Returns whether an audit is kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.queue.is_some()
    }

    /// Queues an entry. Never waits: entries that do not fit are counted, and a gap entry replaces them.
    pub(crate) fn note(&self, entry: Entry) {
        if let Some(queue) = &self.queue {
            queue.note(entry);
        }
    }
}

impl Queue {
    fn note(&self, entry: Entry) {
        if self.missing.load(Ordering::Relaxed) > 0 {
            if let Ok(mut places) = self.entries.try_reserve_many(2)
                && let (Some(first), Some(second)) = (places.next(), places.next())
            {
                match self.missing.swap(0, Ordering::Relaxed) {
                    // The writer recorded the gap meanwhile.
                    0 => {}
                    count => first.send(gap(count)),
                }
                second.send(entry);
                return;
            }
        } else if self.entries.try_send(entry).is_ok() {
            return;
        }
        self.missing.fetch_add(1, Ordering::Relaxed);
        self.lost.inc();
    }
}

fn gap(count: u64) -> Entry {
    Entry {
        count: Some(count),
        ..Entry::new(Event::Gap)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio_util::sync::CancellationToken;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::config::StoreAddress;
    use crate::store::{self, Store};

    async fn store(folder: &std::path::Path) -> Arc<dyn Store> {
        let address = StoreAddress::Sqlite(folder.join("c3po.db"));
        let store = store::open(&address, &crate::config::Fleet::default())
            .await
            .expect("a store");
        store.keep_log(Some(100_000)).await.expect("a log");
        store
    }

    async fn read(store: &dyn Store) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        loop {
            let after = entries.last().map_or(0, |entry| entry.position);
            let page = store.audit(after, 1_000).await.expect("readable");
            if page.is_empty() {
                return entries;
            }
            entries.extend(page);
        }
    }

    fn numbered(number: usize) -> Entry {
        Entry::new(Event::Accepted).verb(number.to_string())
    }

    #[tokio::test]
    async fn an_entry_without_room_leaves_a_gap_and_is_counted() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, metrics) = (store(folder.path()).await, Metrics::new());
        let (audit, writer) = Audit::new(true, &metrics);
        let writer = writer.expect("one that writes");
        // No writer runs yet: the queue is full, and no call has waited.
        (0..QUEUE + 7).for_each(|number| audit.note(numbered(number)));
        let (tasks, done) = (TaskTracker::new(), CancellationToken::new());
        let task = tasks.spawn(writer.run(Arc::clone(&store), done.clone()));
        let wait = async {
            while metrics.audit_entries.get() < QUEUE as u64 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("it is written");
        audit.note(numbered(QUEUE + 7));
        done.cancel();
        task.await.expect("it ends");
        let entries = read(&*store).await;
        let verbs: Vec<_> = entries
            .iter()
            .map(|entry| entry.verb.clone().unwrap_or_default())
            .collect();
        let gap = entries
            .iter()
            .position(|entry| entry.event == Event::Gap)
            .expect("a gap");
        assert_eq!(
            (gap, entries[gap].count, entries.len()),
            (QUEUE, Some(7), QUEUE + 2)
        );
        assert_eq!(
            (verbs[QUEUE - 1].clone(), verbs[QUEUE + 1].clone()),
            ((QUEUE - 1).to_string(), (QUEUE + 7).to_string())
        );
        assert_eq!(
            (metrics.audit_lost.get(), metrics.audit_entries.get()),
            (7, QUEUE as u64 + 2)
        );
        store.close().await;
    }

    #[tokio::test]
    async fn entries_noted_before_the_end_are_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = store(folder.path()).await;
        let (audit, writer) = Audit::new(true, &Metrics::new());
        let done = CancellationToken::new();
        (0..600).for_each(|number| audit.note(numbered(number)));
        done.cancel();
        writer
            .expect("one that writes")
            .run(Arc::clone(&store), done)
            .await;
        assert_eq!(read(&*store).await.len(), 600);
        store.close().await;
    }

    #[tokio::test]
    async fn a_store_that_is_gone_ends_the_writing_with_the_coordinator() {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, metrics) = (store(folder.path()).await, Metrics::new());
        store.close().await;
        let (audit, writer) = Audit::new(true, &metrics);
        let done = CancellationToken::new();
        audit.note(numbered(1));
        done.cancel();
        let ended = writer.expect("one that writes").run(store, done);
        tokio::time::timeout(Duration::from_secs(5), ended)
            .await
            .expect("it ends");
        assert_eq!(metrics.audit_lost.get(), 1);
    }
}
