//! Claims of names in SQLite: which session holds an agent, and since when.

use std::ops::ControlFlow::{self, Break, Continue};

use c3po_shared::audit::Event;
use c3po_shared::ids::AgentId;
use c3po_shared::vocabulary::State;
use rusqlite::named_params;

use super::agents::{
    enter_context, find, former, insert, is_one_shot, plan_withdrawal, unshow, whole,
};
use super::audit;
use super::group::Work;
use super::messages::settle_everything;
use super::rows::{json, stamp};
use crate::store::{Claim, Owner, Result, Tenure};

/// Returns whether the owner already has an agent of another name.
fn has_another(work: &Work<'_>, claim: &Claim) -> Result<bool> {
    let Owner { base, host, slot } = &claim.owner;
    let sql =
        "SELECT 1 FROM agents WHERE base = ? AND host = ? AND slot = ? AND slot > 0 AND id <> ?";
    Ok(work.connection.prepare_cached(sql)?.exists((
        base.as_str(),
        host,
        slot,
        claim.name.as_str(),
    ))?)
}

/// Claims the name for a session, unless it belongs to another owner or another process holds it. It is one step of several: one
/// that settled as many messages of an earlier one-shot session as it may does nothing else.
pub(super) fn claim(work: &mut Work<'_>, claim: &Claim) -> Result<ControlFlow<Option<Tenure>>> {
    let found = find(work, &claim.name)?;
    if !claim.may_have(found.as_ref()) || has_another(work, claim)? {
        return Ok(Break(None));
    }
    if found.is_none() && former(work, &claim.name)?.is_some_and(|of| of.host != claim.owner.host) {
        return Ok(Break(None));
    }
    let returns = found
        .as_ref()
        .is_some_and(|agent| agent.instance == claim.instance && agent.is_online(work.now));
    let (uid, generation) = match found {
        Some(agent) if agent.generation > 0 && agent.instance == claim.instance => {
            resume(work, claim)?;
            note_owner(work, claim)?;
            enter_context(work, &claim.name, claim.context)?;
            (agent.uid, agent.generation)
        }
        Some(agent) if agent.is_online(work.now) && !claim.succeeds.contains(&agent.instance) => {
            return Ok(Break(None));
        }
        Some(agent) => {
            if is_one_shot(work, &claim.name)? && !settle_everything(work, &claim.name)? {
                return Ok(Continue(()));
            }
            let generation = agent.generation + 1;
            take_over(work, claim, generation)?;
            (agent.uid, generation)
        }
        None => {
            let uid = insert(work, &claim.name, &claim.quota)?;
            take_over(work, claim, 1)?;
            (uid, 1)
        }
    };
    if !returns {
        audit::record(work, Event::SessionBegun, &claim.name, |entry| {
            entry.under(claim.key.as_deref()).verb(claim.kind)
        })?;
    }
    plan_withdrawal(work, &claim.name)?;
    let link = next_link(work, &claim.name)?;
    let one_shot = is_one_shot(work, &claim.name)?;
    Ok(Break(Some(Tenure {
        agent: claim.name.clone(),
        uid,
        generation,
        instance: claim.instance,
        link,
        one_shot,
        key: claim.key.clone(),
    })))
}

/// Assigns the next link number to the link that claimed the name.
fn next_link(work: &Work<'_>, id: &AgentId) -> Result<u64> {
    let sql = "UPDATE agents SET link = link + 1 WHERE id = ? RETURNING link";
    let link = work
        .connection
        .prepare_cached(sql)?
        .query_row([id.as_str()], |row| row.get(0))
        .map(i64::cast_unsigned)?;
    Ok(link)
}

/// Renews the lease of the same process. Messages already shown to its session's context stay shown.
fn resume(work: &Work<'_>, claim: &Claim) -> Result<()> {
    let mut update = work.connection.prepare_cached(
        "UPDATE agents SET session_id = coalesce(:session, session_id), reach = :reach,
            state = coalesce(:state, state), held_until = :until, last_seen = :now WHERE id = :id",
    )?;
    update.execute(named_params! {
        ":id": claim.name.as_str(), ":session": claim.session_id, ":reach": json(&claim.reach)?,
        ":state": claim.state.map(State::as_str), ":until": stamp(work.now + claim.lease), ":now": stamp(work.now),
    })?;
    Ok(())
}

/// Starts a new session of another process, which has been shown nothing.
fn take_over(work: &Work<'_>, claim: &Claim, generation: u64) -> Result<()> {
    let mut update = work.connection.prepare_cached(
        "UPDATE agents SET session_id = :session, reach = :reach, state = :state, current_task = NULL,
            fleeting = :fleeting AND (fleeting OR generation = 0),
            one_shot = :one_shot AND (one_shot OR generation = 0), generation = :generation, instance = :instance,
            context = :context, held_until = :until, last_seen = :now WHERE id = :id",
    )?;
    update.execute(named_params! {
        ":id": claim.name.as_str(), ":session": claim.session_id, ":reach": json(&claim.reach)?,
        ":state": claim.state.unwrap_or(State::Starting).as_str(), ":fleeting": claim.fleeting,
        ":one_shot": claim.one_shot,
        ":generation": generation.cast_signed(), ":instance": claim.instance.as_bytes(),
        ":context": whole(claim.context), ":until": stamp(work.now + claim.lease), ":now": stamp(work.now),
    })?;
    note_owner(work, claim)?;
    unshow(work, &claim.name)
}

/// Records the owner, and the key that made the agent if that is not yet recorded. Clients without a link claim with each
/// call, so unchanged values are not written: that would write two indexes.
fn note_owner(work: &Work<'_>, claim: &Claim) -> Result<()> {
    let Owner { base, host, slot } = &claim.owner;
    let sql = "UPDATE agents SET base = :base, host = :host, slot = :slot, reserved = :reserved,
            made_by = iif(made_by = '', :key, made_by)
        WHERE id = :id AND ((base, host, slot, reserved) IS NOT (:base, :host, :slot, :reserved)
            OR (made_by = '' AND :key <> ''))";
    work.connection
        .prepare_cached(sql)?
        .execute(named_params! {
            ":id": claim.name.as_str(), ":base": base.as_str(), ":host": host, ":slot": slot,
            ":reserved": claim.reserved, ":key": claim.quota.key,
        })?;
    Ok(())
}
