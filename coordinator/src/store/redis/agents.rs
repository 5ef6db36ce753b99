//! Agents in Redis: claims, leases and records.

use std::time::Duration;

use c3po_shared::audit::Entry;
use c3po_shared::ids::AgentId;
use c3po_shared::limits::NAME_LIFE;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::State;
use redis::Value;
use uuid::Uuid;

use super::library::Call;
use super::records::{self, Fields, corrupt};
use super::speaker::{describe_speaker, key_argument, session_argument, unless_refused};
use super::{RedisStore, millis};
use crate::clock;
use crate::store::{
    AGENTS_STEP, Agent, Amendment, Claim, Crowded, Ending, FORMER_LIFE, Holder, Namesake, Quota,
    RETURN_MAX, Removal, Result, Speaker, StoreError, Tenure, is_kept_for,
};

/// How many agents one call reads.
const STEP: usize = 100;

/// Claims a name for a session.
pub(super) async fn claim(store: &RedisStore, claim: &Claim) -> Result<Option<Tenure>> {
    let mut call = store.names.call_about("claim", &claim.name);
    call.arg(claim.instance.to_string())
        .arg(millis(claim.lease))
        .arg(Uuid::new_v4().to_string())
        .arg(&claim.owner.host)
        .arg(claim.session_id.as_deref().unwrap_or_default())
        .arg(records::write(&claim.reach)?)
        .arg(u8::from(claim.fleeting))
        .arg(claim.context)
        .arg(claim.state.map_or("", State::as_str))
        .arg(
            claim
                .succeeds
                .iter()
                .map(Uuid::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        )
        .arg(u8::from(claim.one_shot))
        .arg(claim.owner.base.as_str())
        .arg(claim.owner.slot);
    describe_quota(&mut call, &claim.quota);
    call.arg(u8::from(claim.reserved))
        .arg(claim.key.as_deref().unwrap_or_default())
        .arg(claim.kind)
        .arg(millis(RETURN_MAX))
        .arg(millis(NAME_LIFE));
    let told: Option<Vec<Value>> = store.connection.invoke(&call).await?;
    let Some(told) = told else { return Ok(None) };
    check_made(&claim.name, &told, &claim.quota)?;
    store.wakes.log_grew();
    let (uid, generation, link, one_shot): (String, u64, u64, bool) =
        redis::from_redis_value(Value::Array(told)).map_err(corrupt)?;
    let uid = records::parse(&uid)?;
    Ok(Some(Tenure {
        agent: claim.name.clone(),
        uid,
        generation,
        instance: claim.instance,
        link,
        one_shot,
        key: claim.key.clone(),
    }))
}

/// Adds the key that may make an agent, and its limit of agents.
fn describe_quota(call: &mut Call, quota: &Quota) {
    call.arg(quota.agents.map_or("", |_| quota.key.as_str()))
        .arg(quota.agents.unwrap_or_default());
}

/// Returns the error of a function that refused to make an agent.
fn check_made(name: &AgentId, told: &[Value], quota: &Quota) -> Result<()> {
    match told {
        [Value::BulkString(word), Value::Int(count)] if word == b"crowded" => {
            let count = usize::try_from(*count).unwrap_or_default();
            Err(StoreError::Crowded(Crowded {
                key: quota.key.clone(),
                count,
                limit: quota.agents.unwrap_or_default(),
            }))
        }
        [Value::BulkString(word), Value::BulkString(host)] if word == b"reserved" => {
            Err(StoreError::Reserved {
                name: name.clone(),
                host: String::from_utf8_lossy(host).into_owned(),
            })
        }
        [Value::BulkString(word), Value::BulkString(known)] if word == b"alike" => {
            let known = records::parse(&String::from_utf8_lossy(known))?;
            Err(StoreError::Alike {
                name: name.clone(),
                known,
            })
        }
        _ => Ok(()),
    }
}

/// Extends a lease.
pub(super) async fn renew(store: &RedisStore, tenure: &Tenure, lease: Duration) -> Result<bool> {
    let mut call = store.names.call_about("renew", &tenure.agent);
    store
        .connection
        .invoke(call.arg(session_argument(Some(tenure))).arg(millis(lease)))
        .await
}

/// Ends the lease of a session.
pub(super) async fn release(store: &RedisStore, tenure: &Tenure, ending: &Ending) -> Result<()> {
    let mut call = store.names.call_about("release", &tenure.agent);
    call.arg(session_argument(Some(tenure)))
        .arg(tenure.link)
        .arg(u8::from(ending.is_over()))
        .arg(millis(FORMER_LIFE))
        .arg(key_argument(Some(tenure)))
        .arg(ending.word())
        .arg(ending.new_name().map_or("", AgentId::as_str));
    store.connection.invoke::<u8>(&call).await?;
    store.wakes.log_grew();
    Ok(())
}

/// Ends the lease, and deletes the agent if its inbox is empty.
pub(super) async fn unregister(
    store: &RedisStore,
    id: &AgentId,
    host: Option<&str>,
    entry: Option<&Entry>,
) -> Result<bool> {
    let mut call = store.names.call_about("unregister", id);
    call.arg(millis(FORMER_LIFE)).arg(host.unwrap_or_default());
    Ok(ended(store, id, call, entry).await? == 1)
}

/// Deletes an agent together with the messages in its inbox.
pub(super) async fn remove(
    store: &RedisStore,
    id: &AgentId,
    host: Option<&str>,
    frees: bool,
    entry: Option<&Entry>,
) -> Result<Removal> {
    let mut call = store.names.call_about("remove", id);
    call.arg(millis(FORMER_LIFE))
        .arg(host.unwrap_or_default())
        .arg(u8::from(frees));
    Ok(match ended(store, id, call, entry).await? {
        0 => Removal::Unknown,
        1 => Removal::Removed,
        _ => Removal::Held,
    })
}

/// Calls a function that ends the use of an agent, unless it is another host's. Returns its number.
async fn ended(store: &RedisStore, id: &AgentId, call: Call, entry: Option<&Entry>) -> Result<i64> {
    match store.logged(call, entry).await? {
        Value::Int(number) => Ok(number),
        Value::BulkString(host) => Err(StoreError::Reserved {
            name: id.clone(),
            host: String::from_utf8_lossy(&host).into_owned(),
        }),
        other => Err(corrupt(format!("the end of an agent: {other:?}"))),
    }
}

/// Returns the host that has an agent of this name, or to which the name of a deleted one stays reserved.
pub(super) async fn holder(store: &RedisStore, id: &AgentId) -> Result<Option<Holder>> {
    let call = store.names.call_about("holder", id);
    let found: Option<(String, u64)> = store.connection.invoke(&call).await?;
    Ok(found.map(|(host, since)| Holder {
        host,
        since: Timestamp::from_millis(since),
    }))
}

/// Moves the agents of one host under a base name to another host.
pub(super) async fn move_host(
    store: &RedisStore,
    base: &AgentId,
    from: &str,
    to: &str,
) -> Result<usize> {
    let keys = [store.names.namesakes(base), store.names.agent(base)];
    let mut call = store.names.call("move_host", keys);
    call.arg(from).arg(to);
    let mut moved = 0;
    loop {
        match store.connection.invoke::<usize>(&call).await? {
            0 => return Ok(moved),
            more => moved += more,
        }
    }
}

/// Gives the names that stay reserved for a host, of agents made with that key, to its new name.
pub(super) async fn move_reservations(
    store: &RedisStore,
    key: &str,
    from: &str,
    to: &str,
) -> Result<()> {
    let mut offset: usize = 0;
    loop {
        let mut call = store.names.call("move_reservations", []);
        call.arg(key).arg(from).arg(to).arg(offset);
        match store.connection.invoke::<usize>(&call).await? {
            0 => return Ok(()),
            read => offset += read,
        }
    }
}

/// Reads the agents whose owners requested this name, and the one whose id it is.
pub(super) async fn namesakes(store: &RedisStore, base: &AgentId) -> Result<Vec<Namesake>> {
    let key = store.names.namesakes(base);
    let owned: Vec<(String, String)> = store.connection.run(redis::cmd("HGETALL").arg(key)).await?;
    let mut names: Vec<String> = owned
        .into_iter()
        .map(|(_, name)| name)
        .chain([base.to_string()])
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut namesakes = Vec::with_capacity(names.len());
    // A few at a time, because there may be a thousand and others want to read between.
    for names in names.chunks(AGENTS_STEP) {
        let mut call = store.names.call("namesakes", []);
        names.iter().for_each(|name| {
            call.arg(name);
        });
        let found: Vec<(String, Fields)> = store.connection.invoke(&call).await?;
        for (name, fields) in found {
            namesakes.extend(records::namesake(records::parse(&name)?, fields)?);
        }
    }
    Ok(namesakes)
}

/// Reads an agent.
pub(super) async fn agent(store: &RedisStore, id: &AgentId) -> Result<Option<Agent>> {
    let record = store.names.agent(id);
    let fields: Fields = store
        .connection
        .run(redis::cmd("HMGET").arg(record).arg(&records::AGENT_FIELDS))
        .await?;
    records::agent(id, fields)
}

/// Reads a page of agents.
pub(super) async fn agents(
    store: &RedisStore,
    after: Option<&AgentId>,
    limit: usize,
) -> Result<Vec<Agent>> {
    let mut page: Vec<Agent> = Vec::new();
    let mut after = after.cloned();
    while page.len() < limit {
        let wanted = STEP.min(limit - page.len());
        let mut call = store.names.call("agents", [store.names.key("agents")]);
        call.arg(after.as_ref().map(AgentId::as_str).unwrap_or_default())
            .arg(wanted);
        let found: Vec<(String, Fields)> = store.connection.invoke(&call).await?;
        let is_last = found.len() < wanted;
        for (name, fields) in found {
            let name: AgentId = records::parse(&name)?;
            page.extend(records::agent(&name, fields)?);
            after = Some(name);
        }
        if is_last {
            break;
        }
    }
    Ok(page)
}

/// Ensures that an agent exists.
pub(super) async fn introduce(
    store: &RedisStore,
    id: &AgentId,
    host: Option<&str>,
    quota: &Quota,
) -> Result<Agent> {
    let mut call = store.names.call_about("introduce", id);
    call.arg(Uuid::new_v4().to_string())
        .arg(host.unwrap_or_default());
    describe_quota(&mut call, quota);
    call.arg(u8::from(
        host.is_some_and(|host| is_kept_for(id, host, quota)),
    ));
    let told: Vec<Value> = store.connection.invoke(&call).await?;
    check_made(id, &told, quota)?;
    let fields: Fields = redis::from_redis_value(Value::Array(told)).map_err(corrupt)?;
    records::agent(id, fields)?.ok_or_else(|| corrupt("an agent without a record"))
}

/// Changes a record.
pub(super) async fn amend(
    store: &RedisStore,
    id: &AgentId,
    speaker: Option<&Speaker>,
    amendment: &Amendment,
) -> Result<Option<Agent>> {
    let capabilities = amendment
        .capabilities
        .as_ref()
        .map(records::write)
        .transpose()?;
    let session = &amendment.session;
    let reach = session.reach.as_ref().map(records::write).transpose()?;
    let prompted_at = session.prompted.then(|| clock::now().millis().to_string());
    let changes = [
        ("description", amendment.description.as_deref()),
        ("capabilities", capabilities.as_deref()),
        ("role", amendment.role.as_deref()),
        ("current_task", amendment.current_task.as_deref()),
        ("session_id", session.session_id.as_deref()),
        ("reach", reach.as_deref()),
        ("prompted_at", prompted_at.as_deref()),
    ];
    let mut call = store.names.call_about("amend", id);
    describe_speaker(&mut call, speaker);
    call.arg(
        session
            .context
            .map(|context| context.to_string())
            .unwrap_or_default(),
    );
    call.arg(
        amendment
            .attends
            .map(|attends| attends.as_millis().to_string())
            .unwrap_or_default(),
    );
    call.arg(key_argument(speaker.and_then(Speaker::tenure)))
        .arg(session.state.map_or("", State::as_str));
    for (field, value) in changes {
        if let Some(value) = value {
            call.arg(field).arg(value);
        }
    }
    let record = unless_refused(speaker, store.connection.invoke(&call).await?)?;
    if session.state.is_some() {
        store.wakes.log_grew();
    }
    match record {
        Value::Nil => Ok(None),
        fields => records::agent(id, redis::from_redis_value(fields).map_err(corrupt)?),
    }
}
