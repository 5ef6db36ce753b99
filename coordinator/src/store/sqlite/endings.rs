//! Ends of agents in SQLite, and the work of duties: messages whose life is over, and agents that did not come back.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::AgentId;
use c3po_shared::time::Timestamp;
use uuid::Uuid;

use super::agents::{
    end_of_name, find, forget_former, hold_until, is_current, is_latest_link, is_one_shot,
};
use super::group::Work;
use super::messages::{settle_everything, settle_expired};
use super::rows::{stamp, time_until};
use super::{SqliteStore, audit, duties, messages};
use crate::store::{Claimed, Due, Duty, DutyStore, Ending, RETURN_MAX, Removal, Result, Tenure};

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
        self.in_steps(move |work| messages::expire(work, &agent))
            .await
    }

    async fn withdraw(&self, agent: &AgentId) -> Result<Option<Duration>> {
        let agent = agent.clone();
        self.in_steps(move |work| withdraw(work, &agent)).await
    }
}

/// Whether nothing waits for an agent: its inbox is empty, and people have no question of it to answer.
macro_rules! is_done {
    () => {
        "open_count = 0 AND NOT EXISTS (SELECT 1 FROM messages INDEXED BY inbox
            WHERE to_agent = 'human' AND open = 1 AND wants_answer = 1 AND from_agent = agents.id)"
    };
}

// Each change below is one step of several. A step that settled as many messages as it may does nothing else.

/// Deletes the agent if nothing waits for it and it did not come back. Returns the time until it must be checked again.
fn withdraw(work: &mut Work<'_>, id: &AgentId) -> Result<ControlFlow<Option<Duration>>> {
    let Some((ends, is_one_shot)) = end_of_name(work, id)? else {
        return Ok(Break(None));
    };
    if ends > stamp(work.now) {
        return Ok(Break(Some(time_until(work.now, ends))));
    }
    if is_one_shot {
        return Ok(end_one_shot(work, id)?.map_break(|()| None));
    }
    if !settle_expired(work, id)? {
        return Ok(Continue(()));
    }
    let sql = concat!("DELETE FROM agents WHERE id = ? AND ", is_done!());
    let deleted = work
        .connection
        .prepare_cached(sql)?
        .execute([id.as_str()])?
        == 1;
    Ok(Break((!deleted).then_some(RETURN_MAX)))
}

/// Ends the lease. If the session is over, deletes a fleeting agent for which nothing waits, or a one-shot session with
/// everything it left. The lease of a one-shot session that is not over runs out by itself.
pub(super) fn release(
    work: &mut Work<'_>,
    tenure: &Tenure,
    ending: &Ending,
) -> Result<ControlFlow<()>> {
    let outdated = !is_current(work, tenure)? || !is_latest_link(work, tenure)?;
    let one_shot = is_one_shot(work, &tenure.agent)?;
    if outdated || (one_shot && !ending.is_over()) {
        return Ok(Break(()));
    }
    let ended = if one_shot {
        end_one_shot(work, &tenure.agent)?
    } else {
        end_lease(work, tenure, ending)?
    };
    if ended.is_break() {
        audit::record_end(work, tenure, ending)?;
    }
    Ok(ended)
}

fn end_lease(work: &mut Work<'_>, tenure: &Tenure, ending: &Ending) -> Result<ControlFlow<()>> {
    if !settle_expired(work, &tenure.agent)? {
        return Ok(Continue(()));
    }
    hold_until(work, &tenure.agent, work.now)?;
    if ending.is_over() {
        let sql = concat!(
            "DELETE FROM agents WHERE id = ? AND fleeting = 1 AND ",
            is_done!()
        );
        work.connection
            .prepare_cached(sql)?
            .execute([tenure.agent.as_str()])?;
    }
    Ok(Break(()))
}

/// Deletes a one-shot session, and expires its questions and the messages in its inbox.
fn end_one_shot(work: &mut Work<'_>, id: &AgentId) -> Result<ControlFlow<()>> {
    if !settle_everything(work, id)? {
        return Ok(Continue(()));
    }
    work.connection
        .prepare_cached("DELETE FROM agents WHERE id = ?")?
        .execute([id.as_str()])?;
    Ok(Break(()))
}

/// Deletes an agent that no session holds, and expires its questions to people and the messages in its inbox.
pub(super) fn remove(
    work: &mut Work<'_>,
    id: &AgentId,
    frees: bool,
) -> Result<ControlFlow<Removal>> {
    match find(work, id)? {
        None if frees && forget_former(work, id)? => return Ok(Break(Removal::Removed)),
        None => return Ok(Break(Removal::Unknown)),
        Some(agent) if agent.is_online(work.now) => return Ok(Break(Removal::Held)),
        Some(_) => {}
    }
    if frees {
        work.connection
            .prepare_cached("UPDATE agents SET reserved = 0 WHERE id = ?")?
            .execute([id.as_str()])?;
    }
    Ok(end_one_shot(work, id)?.map_break(|()| Removal::Removed))
}

/// Ends the hold of any session, and deletes the agent if nothing waits for it. Returns whether the agent existed.
pub(super) fn unregister(work: &mut Work<'_>, id: &AgentId) -> Result<ControlFlow<bool>> {
    if !settle_expired(work, id)? {
        return Ok(Continue(()));
    }
    let known = hold_until(work, id, work.now)?;
    work.connection
        .prepare_cached("UPDATE agents SET instance = ? WHERE id = ?")?
        .execute((Uuid::nil().as_bytes(), id.as_str()))?;
    let sql = concat!("DELETE FROM agents WHERE id = ? AND ", is_done!());
    work.connection
        .prepare_cached(sql)?
        .execute([id.as_str()])?;
    Ok(Break(known))
}
