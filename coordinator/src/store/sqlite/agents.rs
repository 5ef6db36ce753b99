//! Agents in SQLite: claims, leases and records.

use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::limits::NAME_LIFE;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::State;
use rusqlite::{OptionalExtension, Row, named_params};
use uuid::Uuid;

use super::group::Work;
use super::rows::{count, from_json, integer, json, milliseconds, moment, parsed, stamp};
use super::{audit, duties};
use crate::store::agent::displaced;
use crate::store::{
    Agent, Amendment, Crowded, Duty, FORMER_LIFE, Holder, Namesake, Owner, Quota, RETURN_MAX,
    Result, Speaker, StoreError, Tenure, is_kept_for,
};

/// Returns the agent of that name.
pub(super) fn find(work: &Work<'_>, id: &AgentId) -> Result<Option<Agent>> {
    let mut query = work
        .connection
        .prepare_cached("SELECT * FROM agents WHERE id = ?")?;
    query
        .query_row([id.as_str()], |row| Ok(agent(row)))
        .optional()?
        .transpose()
}

/// Returns the agents after `after`, ordered by id.
pub(super) fn page(work: &Work<'_>, after: Option<&AgentId>, limit: usize) -> Result<Vec<Agent>> {
    let mut query = work
        .connection
        .prepare_cached("SELECT * FROM agents WHERE id > ? ORDER BY id LIMIT ?")?;
    let after = after.map_or("", AgentId::as_str);
    let agents = query.query_map((after, integer(limit)), |row| Ok(agent(row)))?;
    agents.map(|agent| agent?).collect()
}

/// Makes a newer context the present one. It has been shown nothing.
pub(super) fn enter_context(work: &Work<'_>, id: &AgentId, context: u64) -> Result<()> {
    let sql = "UPDATE agents SET context = :context WHERE id = :id AND context < :context";
    let params = named_params! { ":context": whole(context), ":id": id.as_str() };
    match work.connection.prepare_cached(sql)?.execute(params)? {
        0 => Ok(()),
        _ => unshow(work, id),
    }
}

/// Returns the latest context of the agent's latest session.
pub(super) fn present_context(work: &Work<'_>, id: &AgentId) -> Result<u64> {
    let mut query = work
        .connection
        .prepare_cached("SELECT context FROM agents WHERE id = ?")?;
    Ok(query
        .query_row([id.as_str()], |row| row.get(0))
        .optional()?
        .map_or(0, i64::cast_unsigned))
}

/// Marks every message of the inbox as unshown. Messages that were shown are then delivered as repeated.
pub(super) fn unshow(work: &Work<'_>, id: &AgentId) -> Result<()> {
    let sql = "UPDATE messages INDEXED BY inbox SET shown = 0, repeated = 1
        WHERE to_agent = ? AND open = 1 AND shown = 1";
    work.connection
        .prepare_cached(sql)?
        .execute([id.as_str()])?;
    Ok(())
}

/// Returns the count as the integer of a column.
pub(super) fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Refuses a name that differs from an existing agent's name only in case.
pub(super) fn check_name(work: &Work<'_>, id: &AgentId) -> Result<()> {
    let sql = "SELECT id FROM agents INDEXED BY alike WHERE id = ? COLLATE NOCASE LIMIT 1";
    let mut query = work.connection.prepare_cached(sql)?;
    match query
        .query_row([id.as_str()], |row| Ok(parsed(row, "id")))
        .optional()?
        .transpose()?
    {
        Some(known) => Err(StoreError::Alike {
            name: id.clone(),
            known,
        }),
        None => Ok(()),
    }
}

/// Refuses another agent if the key has reached its limit of agents.
pub(super) fn check_room(work: &Work<'_>, quota: &Quota) -> Result<()> {
    let Some(limit) = quota.agents else {
        return Ok(());
    };
    let sql = "SELECT count(*) FROM agents INDEXED BY makers WHERE made_by = ? AND made_by <> ''";
    let made = count(
        work.connection
            .prepare_cached(sql)?
            .query_row([&quota.key], |row| row.get(0))?,
    );
    if made < limit {
        return Ok(());
    }
    Err(StoreError::Crowded(Crowded {
        key: quota.key.clone(),
        count: made,
        limit,
    }))
}

