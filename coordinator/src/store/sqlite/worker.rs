//! The two database threads: one writes in groups, one reads.
//!
//! Operations that are queued during a commit share the next transaction. So they share the cost of one durable write.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use c3po_shared::time::Timestamp;
use rusqlite::Connection;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::store::{Result, StoreError, Wake};

/// The deadline of an operation, including its time in the queue.
const OPERATION_LIMIT: Duration = Duration::from_secs(2);
/// How long closing waits for the operations in progress.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// How many writes share a commit: enough that the disk is not the bottleneck, few enough for a short delay.
const GROUP_MAX: usize = 256;
/// The queue length: four groups, so that the writer never starves and no caller waits for many commits.
const QUEUE: usize = 4 * GROUP_MAX;

/// The context of an operation.
pub(super) struct Work<'c> {
    /// The thread's own connection.
    pub(super) connection: &'c Connection,
    /// When the operation began.
    pub(super) now: Timestamp,
    /// The wakes to send after the commit.
    pub(super) wakes: &'c mut Vec<Wake>,
    /// Why new messages are refused, or `None` if they are accepted.
    pub(super) full: Option<&'c Fullness>,
    /// Whether the log has grown since the last commit; `None` if no log is kept.
    pub(super) log: Option<&'c Cell<bool>>,
}

/// Why the store refuses new messages, and whether it refuses short replies too.
#[derive(Debug, Clone)]
pub(super) struct Fullness {
    pub(super) error: StoreError,
    pub(super) is_spent: bool,
}

/// The announcements of the writer thread after a commit.
#[derive(Debug, Clone)]
pub(super) struct Announcements {
    /// The wakes.
    pub(super) wakes: broadcast::Sender<Wake>,
    /// Whether a log is kept.
    pub(super) keeps_log: Arc<AtomicBool>,
    /// Hints that the log has grown.
    pub(super) log: watch::Sender<()>,
}

