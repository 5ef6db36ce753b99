//! The two database threads: one writes in [groups](super::group), one reads.

use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use c3po_shared::time::Timestamp;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::group::{Announcements, Bounds, GROUP_MAX, Job, Operation, Work, next_group, write};
use crate::store::{Result, StoreError};

/// The deadline of an operation, including its time in the queue.
const OPERATION_LIMIT: Duration = Duration::from_secs(2);
/// How long closing waits for the operations in progress.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// The queue length: four groups, so that the writer never starves and no caller waits for many commits.
const QUEUE: usize = 4 * GROUP_MAX;

/// One of the threads and its queue.
#[derive(Debug)]
pub(super) struct Worker {
    queue: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    thread: Mutex<Option<(JoinHandle<()>, oneshot::Receiver<()>)>>,
}

impl Worker {
    /// Starts the writer thread. Before each transaction, `check` must succeed; it returns its bounds. The thread owns `check`
    /// until it ends.
    pub(super) fn writer(
        connection: Connection,
        announcements: Announcements,
        check: impl Fn(&Connection) -> Result<Bounds> + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start("store-writer", move |mut jobs| {
            while let Some(mut group) = next_group(&mut jobs) {
                while !group.is_empty() {
                    match check(&connection) {
                        Ok(bounds) => write(&connection, &mut group, &announcements, &bounds),
                        Err(failure) => {
                            let jobs = group.drain(..);
                            jobs.for_each(|job| job.answer(Some(&failure)));
                        }
                    }
                }
            }
            drop(connection);
            drop(check);
        })
    }

    /// Starts the reader thread.
    pub(super) fn reader(connection: Connection) -> std::io::Result<Self> {
        Self::start("store-reader", move |mut jobs| {
            let mut nobody = Vec::new();
            while let Some(mut job) = jobs.blocking_recv() {
                if !job.is_abandoned() {
                    job.run(Work {
                        connection: &connection,
                        now: Timestamp::now(),
                        wakes: &mut nobody,
                        full: None,
                        is_tight: false,
                        log: None,
                    });
                }
                job.answer(None);
            }
        })
    }

    fn start(
        name: &str,
        run: impl FnOnce(mpsc::Receiver<Box<dyn Job>>) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (ended, end) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                run(jobs);
                // If no caller is closing the store, this signal has no receiver.
                let _ = ended.send(());
            })?;
        Ok(Self {
            queue: Mutex::new(Some(queue)),
            thread: Mutex::new(Some((thread, end))),
        })
    }

    /// Runs an operation on the thread, and returns its result after the commit.
    pub(super) async fn run<T, F>(&self, action: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Work<'_>) -> Result<T> + Send + 'static,
    {
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let queue = queue.ok_or_else(|| StoreError::Unavailable("it is closed".into()))?;
        let (job, outcome) = Operation::new(action);
        let done = async {
            queue.send(job).await.map_err(|_| ended())?;
            outcome.await.map_err(|_| ended())?
        };
        timeout(OPERATION_LIMIT, done).await.unwrap_or_else(|_| {
            Err(StoreError::Unavailable(format!(
                "no answer within {} seconds",
                OPERATION_LIMIT.as_secs()
            )))
        })
    }

    /// Rejects new operations and waits until the queued ones are done.
    pub(super) async fn close(&self) {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((thread, end)) = thread {
            match timeout(CLOSE_LIMIT, end).await {
                Ok(_) => join(thread),
                Err(_) => {
                    tracing::error!("a thread of the store did not end within {CLOSE_LIMIT:?}")
                }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.queue
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some((thread, _)) = self
            .thread
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            join(thread);
        }
    }
}

fn ended() -> StoreError {
    StoreError::Unavailable("its thread has ended".into())
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the store panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::{BOUNDS, announcements, database};
    use super::*;

    #[tokio::test]
    async fn closing_finishes_the_queued_operations() {
        let (hold, mut held) = oneshot::channel::<()>();
        let writer = Worker::writer(database(), announcements(), move |_| {
            let _held = &hold;
            Ok(BOUNDS)
        })
        .expect("a thread");
        let (gate, closed) = std::sync::mpsc::channel::<()>();
        let mut first = Box::pin(writer.run(move |_| Ok(closed.recv().is_err())));
        // One poll puts an operation into the queue; the first operation keeps the thread busy.
        assert!(futures_util::poll!(&mut first).is_pending());
        let queued = (0..100).map(|n| {
            writer.run(move |work| {
                Ok(work
                    .connection
                    .execute("INSERT INTO numbers VALUES (?, NULL)", [n])?)
            })
        });
        let mut queued: Vec<_> = queued.map(Box::pin).collect();
        for operation in &mut queued {
            assert!(futures_util::poll!(operation).is_pending());
        }
        drop(gate);
        assert!(first.await.expect("the first operation is answered"));
        let (outcomes, ()) = tokio::join!(futures_util::future::join_all(queued), writer.close());
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        assert!(
            matches!(held.try_recv(), Err(oneshot::error::TryRecvError::Closed)),
            "what it held is let go"
        );
    }
}