/// Adds an agent without a session.
pub(super) fn insert(work: &Work<'_>, id: &AgentId, quota: &Quota) -> Result<Uuid> {
    check_name(work, id)?;
    check_room(work, quota)?;
    let uid = Uuid::new_v4();
    let former = former(work, id)?;
    forget_former(work, id)?;
    let since = former.as_ref().map_or(work.now, |former| former.since);
    let host = former.map(|former| former.host);
    let mut insert = work.connection.prepare_cached(
        "INSERT INTO agents (id, base, slot, uid, capabilities, state, reach, generation, instance, fleeting, held_until,
            registered_at, last_seen, made_by, host, reserved)
            VALUES (:id, :id, 0, :uid, '[]', :state, '[]', 0, :nobody, 0, 0, :since, :now, :maker, :host, :reserved)",
    )?;
    insert.execute(named_params! {
        ":id": id.as_str(), ":uid": uid.as_bytes(), ":state": State::Stopped.as_str(),
        ":nobody": Uuid::nil().as_bytes(), ":now": stamp(work.now), ":maker": quota.key,
        ":reserved": host.is_some(), ":host": host, ":since": stamp(since),
    })?;
    Ok(uid)
}

/// Refuses a change of an agent that is another host's than this one.
pub(super) fn check_host(work: &Work<'_>, id: &AgentId, host: Option<&str>) -> Result<()> {
    let Some(host) = host else { return Ok(()) };
    find(work, id)?.map_or(Ok(()), |known| refuse_other_host(&known, host))
}

fn refuse_other_host(agent: &Agent, host: &str) -> Result<()> {
    match agent.other_host(host) {
        Some(of) => Err(reserved(&agent.id, of)),
        None => Ok(()),
    }
}

fn reserved(name: &AgentId, host: &str) -> StoreError {
    StoreError::Reserved {
        name: name.clone(),
        host: host.to_owned(),
    }
}

/// Ensures that the agent exists.
pub(super) fn introduce(
    work: &Work<'_>,
    id: &AgentId,
    host: Option<&str>,
    quota: &Quota,
) -> Result<Agent> {
    check_host(work, id, host)?;
    if find(work, id)?.is_none() {
        let former = former(work, id)?;
        if let Some(of) = former.filter(|of| host.is_some_and(|host| host != of.host)) {
            return Err(reserved(id, &of.host));
        }
        insert(work, id, quota)?;
    }
    let sql = "UPDATE agents SET host = iif(slot > 0, host, coalesce(:host, host)),
        reserved = reserved OR (slot = 0 AND :reserved), last_seen = :now WHERE id = :id";
    let reserved = host.is_some_and(|host| is_kept_for(id, host, quota));
    let params = named_params! { ":host": host, ":reserved": reserved, ":now": stamp(work.now), ":id": id.as_str() };
    work.connection.prepare_cached(sql)?.execute(params)?;
    find(work, id)?.ok_or_else(|| {
        StoreError::Corrupt(format!("agent {id} is gone right after it was written"))
    })
}

