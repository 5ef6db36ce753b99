//! Who there is and who holds which name.

use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::limits::ARCHIVE_LIFE;
use c3po_shared::vocabulary::State;
use futures_util::future::try_join_all;
use uuid::Uuid;

use super::connection::Connection;
use super::records::{self, AGENT_FIELDS, Fields};
use super::scripts::Call;
use super::{keys, messages, millis, scripts};
use crate::store::{Agent, Amendment, Claim, Result, StoreError, Tenure};

/// How long the last position outlives a forgotten agent: longer than anything that has an earlier one.
const POSITION_LIFE: Duration = ARCHIVE_LIFE.saturating_mul(4);
/// How many names are read at once.
const NAMES: usize = 500;

/// Takes a name for a session.
pub(super) async fn claim(connection: &Connection, claim: &Claim) -> Result<Option<Tenure>> {
    let listed = list_first(connection, &claim.name).await?;
    let taken: Option<(String, u64, u64)> = connection
        .invoke(
            scripts::about(&scripts::CLAIM, &claim.name)
                .arg(claim.instance.to_string())
                .arg(millis(claim.lease))
                .arg(Uuid::new_v4().to_string())
                .arg(claim.host.as_deref().unwrap_or_default())
                .arg(claim.session_id.as_deref().unwrap_or_default())
                .arg(records::write(&claim.reach)?)
                .arg(u8::from(claim.suffixed))
                .arg(claim.context)
                .arg(claim.state.map_or("", State::as_str))
                .arg(claim.succeeds.iter().map(Uuid::to_string).collect::<Vec<_>>().join(" ")),
        )
        .await?;
    if listed {
        list(connection, &claim.name).await?;
    }
    let Some((uid, generation, link)) = taken else { return Ok(None) };
    let uid = records::parse(&uid)?;
    Ok(Some(Tenure { agent: claim.name.clone(), uid, generation, instance: claim.instance, link }))
}

/// Makes a hold last.
pub(super) async fn renew(connection: &Connection, tenure: &Tenure, lease: Duration) -> Result<bool> {
    connection
        .invoke(
            scripts::about(&scripts::RENEW, &tenure.agent)
                .arg(tenure.generation)
                .arg(tenure.instance.to_string())
                .arg(millis(lease)),
        )
        .await
}

/// Ends a session's hold.
pub(super) async fn release(connection: &Connection, tenure: &Tenure) -> Result<()> {
    let became: String = connection
        .invoke(
            scripts::about(&scripts::RELEASE, &tenure.agent)
                .arg(tenure.generation)
                .arg(tenure.instance.to_string())
                .arg(tenure.link)
                .arg(millis(POSITION_LIFE)),
        )
        .await?;
    if became == "forgotten" {
        unlist(connection, &tenure.agent).await?;
    }
    Ok(())
}

/// Ends any hold, and forgets an agent that nothing waits for.
pub(super) async fn unregister(connection: &Connection, id: &AgentId) -> Result<bool> {
    let became: String = connection.invoke(scripts::about(&scripts::UNREGISTER, id).arg(millis(POSITION_LIFE))).await?;
    if became == "forgotten" {
        unlist(connection, id).await?;
    }
    Ok(became != "unknown")
}

/// Reads an agent.
pub(super) async fn agent(connection: &Connection, id: &AgentId) -> Result<Option<Agent>> {
    let fields: Fields = connection.run(redis::cmd("HMGET").arg(keys::agent(id)).arg(&AGENT_FIELDS)).await?;
    records::agent(id, fields)
}

/// Reads a page of agents.
pub(super) async fn agents(connection: &Connection, after: Option<&AgentId>, limit: usize) -> Result<Vec<Agent>> {
    let mut page = Vec::new();
    let mut after = after.cloned();
    while page.len() < limit {
        let names = names(connection, after.as_ref(), NAMES.min(limit - page.len())).await?;
        let Some(last) = names.last() else { break };
        after = Some(last.clone());
        let found = try_join_all(names.iter().map(|name| agent(connection, name))).await?;
        for (name, agent) in names.iter().zip(found) {
            match agent {
                Some(agent) => page.push(agent),
                None => unlist(connection, name).await?,
            }
        }
    }
    Ok(page)
}