/// A queued operation of any return type.
trait Job: Send {
    /// Runs the operation. Returns whether to keep its changes.
    fn run(&mut self, work: Work<'_>) -> bool;
    /// Returns whether the caller has stopped waiting.
    fn is_abandoned(&self) -> bool;
    /// Sends the outcome to the caller; `failure` is the error of the surrounding transaction.
    fn answer(self: Box<Self>, failure: Option<&StoreError>);
}

struct Operation<F, T> {
    action: Option<F>,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<F, T> Job for Operation<F, T>
where
    F: FnOnce(&mut Work<'_>) -> Result<T> + Send,
    T: Send,
{
    fn run(&mut self, mut work: Work<'_>) -> bool {
        self.outcome = self.action.take().map(|action| action(&mut work));
        matches!(self.outcome, Some(Ok(_)))
    }

    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn answer(self: Box<Self>, failure: Option<&StoreError>) {
        let outcome = match failure {
            Some(failure) => Err(failure.clone()),
            None => self.outcome.unwrap_or_else(|| {
                Err(StoreError::Unavailable("the operation did not run".into()))
            }),
        };
        // The caller may have stopped waiting; the outcome is in the database.
        let _ = self.answer.send(outcome);
    }
}

/// One of the threads and its queue.
#[derive(Debug)]
pub(super) struct Worker {
    queue: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    thread: Mutex<Option<(JoinHandle<()>, oneshot::Receiver<()>)>>,
}

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl Worker {
    /// Starts the writer thread. Before each group, `check` must succeed; it also returns why new messages are refused, if
    /// they are. The thread owns `check` until it ends.
    pub(super) fn writer(
        connection: Connection,
        announcements: Announcements,
        check: impl Fn(&Connection) -> Result<Option<Fullness>> + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start("store-writer", move |mut jobs| {
            while let Some(group) = next_group(&mut jobs) {
                match check(&connection) {
                    Ok(full) => write(&connection, group, &announcements, full.as_ref()),
                    Err(failure) => group.into_iter().for_each(|job| job.answer(Some(&failure))),
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
        let (answer, outcome) = oneshot::channel();
        let job = Box::new(Operation {
            action: Some(action),
            outcome: None,
            answer,
        });
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

/// Waits for a job and takes the others that are queued. Returns `None` when the store is closed.
fn next_group(jobs: &mut mpsc::Receiver<Box<dyn Job>>) -> Option<Vec<Box<dyn Job>>> {
    let mut group = vec![jobs.blocking_recv()?];
    while group.len() < GROUP_MAX
        && let Ok(job) = jobs.try_recv()
    {
        group.push(job);
    }
    Some(group)
}

/// Runs the jobs in one transaction, sends their wakes and returns their results.
fn write(
    connection: &Connection,
    mut group: Vec<Box<dyn Job>>,
    announcements: &Announcements,
    full: Option<&Fullness>,
) {
    group.retain(|job| !job.is_abandoned());
    let (mut woken, has_grown) = (Vec::new(), Cell::new(false));
    let log = announcements
        .keeps_log
        .load(Ordering::Relaxed)
        .then_some(&has_grown);
    let failure = transact(connection, &mut group, &mut woken, full, log).err();
    if failure.is_some() && !connection.is_autocommit() {
        // If the rollback fails, the next transaction cannot begin and reports the error.
        let _ = execute(connection, "ROLLBACK");
    }
    if failure.is_none() {
        for wake in woken {
            // There may be no listeners.
            let _ = announcements.wakes.send(wake);
        }
        if has_grown.get() {
            announcements.log.send_replace(());
        }
    }
    for job in group {
        job.answer(failure.as_ref());
    }
}

/// Runs each job inside its own savepoint, so that a failing job does not affect the others.
fn transact(
    connection: &Connection,
    group: &mut [Box<dyn Job>],
    wakes: &mut Vec<Wake>,
    full: Option<&Fullness>,
    log: Option<&Cell<bool>>,
) -> Result<()> {
    if group.is_empty() {
        return Ok(());
    }
    execute(connection, "BEGIN IMMEDIATE")?;
    for job in group {
        execute(connection, "SAVEPOINT job")?;
        let woken_before = wakes.len();
        let keep = job.run(Work {
            connection,
            now: Timestamp::now(),
            wakes: &mut *wakes,
            full,
            log,
        });
        if connection.is_autocommit() {
            // A full disk rolls back the whole transaction automatically.
            return Err(StoreError::Unavailable(
                "the transaction was rolled back".into(),
            ));
        }
        if !keep {
            execute(connection, "ROLLBACK TO job")?;
            wakes.truncate(woken_before);
        }
        execute(connection, "RELEASE job")?;
    }
    execute(connection, "COMMIT")
}

fn execute(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type JobResult = oneshot::Receiver<Result<()>>;

    fn announcements() -> Announcements {
        Announcements {
            wakes: broadcast::Sender::new(1),
            keeps_log: Arc::default(),
            log: watch::Sender::new(()),
        }
    }

    /// Returns a database in which only the commit detects a row without a parent.
    fn database() -> Connection {
        let connection = Connection::open_in_memory().expect("memory is there");
        let tables = "PRAGMA foreign_keys = ON; CREATE TABLE parents (id INTEGER PRIMARY KEY);
            CREATE TABLE numbers (n INTEGER, parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED)";
        connection
            .execute_batch(tables)
            .expect("the tables are valid");
        connection
    }

    fn numbers(connection: &Connection) -> Vec<i64> {
        let mut query = connection
            .prepare("SELECT n FROM numbers ORDER BY n")
            .expect("a valid query");
        let rows = query
            .query_map([], |row| row.get(0))
            .expect("a readable table");
        rows.collect::<rusqlite::Result<_>>()
            .expect("readable rows")
    }

    /// Returns an operation that writes a number and then returns `outcome`.
    fn job(n: i64, parent: Option<i64>, outcome: Result<()>) -> (Box<dyn Job>, JobResult) {
        let (answer, receiver) = oneshot::channel();
        let action = move |work: &mut Work<'_>| {
            work.connection
                .execute("INSERT INTO numbers VALUES (?, ?)", (n, parent))?;
            outcome
        };
        (
            Box::new(Operation {
                action: Some(action),
                outcome: None,
                answer,
            }),
            receiver,
        )
    }

    fn run(connection: &Connection, jobs: Vec<(Box<dyn Job>, JobResult)>) -> Vec<Result<()>> {
        let (group, answers): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        write(connection, group, &announcements(), None);
        answers
            .into_iter()
            .map(|mut answer| answer.try_recv().expect("every job is answered"))
            .collect()
    }

    #[test]
    fn an_operation_that_fails_takes_nothing_else_with_it() {
        let connection = database();
        let failure = Err(StoreError::Corrupt("on purpose".into()));
        let outcomes = run(
            &connection,
            vec![
                job(1, None, Ok(())),
                job(2, None, failure),
                job(3, None, Ok(())),
            ],
        );
        assert!(
            matches!(&outcomes[..], [Ok(()), Err(StoreError::Corrupt(_)), Ok(())]),
            "{outcomes:?}"
        );
        assert_eq!(numbers(&connection), [1, 3]);
    }

    #[test]
    fn a_commit_that_fails_fails_the_whole_group_and_nothing_after_it() {
        let connection = database();
        let outcomes = run(
            &connection,
            vec![job(1, None, Ok(())), job(2, Some(404), Ok(()))],
        );
        assert!(
            outcomes
                .iter()
                .all(|outcome| matches!(outcome, Err(StoreError::Unavailable(_)))),
            "{outcomes:?}"
        );
        assert!(numbers(&connection).is_empty());
        assert!(run(&connection, vec![job(3, None, Ok(()))])[0].is_ok());
        assert_eq!(numbers(&connection), [3]);
    }

    #[test]
    fn an_operation_without_a_waiting_caller_is_not_begun() {
        let connection = database();
        let (abandoned, answer) = job(1, None, Ok(()));
        drop(answer);
        write(&connection, vec![abandoned], &announcements(), None);
        assert!(numbers(&connection).is_empty());
    }

    #[tokio::test]
    async fn closing_finishes_the_queued_operations() {
        let (hold, mut held) = oneshot::channel::<()>();
        let writer = Worker::writer(database(), announcements(), move |_| {
            let _held = &hold;
            Ok(None)
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
