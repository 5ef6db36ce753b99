//! Groups of operations: those that are queued during a commit share the next transaction. So they share the cost of one
//! durable write.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use c3po_shared::time::Timestamp;
use rusqlite::Connection;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::room::pages_in_use;
use crate::store::{Result, StoreError, Wake};

/// How many writes share a commit: enough that the disk is not the bottleneck, few enough for a short delay.
pub(super) const GROUP_MAX: usize = 256;

/// The size of a page. A changed row counts as one, and so does each new page.
const PAGE: u64 = 4_096;
/// How many bytes a transaction may write before its group ends: about as much as the largest group of short sends. The
/// operations of the rest have the next one.
const BYTES_MAX: u64 = 8 << 20;
/// The limit of these bytes as a part of the free space, which must also hold the write-ahead log and the growth of the file.
const FREE_PART: u64 = 16;

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
    /// Whether little is left until they are refused.
    pub(super) is_tight: bool,
    /// Whether the log has grown since the last commit; `None` if no log is kept.
    pub(super) log: Option<&'c Cell<bool>>,
}

impl Work<'_> {
    /// Refuses a change by an agent that makes the file grow, if only the last part of the reserve is left.
    pub(super) fn check_growth(&self) -> Result<()> {
        match self.full {
            Some(full) if full.is_scarce => Err(full.error.clone()),
            _ => Ok(()),
        }
    }
}

/// Why the store refuses new messages, and whether it refuses short replies and receipts too.
#[derive(Debug, Clone)]
pub(super) struct Fullness {
    pub(super) error: StoreError,
    pub(super) is_spent: bool,
    pub(super) is_scarce: bool,
}

/// The bounds of the next transaction.
#[derive(Debug)]
pub(super) struct Bounds {
    /// Why the store refuses new messages, if it does.
    pub(super) full: Option<Fullness>,
    /// Whether little is left until it does, or nothing.
    pub(super) is_tight: bool,
    /// The free bytes on the disk.
    pub(super) free: u64,
}