/// Changes the record.
pub(super) fn amend(
    work: &Work<'_>,
    id: &AgentId,
    speaker: Option<&Speaker>,
    amendment: &Amendment,
) -> Result<Option<Agent>> {
    check_speaker(work, speaker)?;
    if amendment.has_texts() {
        work.check_growth()?;
    }
    let session = &amendment.session;
    if let Some(state) = session.state {
        audit::record_state(work, id, speaker.and_then(Speaker::tenure), state)?;
    }
    if let Some(context) = session.context {
        enter_context(work, id, context)?;
    }
    let mut update = work.connection.prepare_cached(
        "UPDATE agents SET description = nullif(coalesce(:description, description), ''), role = coalesce(:role, role),
            capabilities = coalesce(:capabilities, capabilities), state = coalesce(:state, state),
            current_task = nullif(coalesce(:task, current_task), ''), session_id = coalesce(:session, session_id),
            reach = coalesce(:reach, reach), prompted_at = iif(:prompted, :now, prompted_at),
            held_until = coalesce(:until, held_until), last_seen = iif(:until IS NULL, last_seen, :now)
         WHERE id = :id",
    )?;
    update.execute(named_params! {
        ":id": id.as_str(), ":description": amendment.description, ":role": amendment.role,
        ":capabilities": amendment.capabilities.as_ref().map(json).transpose()?,
        ":state": session.state.map(State::as_str), ":task": amendment.current_task,
        ":session": session.session_id, ":reach": session.reach.as_ref().map(json).transpose()?,
        ":prompted": session.prompted, ":now": stamp(work.now),
        ":until": amendment.attends.map(|attends| stamp(work.now + attends)),
    })?;
    find(work, id)
}

/// Extends the lease.
pub(super) fn renew(work: &Work<'_>, tenure: &Tenure, lease: Duration) -> Result<bool> {
    if !is_current(work, tenure)? {
        return Ok(false);
    }
    hold_until(work, &tenure.agent, work.now + lease)?;
    Ok(true)
}

/// Returns whether the agent is a one-shot session, which leaves nothing behind.
pub(super) fn is_one_shot(work: &Work<'_>, id: &AgentId) -> Result<bool> {
    let sql = "SELECT 1 FROM agents WHERE id = ? AND one_shot = 1";
    Ok(work.connection.prepare_cached(sql)?.exists([id.as_str()])?)
}

/// Plans to delete the agent, unless it comes back.
pub(super) fn plan_withdrawal(work: &Work<'_>, id: &AgentId) -> Result<()> {
    match end_of_name(work, id)? {
        Some((ends, _)) => {
            let ends = Timestamp::from_millis(u64::try_from(ends).unwrap_or_default());
            duties::plan(work, &Duty::withdraw(id), ends)
        }
        None => Ok(()),
    }
}

