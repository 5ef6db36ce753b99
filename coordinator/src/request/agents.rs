//! Calls about agents: listing, status and registration.

use c3po_shared::catalogue::{self as tools, AgentDetails, Agents, Pong, Reply, StatusSet};
use c3po_shared::host;
use c3po_shared::ids::AgentId;
use c3po_shared::limits::{PAGE_BYTES, PAGE_DEFAULT, SILENCE_MAX};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Status;
use c3po_shared::wire::SessionChange;

use super::page::PAGE_FRAME;
use super::{Asking, Caller, Done, Services, check_right, drop_number, settle_name, target};
use crate::auth::Right;
use crate::clock;
use crate::store::{AGENTS_STEP, Agent, Amendment, Claim, Ending, Owner, Quota, Tenure};

/// `ping`
pub(super) fn ping(caller: &Caller) -> Reply {
    Reply::Pong(Pong {
        pong: true,
        timestamp: clock::now(),
        coordinator: concat!("c3po-coordinator ", env!("CARGO_PKG_VERSION")).to_owned(),
        agent_id: caller.agent.clone(),
        link: None,
        round_trip_ms: None,
    })
}

/// `list_agents`
pub(super) async fn list(
    services: &Services,
    caller: &Caller,
    call: tools::ListAgents,
) -> Result<Reply, Refusal> {
    check_right(services, &caller.principal, Right::Look)?;
    let limit = call.limit.unwrap_or(PAGE_DEFAULT);
    let mut after: Option<AgentId> = call.cursor.as_deref().map(str::parse).transpose()?;
    let (asking, now) = (
        Asking::read(services, &caller.principal).await?,
        clock::now(),
    );
    let (mut agents, mut size) = (Vec::new(), PAGE_FRAME);
    loop {
        let page = services
            .agents(&caller.principal, after.as_ref(), AGENTS_STEP)
            .await?;
        let complete = page.len() < AGENTS_STEP;
        for agent in page {
            if matches(&agent, &call, now) {
                let record = asking.record(&agent, now);
                size += serde_json::to_vec(&record).map_or(0, |json| json.len()) + 1;
                if agents.len() == limit || (!agents.is_empty() && size > PAGE_BYTES) {
                    let next_cursor = after.map(|id| id.to_string());
                    return Ok(Reply::Agents(Agents {
                        agents,
                        next_cursor,
                        you: caller.agent.clone(),
                    }));
                }
                agents.push(record);
            }
            after = Some(agent.id);
        }
        if complete {
            return Ok(Reply::Agents(Agents {
                agents,
                next_cursor: None,
                you: caller.agent.clone(),
            }));
        }
    }
}

fn matches(agent: &Agent, call: &tools::ListAgents, now: Timestamp) -> bool {
    call.status
        .is_none_or(|status| (status == Status::Online) == agent.is_online(now))
        && call
            .host
            .as_ref()
            .is_none_or(|host| agent.host.as_ref() == Some(host))
        && call
            .capability
            .as_ref()
            .is_none_or(|capability| agent.capabilities.contains(capability))
}

/// `get_agent_status`
pub(super) async fn status(
    services: &Services,
    caller: &Caller,
    call: tools::GetAgentStatus,
) -> Result<Reply, Refusal> {
    let agent = target::find(services, &caller.principal, &call.agent_id).await?;
    let pending = services.store.pending(&agent.id).await?;
    let asking = Asking::read(services, &caller.principal).await?;
    let now = clock::now();
    Ok(Reply::AgentDetails(AgentDetails {
        agent: asking.record(&agent, now),
        current_task: agent.current_task.filter(|task| !task.is_empty()),
        pending: pending.count,
        oldest_pending_seconds: pending.oldest.map(|oldest| now.since(oldest).as_secs()),
    }))
}

/// `set_status`
pub(super) async fn set_status(
    services: &Services,
    caller: &Caller,
    call: tools::SetStatus,
) -> Result<Reply, Refusal> {
    check_own(caller)?;
    let amendment = Amendment {
        current_task: call.current_task,
        description: call.description,
        ..Amendment::from(SessionChange {
            state: Some(call.status),
            ..SessionChange::default()
        })
    };
    let agent = amend(services, caller, &amendment).await?;
    Ok(Reply::StatusSet(StatusSet {
        success: true,
        agent: agent.record(clock::now()),
    }))
}