impl Bounds {
    /// Returns whether a transaction that has written this much must end.
    fn are_reached_by(&self, written: u64) -> bool {
        written >= BYTES_MAX.min(self.free / FREE_PART)
    }
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
pub(super) trait Job: Send {
    /// Runs the operation. Returns whether to keep its changes.
    fn run(&mut self, work: Work<'_>) -> bool;
    /// Returns whether the caller has stopped waiting.
    fn is_abandoned(&self) -> bool;
    /// Sends the outcome to the caller; `failure` is the error of the surrounding transaction.
    fn answer(self: Box<Self>, failure: Option<&StoreError>);
}

/// An operation with its caller.
pub(super) struct Operation<F, T> {
    action: Option<F>,
    outcome: Option<Result<T>>,
    answer: oneshot::Sender<Result<T>>,
}

impl<F, T> Operation<F, T> {
    /// Returns the operation and the receiver of its outcome.
    pub(super) fn new(action: F) -> (Box<Self>, oneshot::Receiver<Result<T>>) {
        let (answer, outcome) = oneshot::channel();
        let operation = Self {
            action: Some(action),
            outcome: None,
            answer,
        };
        (Box::new(operation), outcome)
    }
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

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

/// Waits for a job and takes the others that are queued. Returns `None` when the store is closed.
pub(super) fn next_group(jobs: &mut mpsc::Receiver<Box<dyn Job>>) -> Option<Vec<Box<dyn Job>>> {
    let mut group = vec![jobs.blocking_recv()?];
    while group.len() < GROUP_MAX
        && let Ok(job) = jobs.try_recv()
    {
        group.push(job);
    }
    Some(group)
}

/// Runs jobs of the group in one transaction, sends their wakes and returns their results. Jobs that are behind the bounds of
/// the transaction stay in the group.
pub(super) fn write(
    connection: &Connection,
    group: &mut Vec<Box<dyn Job>>,
    announcements: &Announcements,
    bounds: &Bounds,
) {
    group.retain(|job| !job.is_abandoned());
    let (mut woken, has_grown) = (Vec::new(), Cell::new(false));
    let log = announcements
        .keeps_log
        .load(Ordering::Relaxed)
        .then_some(&has_grown);
    let outcome = transact(connection, group, &mut woken, bounds, log);
    if outcome.is_err() && !connection.is_autocommit() {
        // If the rollback fails, the next transaction cannot begin and reports the error.
        let _ = execute(connection, "ROLLBACK");
    }
    if outcome.is_ok() {
        for wake in woken {
            // There may be no listeners.
            let _ = announcements.wakes.send(wake);
        }
        if has_grown.get() {
            announcements.log.send_replace(());
        }
    }
    let (done, failure) = match &outcome {
        Ok(done) => (*done, None),
        Err(failure) => (group.len(), Some(failure)),
    };
    for job in group.drain(..done) {
        job.answer(failure);
    }
}

/// Runs each job inside its own savepoint, so that a failing job does not affect the others. Returns how many it ran.
fn transact(
    connection: &Connection,
    group: &mut [Box<dyn Job>],
    wakes: &mut Vec<Wake>,
    bounds: &Bounds,
    log: Option<&Cell<bool>>,
) -> Result<usize> {
    if group.is_empty() {
        return Ok(0);
    }
    execute(connection, "BEGIN IMMEDIATE")?;
    let (mut done, mut written, mut before) = (0, 0, Extent::of(connection)?);
    for job in group {
        execute(connection, "SAVEPOINT job")?;
        let woken_before = wakes.len();
        let keep = job.run(Work {
            connection,
            now: Timestamp::now(),
            wakes: &mut *wakes,
            full: bounds.full.as_ref(),
            is_tight: bounds.is_tight,
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
        let after = Extent::of(connection)?;
        (done, written, before) = (done + 1, written + after.since(&before), after);
        if bounds.are_reached_by(written) {
            break;
        }
    }
    execute(connection, "COMMIT")?;
    Ok(done)
}

/// The extent of a connection's writes: the rows it changed, and the pages in use.
struct Extent {
    rows: u64,
    pages: u64,
}

impl Extent {
    fn of(connection: &Connection) -> Result<Self> {
        Ok(Self {
            rows: connection.total_changes(),
            pages: pages_in_use(connection)?,
        })
    }

    /// Returns about how many bytes were written since then: a page for each row, and new pages.
    fn since(&self, before: &Self) -> u64 {
        (self.rows - before.rows + self.pages.saturating_sub(before.pages)) * PAGE
    }
}

fn execute(connection: &Connection, sql: &str) -> Result<()> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Bounds that no test reaches.
    pub(in super::super) const BOUNDS: Bounds = Bounds {
        full: None,
        is_tight: false,
        free: u64::MAX,
    };

    type JobResult = oneshot::Receiver<Result<()>>;

    pub(in super::super) fn announcements() -> Announcements {
        Announcements {
            wakes: broadcast::Sender::new(1),
            keeps_log: Arc::default(),
            log: watch::Sender::new(()),
        }
    }

    /// Returns a database in which only the commit detects a row without a parent.
    pub(in super::super) fn database() -> Connection {
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
        let action = move |work: &mut Work<'_>| {
            work.connection
                .execute("INSERT INTO numbers VALUES (?, ?)", (n, parent))?;
            outcome
        };
        let (job, receiver) = Operation::new(action);
        (job, receiver)
    }

    fn run(connection: &Connection, jobs: Vec<(Box<dyn Job>, JobResult)>) -> Vec<Result<()>> {
        let (group, answers): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        let mut group = group;
        write(connection, &mut group, &announcements(), &BOUNDS);
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
    fn a_transaction_ends_once_it_has_written_enough_for_the_free_space() {
        for (free, expected) in [(u64::MAX, 5), (FREE_PART * 2 * PAGE, 2), (0, 1)] {
            let connection = database();
            let (mut group, mut answers): (Vec<_>, Vec<_>) =
                (0..5).map(|n| job(n, None, Ok(()))).unzip();
            let bounds = Bounds { free, ..BOUNDS };
            write(&connection, &mut group, &announcements(), &bounds);
            assert_eq!(numbers(&connection).len(), expected, "{free}");
            let answered = answers
                .iter_mut()
                .filter_map(|answer| answer.try_recv().ok());
            assert_eq!(answered.count(), expected, "{free}");
            assert_eq!(group.len(), 5 - expected, "the others have the next one");
        }
    }

    #[test]
    fn an_operation_without_a_waiting_caller_is_not_begun() {
        let connection = database();
        let (abandoned, answer) = job(1, None, Ok(()));
        drop(answer);
        write(&connection, &mut vec![abandoned], &announcements(), &BOUNDS);
        assert!(numbers(&connection).is_empty());
    }
}
