//! The floor of durable sends with SQLite: one thread writes the rows of many callers in one commit.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

/// The thread that writes.
pub(super) struct GroupCommit {
    jobs: mpsc::Sender<Job>,
}

/// A row, and the channel to its caller.
struct Job(String, oneshot::Sender<()>);

impl GroupCommit {
    /// Creates a database in that folder, as durable as the coordinator's.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let connection = Connection::open(folder.join("group-commit.db"))?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        connection.pragma_update(None, "synchronous", "full")?;
        connection
            .execute_batch("CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")?;
        let (jobs, queue) = mpsc::channel();
        // Ends with its last sender. An error ends it early, which the callers notice.
        std::thread::spawn(move || write(&connection, &queue));
        Ok(Self { jobs })
    }

    /// Returns the rows written per second by that many callers, each with one row in flight.
    pub(super) async fn rate(&self, callers: usize, body: &str, span: Duration) -> Result<f64> {
        let began = Instant::now();
        let callers = (0..callers).map(|_| async {
            let mut done = 0_u64;
            while began.elapsed() < span {
                let (answer, answered) = oneshot::channel();
                self.jobs
                    .send(Job(body.to_owned(), answer))
                    .context("the writer ended")?;
                answered.await.context("the writer failed")?;
                done += 1;
            }
            anyhow::Ok(done)
        });
        let done: u64 = futures_util::future::try_join_all(callers)
            .await?
            .iter()
            .sum();
        Ok(done as f64 / began.elapsed().as_secs_f64())
    }
}

fn write(connection: &Connection, queue: &mpsc::Receiver<Job>) -> Result<()> {
    while let Ok(first) = queue.recv() {
        let group: Vec<_> = std::iter::once(first).chain(queue.try_iter()).collect();
        connection.execute_batch("BEGIN IMMEDIATE")?;
        for Job(body, _) in &group {
            connection
                .prepare_cached("INSERT INTO messages (body) VALUES (?)")?
                .execute([body])?;
        }
        connection.execute_batch("COMMIT")?;
        for Job(_, answer) in group {
            // A caller whose time is over has dropped its receiver.
            let _ = answer.send(());
        }
    }
    Ok(())
}