/// Refuses to describe `human`, which is every person: one that is away would keep the questions of all agents from the others.
fn check_own(caller: &Caller) -> Result<(), Refusal> {
    if caller.agent != AgentId::human() {
        return Ok(());
    }
    let error = "human is every person's and has no state or description of its own";
    Err(Refusal::new(ErrorCode::Forbidden, error).suggest("Act as another agent."))
}

async fn amend(
    services: &Services,
    caller: &Caller,
    amendment: &Amendment,
) -> Result<Agent, Refusal> {
    let agent = services
        .store
        .amend(&caller.agent, caller.speaker().as_ref(), amendment)
        .await?;
    agent.ok_or_else(|| Refusal::agent_not_found(caller.agent.as_str(), &[]))
}

/// `register_agent`: records the caller's capabilities. With another name, the caller becomes that agent.
///
/// The previous agent keeps its inbox, as after the end of a session.
pub(super) async fn register(
    services: &Services,
    caller: &Caller,
    call: tools::RegisterAgent,
) -> Result<Done, Refusal> {
    let renamed = match &call.name {
        Some(name) => rename(services, caller, name).await?,
        None => None,
    };
    check_own(renamed.as_ref().unwrap_or(caller))?;
    let amendment = Amendment {
        capabilities: call.capabilities,
        description: call.description,
        role: call.role,
        ..Amendment::default()
    };
    let agent = amend(services, renamed.as_ref().unwrap_or(caller), &amendment).await?;
    Ok(Done {
        reply: Reply::Agent(agent.record(clock::now())),
        renamed,
        held: None,
    })
}

async fn rename(
    services: &Services,
    caller: &Caller,
    name: &str,
) -> Result<Option<Caller>, Refusal> {
    let name = AgentId::from_any(name).ok_or_else(|| {
        Refusal::invalid(format!(
            "name: no part of '{}' can be an agent id",
            name.trim()
        ))
    })?;
    if name == caller.agent {
        return Ok(None);
    }
    let (Some(tenure), true) = (&caller.tenure, caller.renamable) else {
        let error = format!(
            "this connection cannot change its name from {} to {name}",
            caller.agent
        );
        return Err(Refusal::new(ErrorCode::NotSupported, error)
            .suggest("Set the name when you connect: X-Agent-ID for /mcp, --as for commands."));
    };
    let before = services.store.agent(&caller.agent).await?;
    let owner = before.as_ref().and_then(|agent| agent.owner.as_ref());
    let has_number = owner.is_some_and(|owner| owner.base == name);
    let wish = wish(caller, tenure, name, before);
    let taken = if has_number {
        drop_number(services, &caller.principal, &wish).await?
    } else {
        Some(settle_name(services, &caller.principal, wish, None).await?)
    };
    let Some(taken) = taken else {
        return Ok(None);
    };
    // The new name is kept even if the old one is not released, because the old lease runs out by itself.
    let ending = Ending::Renamed(taken.agent.clone());
    if let Err(error) = services.store.release(tenure, ending).await {
        tracing::warn!("{} was not released: {error}", tenure.agent);
    }
    Ok(Some(Caller {
        agent: taken.agent.clone(),
        tenure: Some(taken),
        ..caller.clone()
    }))
}

/// Returns the claim of a session that takes another name, with the record of its present name.
fn wish(caller: &Caller, tenure: &Tenure, name: AgentId, before: Option<Agent>) -> Claim {
    let host = caller
        .host
        .clone()
        .unwrap_or_else(|| host::UNKNOWN.to_owned());
    Claim {
        owner: Owner {
            base: name.clone(),
            host,
            slot: 1,
        },
        name,
        instance: tenure.instance,
        session_id: before.as_ref().and_then(|agent| agent.session_id.clone()),
        context: before
            .as_ref()
            .map(|agent| agent.context)
            .unwrap_or_default(),
        state: before.as_ref().map(|agent| agent.state),
        reach: before.map(|agent| agent.reach).unwrap_or_default(),
        succeeds: Vec::new(),
        fleeting: false,
        one_shot: false,
        reserved: false,
        lease: SILENCE_MAX,
        quota: Quota::default(),
        key: None,
        kind: "session",
    }
}