/// Returns the time at which the agent is deleted unless it comes back, and whether it is a one-shot session. Returns `None` for
/// an agent that never had a session, and for people: they stay for good.
pub(super) fn end_of_name(work: &Work<'_>, id: &AgentId) -> Result<Option<(i64, bool)>> {
    let sql = "SELECT iif(one_shot, held_until, max(held_until, last_seen) + iif(fleeting, :soon, :late)), one_shot
        FROM agents WHERE id = :id AND id <> 'human' AND (one_shot = 1 OR fleeting = 1 OR slot > 0)";
    let params = named_params! {
        ":id": id.as_str(), ":soon": milliseconds(RETURN_MAX), ":late": milliseconds(NAME_LIFE),
    };
    let mut query = work.connection.prepare_cached(sql)?;
    Ok(query
        .query_row(params, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?)
}

/// Ends the reservations of names that were deleted long enough ago.
pub(super) fn sweep_former(work: &mut Work<'_>) -> Result<()> {
    work.connection
        .prepare_cached("DELETE FROM former WHERE at <= ?")?
        .execute([before(work, FORMER_LIFE)])?;
    Ok(())
}

/// Returns the time that long ago.
pub(super) fn before(work: &Work<'_>, life: Duration) -> i64 {
    stamp(work.now).saturating_sub(milliseconds(life))
}

/// Returns the host to which the name of a deleted agent stays reserved.
pub(super) fn former(work: &Work<'_>, id: &AgentId) -> Result<Option<Holder>> {
    let sql = "SELECT host, since FROM former WHERE id = lower(?) AND at > ?";
    let params = (id.as_str(), before(work, FORMER_LIFE));
    let mut query = work.connection.prepare_cached(sql)?;
    let former = query.query_row(params, |row| Ok(read_holder(row)));
    former.optional()?.transpose()
}

fn read_holder(row: &Row<'_>) -> Result<Holder> {
    Ok(Holder {
        host: row.get("host")?,
        since: moment(row, "since")?,
    })
}

/// Returns the host that has an agent of this name in any case, or to which the name of a deleted one stays reserved.
pub(super) fn holder(work: &Work<'_>, id: &AgentId) -> Result<Option<Holder>> {
    let sql = "SELECT host, registered_at AS since FROM agents INDEXED BY alike WHERE id = :id COLLATE NOCASE AND host IS NOT NULL
        UNION ALL SELECT host, since FROM former WHERE id = lower(:id) AND at > :ended LIMIT 1";
    let params = named_params! { ":id": id.as_str(), ":ended": before(work, FORMER_LIFE) };
    let mut query = work.connection.prepare_cached(sql)?;
    let holder = query.query_row(params, |row| Ok(read_holder(row)));
    holder.optional()?.transpose()
}

/// Ends the reservation of a deleted agent's name. Returns whether there was one.
pub(super) fn forget_former(work: &Work<'_>, id: &AgentId) -> Result<bool> {
    Ok(work
        .connection
        .prepare_cached("DELETE FROM former WHERE id = lower(?)")?
        .execute([id.as_str()])?
        == 1)
}

/// Gives the names that stay reserved for a host, of agents made with that key, to its new name.
pub(super) fn move_reservations(work: &Work<'_>, key: &str, from: &str, to: &str) -> Result<()> {
    let sql = "UPDATE former SET host = ? WHERE host = ? AND made_by = ?";
    work.connection
        .prepare_cached(sql)?
        .execute((to, from, key))?;
    Ok(())
}

/// Moves the agents of one host under a base name to another host.
pub(super) fn move_host(work: &Work<'_>, base: &AgentId, from: &str, to: &str) -> Result<usize> {
    let sql = "SELECT slot FROM agents WHERE base = ? AND host = ? AND slot > 0";
    let slots = |host: &str| -> Result<Vec<u32>> {
        let mut query = work.connection.prepare_cached(sql)?;
        let slots = query.query_map((base.as_str(), host), |row| row.get(0))?;
        Ok(slots.collect::<rusqlite::Result<_>>()?)
    };
    for (slot, free) in displaced(&slots(from)?, &slots(to)?) {
        let sql = "UPDATE agents SET slot = ?, fleeting = 1 WHERE base = ? AND host = ? AND slot = ? RETURNING id";
        let moved: AgentId = work
            .connection
            .prepare_cached(sql)?
            .query_row((free, base.as_str(), to, slot), |row| Ok(parsed(row, "id")))??;
        plan_withdrawal(work, &moved)?;
    }
    let sql = "UPDATE agents SET host = ? WHERE base = ? AND host = ?";
    Ok(work
        .connection
        .prepare_cached(sql)?
        .execute((to, base.as_str(), from))?)
}

pub(super) fn hold_until(work: &Work<'_>, id: &AgentId, until: Timestamp) -> Result<bool> {
    let mut update = work
        .connection
        .prepare_cached("UPDATE agents SET held_until = ?, last_seen = ? WHERE id = ?")?;
    Ok(update.execute((stamp(until), stamp(work.now), id.as_str()))? == 1)
}

/// Refuses a session that no longer holds the agent.
pub(super) fn check_tenure(
    work: &Work<'_>,
    agent: &AgentId,
    tenure: Option<&Tenure>,
) -> Result<()> {
    match tenure {
        Some(tenure) if tenure.agent != *agent || !is_current(work, tenure)? => {
            Err(StoreError::TakenOver(agent.clone()))
        }
        _ => Ok(()),
    }
}

/// Refuses a caller that may act as its agent no longer.
pub(super) fn check_speaker(work: &Work<'_>, speaker: Option<&Speaker>) -> Result<()> {
    match speaker {
        None => Ok(()),
        Some(Speaker::Session(tenure)) => check_tenure(work, &tenure.agent, Some(tenure)),
        Some(Speaker::OfHost(agent, host)) => match find(work, agent)? {
            Some(known) => refuse_other_host(&known, host),
            None => Err(StoreError::TakenOver(agent.clone())),
        },
    }
}

pub(super) fn is_current(work: &Work<'_>, tenure: &Tenure) -> Result<bool> {
    let mut query = work.connection.prepare_cached(
        "SELECT 1 FROM agents WHERE id = ? AND uid = ? AND generation = ? AND instance = ?",
    )?;
    let generation = tenure.generation.cast_signed();
    let names = (
        tenure.agent.as_str(),
        tenure.uid.as_bytes(),
        generation,
        tenure.instance.as_bytes(),
    );
    Ok(query.exists(names)?)
}

pub(super) fn is_latest_link(work: &Work<'_>, tenure: &Tenure) -> Result<bool> {
    let mut query = work
        .connection
        .prepare_cached("SELECT 1 FROM agents WHERE id = ? AND link = ?")?;
    Ok(query.exists((tenure.agent.as_str(), whole(tenure.link)))?)
}

pub(super) fn namesake(row: &Row<'_>) -> Result<Namesake> {
    let (host, slot): (Option<String>, u32) = (row.get("host")?, row.get("slot")?);
    let base = parsed(row, "base")?;
    Ok(Namesake {
        id: parsed(row, "id")?,
        owner: host
            .clone()
            .filter(|_| slot > 0)
            .map(|host| Owner { base, host, slot }),
        host,
        instance: Uuid::from_bytes(row.get("instance")?),
        held_until: moment(row, "held_until")?,
    })
}

fn agent(row: &Row<'_>) -> Result<Agent> {
    let Namesake {
        id,
        owner,
        host,
        instance,
        held_until,
    } = namesake(row)?;
    Ok(Agent {
        id,
        owner,
        host,
        uid: Uuid::from_bytes(row.get("uid")?),
        session_id: row.get("session_id")?,
        description: row.get("description")?,
        capabilities: from_json(row, "capabilities")?,
        role: row.get("role")?,
        state: parsed(row, "state")?,
        current_task: row.get("current_task")?,
        reach: from_json(row, "reach")?,
        generation: row.get::<_, i64>("generation")?.cast_unsigned(),
        context: row.get::<_, i64>("context")?.cast_unsigned(),
        instance,
        held_until,
        registered_at: moment(row, "registered_at")?,
        last_seen: moment(row, "last_seen")?,
        prompted_at: Some(moment(row, "prompted_at")?).filter(|at| at.millis() > 0),
        made_by: row.get("made_by")?,
    })
}

#[cfg(test)]
mod tests {
    use c3po_shared::ids::AgentId;
    use rusqlite::Connection;

    use crate::config::Fleet;
    use crate::store::sqlite::SqliteStore;
    use crate::store::{Quota, Store, StoreError};

    #[tokio::test]
    async fn names_of_before_that_differ_in_case_alone_go_on() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default())
            .await
            .expect("a store");
        let introduce = async |name: &str| {
            let name: AgentId = name.parse().expect("an id");
            store
                .introduce(&name, None, &Quota::default())
                .await
                .map(|agent| agent.id.to_string())
        };
        introduce("web").await.expect("it is new");
        introduce("api").await.expect("it is new");
        let other = Connection::open(&path).expect("the same file");
        other
            .execute("UPDATE agents SET id = 'Web' WHERE id = 'api'", [])
            .expect("as an earlier build had it");
        assert_eq!(introduce("web").await.expect("it is there"), "web");
        assert_eq!(introduce("Web").await.expect("it is there"), "Web");
        assert!(matches!(
            introduce("WEB").await,
            Err(StoreError::Alike { .. })
        ));
        store.close().await;
    }
}