/// Reads names of agents that there may be, in order.
pub(super) async fn names(connection: &Connection, after: Option<&AgentId>, limit: usize) -> Result<Vec<AgentId>> {
    let from = after.map_or_else(|| "-".to_owned(), |id| format!("({id}"));
    let names: Vec<String> = connection
        .run(redis::cmd("ZRANGEBYLEX").arg(keys::AGENTS).arg(from).arg("+").arg("LIMIT").arg(0).arg(limit))
        .await?;
    names.iter().map(|name| records::parse(name)).collect()
}

/// Makes sure that an agent exists.
pub(super) async fn introduce(connection: &Connection, id: &AgentId, host: Option<&str>) -> Result<Agent> {
    let listed = list_first(connection, id).await?;
    loop {
        let _: u8 = connection
            .invoke(
                scripts::about(&scripts::INTRODUCE, id).arg(Uuid::new_v4().to_string()).arg(host.unwrap_or_default()),
            )
            .await?;
        if listed {
            list(connection, id).await?;
        }
        // Whoever forgets it in between makes this begin again; the caller's deadline ends it.
        if let Some(agent) = agent(connection, id).await? {
            return Ok(agent);
        }
    }
}

/// Changes a record.
pub(super) async fn amend(
    connection: &Connection,
    id: &AgentId,
    tenure: Option<&Tenure>,
    amendment: &Amendment,
) -> Result<Option<Agent>> {
    let capabilities = amendment.capabilities.as_ref().map(records::write).transpose()?;
    let reach = amendment.reach.as_ref().map(records::write).transpose()?;
    let changes = [
        ("description", amendment.description.as_deref()),
        ("capabilities", capabilities.as_deref()),
        ("role", amendment.role.as_deref()),
        ("state", amendment.state.map(|state| state.as_str())),
        ("current_task", amendment.current_task.as_deref()),
        ("session_id", amendment.session_id.as_deref()),
        ("reach", reach.as_deref()),
    ];
    let mut script = scripts::about(&scripts::AMEND, id);
    messages::fence(&mut script, tenure);
    script.arg(amendment.context.map(|context| context.to_string()).unwrap_or_default());
    for (field, value) in changes {
        if let Some(value) = value {
            script.arg(field).arg(value);
        }
    }
    let became: String = connection.invoke(&script).await?;
    match became.as_str() {
        "done" => agent(connection, id).await,
        "unknown" => Ok(None),
        _ => Err(StoreError::TakenOver(id.clone())),
    }
}

/// Notes the name of an agent. Done before it is made, for a crash, and after, for [`unlist`] at the same time.
async fn list(connection: &Connection, id: &AgentId) -> Result<()> {
    connection.invoke(Call::new(&scripts::AGENTS_NOTE, keys::AGENTS).arg(id.as_str())).await
}

/// Notes the name of an agent that is about to be taken. Returns false where the list is away, as one server of a
/// cluster can be, and the agent exists: then its name was noted when it was made.
async fn list_first(connection: &Connection, id: &AgentId) -> Result<bool> {
    match list(connection, id).await {
        Err(StoreError::Unavailable(_)) if exists(connection, id).await? => Ok(false),
        answer => answer.map(|()| true),
    }
}

async fn exists(connection: &Connection, id: &AgentId) -> Result<bool> {
    connection.run(redis::cmd("EXISTS").arg(keys::agent(id))).await
}

/// Removes the name of an agent that is no more, unless it has come back meanwhile.
async fn unlist(connection: &Connection, id: &AgentId) -> Result<()> {
    let () = connection.run(redis::cmd("ZREM").arg(keys::AGENTS).arg(id.as_str())).await?;
    if exists(connection, id).await? { list(connection, id).await } else { Ok(()) }
}
