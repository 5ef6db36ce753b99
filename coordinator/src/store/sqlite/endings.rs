//! Duties in SQLite and their work: messages whose life is over, and agents that did not come back.

use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::AgentId;
use c3po_shared::time::Timestamp;

use super::agents::{end_of_name, end_one_shot};
use super::rows::{stamp, time_until};
use super::worker::Work;
use super::{SqliteStore, duties, messages};
use crate::store::{Claimed, Due, Duty, DutyStore, RETURN_MAX, Result};

#[async_trait]
impl DutyStore for SqliteStore {
    async fn plan(&self, duty: &Duty, due: Timestamp) -> Result<()> {
        let duty = duty.clone();
        self.writer
            .run(move |work| duties::plan(work, &duty, due))
            .await
    }

    async fn claim_due(&self, limit: usize, hold: Duration) -> Result<Due> {
        self.writer
            .run(move |work| duties::claim_due(work, limit, hold))
            .await
    }

    async fn finish(&self, claimed: &Claimed) -> Result<bool> {
        let claimed = claimed.clone();
        self.writer
            .run(move |work| duties::end_claim(work, &claimed, None))
            .await
    }

    async fn postpone(&self, claimed: &Claimed, by: Duration) -> Result<bool> {
        let claimed = claimed.clone();
        self.writer
            .run(move |work| duties::end_claim(work, &claimed, Some(work.now + by)))
            .await
    }

    async fn expire(&self, agent: &AgentId) -> Result<Option<Duration>> {
        let agent = agent.clone();
        self.writer
            .run(move |work| messages::expire(work, &agent))
            .await
    }

    async fn withdraw(&self, agent: &AgentId) -> Result<Option<Duration>> {
        let agent = agent.clone();
        self.writer.run(move |work| withdraw(work, &agent)).await
    }
}

/// Deletes the agent if it has an empty inbox and did not come back. Returns the time until it must be checked again.
fn withdraw(work: &mut Work<'_>, id: &AgentId) -> Result<Option<Duration>> {
    let Some((ends, is_one_shot)) = end_of_name(work, id)? else {
        return Ok(None);
    };
    if ends > stamp(work.now) {
        return Ok(Some(time_until(work.now, ends)));
    }
    if is_one_shot {
        end_one_shot(work, id)?;
        return Ok(None);
    }
    messages::settle_expired(work, id)?;
    let sql = "DELETE FROM agents WHERE id = ? AND open_count = 0";
    let deleted = work
        .connection
        .prepare_cached(sql)?
        .execute([id.as_str()])?
        == 1;
    Ok((!deleted).then_some(RETURN_MAX))
}
