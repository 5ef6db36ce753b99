//! Waits for answers with SQLite. They are in memory, because one process serves the file and no wait outlives it.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::MessageId;
use tokio::time::Instant;

use super::SqliteStore;
use super::agents::check_tenure;
use super::group::Work;
use super::messages::MessageRow;
use crate::store::waiting::Waits;
use crate::store::{CycleCheck, Result, Tenure, WaitStore};

#[async_trait]
impl WaitStore for SqliteStore {
    async fn await_answer(
        &self,
        message: &MessageId,
        tenure: Option<&Tenure>,
        lease: Duration,
    ) -> Result<CycleCheck> {
        loop {
            let ended = self.waits().ended;
            let (id, tenure) = (message.clone(), tenure.cloned());
            let looking = self.reader.run(move |work| {
                check_tenure(work, &id.from(), tenure.as_ref())?;
                time_left(work, &id)
            });
            let left = looking.await?;
            if left.is_zero() {
                return Ok(CycleCheck::default());
            }
            let mut waits = self.waits();
            // An answer that was committed after the read has ended no wait yet.
            if waits.ended == ended {
                return Ok(waits.begin(message, lease.min(left), Instant::now()));
            }
        }
    }
}

impl SqliteStore {
    pub(super) fn waits(&self) -> MutexGuard<'_, Waits> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how long a message can still be answered: without an end if it is not in the database.
fn time_left(work: &Work<'_>, id: &MessageId) -> Result<Duration> {
    let found = MessageRow::find(work, id)?;
    Ok(
        found.map_or(Duration::MAX, |question| match question.reply {
            Some(_) => Duration::ZERO,
            None => question.expires_at.since(work.now),
        }),
    )
}
