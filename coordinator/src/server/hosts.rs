//! Hosts and their agents over HTTP: deleting an agent, and renaming a host.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::host::{AgentRemoval, HostRenaming, RemovedAgent, RenamedHost, is_same};
use c3po_shared::ids::AgentId;
use c3po_shared::join::check_name;
use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::time::sleep;

use super::AppState;
use super::endpoint::{Body, By, RestAnswer};
use super::keys::changed;
use crate::auth::invites::{invites, revoke_invite};
use crate::auth::looks::KEYS_KNOWN_WITHIN;
use crate::auth::{NAMES_WITHOUT_KEY, Principal, Right, check_free, issue, renames};
use crate::clock;
use crate::request::{
    CALL_DEADLINE, begin_call, begin_change, check_host, check_name as check_speaker_name, select,
};
use crate::store::{Agent, BEGUN_WITHIN, Key, Removal, Store};

/// `POST /api/agents/remove`
pub(super) async fn remove(
    State(server): State<AppState>,
    By(principal): By,
    Body(AgentRemoval { agent_id }, _held): Body<AgentRemoval>,
) -> RestAnswer<RemovedAgent> {
    let store = &server.services.store;
    if agent_id.is_reserved() {
        let error = format!("{agent_id} is not the agent of a session");
        return Err(Refusal::new(ErrorCode::AgentNotFound, error).into());
    }
    let looking = begin_call(&principal).await?;
    issue::check_standing(store.as_ref(), &principal).await?;
    let known = store.agent(&agent_id).await?;
    check_remover(&server, &principal, &agent_id, known.as_ref())?;
    let host = match &known {
        Some(agent) => agent.host.clone(),
        None => store.holder(&agent_id).await?.map(|holder| holder.host),
    };
    let expired = store.pending(&agent_id).await?.count;
    drop(looking);
    let _removing = begin_change(&principal, expired).await?;
    // An administrator may give the name to another host; a host keeps the names of its agents.
    let frees = principal.check(Right::Administer).is_ok();
    let entry = Entry::new(Event::SessionEnded).by(&agent_id);
    let entry = principal.sign(entry.verb("removed"));
    let host_of_remover = principal.own_host().filter(|_| !frees);
    let removal = store.remove(&agent_id, host_of_remover, frees, Some(&entry));
    match removal.await? {
        Removal::Unknown => Err(Refusal::agent_not_found(agent_id.as_str(), &[]).into()),
        Removal::Held => {
            let error = format!("{agent_id} is held by a connected session");
            Err(Refusal::new(ErrorCode::Conflict, error)
                .suggest("End that session first.")
                .into())
        }
        Removal::Removed => {
            server.http_sessions.forget(&agent_id);
            Ok(Json(RemovedAgent {
                agent_id,
                host,
                expired,
            }))
        }
    }
}

/// The suggestion for the name of another host.
const ANOTHER_NAME: &str = "Choose another name. With --merge (`merge` over REST) the renamed host gets what that host had and sent, as is right for the same machine, also where it gets an earlier name back, and after a rename that broke off.";

/// Refuses a principal that is neither an administrator nor the agent's own host.
fn check_remover(
    server: &AppState,
    principal: &Principal,
    agent_id: &AgentId,
    known: Option<&Agent>,
) -> Result<(), Refusal> {
    if principal.check(Right::Administer).is_ok() {
        return Ok(());
    }
    let owner = known.and_then(|agent| agent.owner.as_ref());
    check_speaker_name(
        &server.services,
        principal,
        owner.map_or(agent_id, |owner| &owner.base),
    )?;
    match (known, principal.own_host()) {
        (Some(agent), Some(host)) => check_host(&server.services, principal, agent, host),
        _ => Ok(()),
    }
}

/// `POST /api/hosts/rename`
pub(super) async fn rename(
    State(server): State<AppState>,
    By(principal): By,
    Body(HostRenaming { from, to, merge }, _held): Body<HostRenaming>,
) -> RestAnswer<RenamedHost> {
    check_name("to", &to)?;
    if from == to {
        return Err(Refusal::new(
            ErrorCode::Conflict,
            format!("the host already has the name {to}"),
        )
        .into());
    }
    let store = &server.services.store;
    // A rename that is refused leaves no key behind if the coordinator stops.
    check_free(store.as_ref(), &to, &from).await?;
    // The first agent that is moved shows the new name to others, before any key of the host has it. Its last agents have the
    // old name when no key has that any more.
    let to_held = renames::hold_host(store.as_ref(), &to, &principal, None).await?;
    let renamed = async {
        // No other host gets its person's name from now on.
        check_free(store.as_ref(), &to, &from).await?;
        if !merge {
            check_without_agents(&server, &principal, &to).await?;
            check_without_others(store.as_ref(), &to, &to_held.id).await?;
        }
        check_known(&server, &principal, &from).await?;
        let moves = format!("the agents and keys of {from} become those of {to}");
        // It stays: messages that the host sent name it as before, so no host that joins gets that name.
        renames::hold_host(store.as_ref(), &from, &principal, Some(&moves)).await?;
        move_host(&server, &principal, from, to).await
    };
    let renamed = renamed.await;
    if let Err(error) = store.forget_key(&to_held).await {
        tracing::warn!("the ended key {} was not deleted: {error}", to_held.id);
    }
    let renamed = renamed?;
    tracing::info!(
        "the host {} was renamed to {} by {}",
        renamed.from,
        renamed.to,
        principal.name()
    );
    Ok(Json(renamed))
}

/// Refuses the name of a host that has valid keys or open invites: their holders would get the agents that are moved. A host
/// with ended keys has sent messages that name it, which would become those of the moved agents. `held` only holds the name.
async fn check_without_others(store: &dyn Store, host: &str, held: &str) -> Result<(), Refusal> {
    // First: one that is used in between has become a key.
    let invites = invites(store).await?;
    let (keys, now) = (store.keys().await?, clock::now());
    let (of_host, ended): (Vec<&Key>, Vec<&Key>) = keys
        .iter()
        .filter(|key| key.host() == host && key.id != held)
        .partition(|key| key.is_valid(now));
    let keys: Vec<_> = of_host.into_iter().map(|key| key.id.as_str()).collect();
    let for_host = invites.iter().filter(|invite| {
        invite
            .host
            .as_deref()
            .is_some_and(|other| is_same(other, host))
    });
    let invites: Vec<_> = for_host.map(|invite| invite.id.as_str()).collect();
    let (others, ids, command) = match (&keys[..], &invites[..]) {
        ([], []) if ended.is_empty() => return Ok(()),
        ([], []) => {
            let error =
                format!("messages that were sent as the host {host} would become this one's");
            return Err(Refusal::new(ErrorCode::Conflict, error).suggest(ANOTHER_NAME));
        }
        ([], invites) => ("an open invite", invites, "invites"),
        (keys, _) => ("keys", keys, "keys"),
    };
    let error = format!("the host {host} has {others} already: {}", ids.join(", "));
    Err(Refusal::new(ErrorCode::Conflict, error).suggest(format!(
        "Revoke them first with `c3po-coordinator {command} revoke ID`. With --merge (`merge` over REST) they get the agents too, as is right after a rename that broke off.",
    )))
}

/// Refuses a host without agents and keys.
async fn check_known(server: &AppState, principal: &Principal, host: &str) -> Result<(), Refusal> {
    let keys = server.services.store.keys().await?;
    let of_host = |agent: Agent| is_moved(&agent, host).then_some(());
    if keys
        .iter()
        .any(|key| key.host() == host && !key.only_holds_a_name())
        || !select(&server.services, principal, of_host)
            .await?
            .is_empty()
    {
        return Ok(());
    }
    let error = format!("no agent and no key belongs to the host {host}");
    let suggestion =
        "`c3po-coordinator keys list` shows the hosts of keys, `c3po agents` those of agents.";
    Err(Refusal::new(ErrorCode::AgentNotFound, error).suggest(suggestion))
}

/// Refuses the name of a host that has agents, or whose deleted agents have names that stay reserved: the keys that are moved
/// would get them.
async fn check_without_agents(
    server: &AppState,
    principal: &Principal,
    host: &str,
) -> Result<(), Refusal> {
    let of_host = |agent: Agent| is_moved(&agent, host).then_some(());
    let agents = select(&server.services, principal, of_host).await?.len();
    // Afterwards: the name of an agent that was deleted meanwhile is reserved by now.
    let former = server.services.store.former_hosts().await?;
    let has = match (agents, former.iter().any(|former| former == host)) {
        (0, false) => return Ok(()),
        (0, true) => "names of deleted agents".to_owned(),
        (1, _) => "1 agent".to_owned(),
        (agents, _) => format!("{agents} agents"),
    };
    let error = format!("the host {host} has {has} already");
    Err(Refusal::new(ErrorCode::Conflict, error).suggest(ANOTHER_NAME))
}

/// Returns whether an agent moves with the host.
fn is_moved(agent: &Agent, host: &str) -> bool {
    agent.host.as_deref() == Some(host) && !agent.id.is_reserved()
}

/// Moves the agents and keys of a host to another one.
async fn move_host(
    server: &AppState,
    principal: &Principal,
    from: String,
    to: String,
) -> Result<RenamedHost, Refusal> {
    let store = &server.services.store;
    // They would give the former name away. Afterwards the key of the principal may have another revision.
    for invite in invites(store.as_ref()).await? {
        if invite
            .host
            .as_ref()
            .is_some_and(|host| is_same(host, &from))
        {
            match revoke_invite(store.as_ref(), &invite.id, principal).await {
                // It was used or has expired meanwhile.
                Err(refusal) if refusal.code == ErrorCode::InviteNotFound => {}
                ended => drop(ended?),
            }
        }
    }
    let mut agents = move_agents(server, principal, &from, &to).await?;
    let keys = store.keys().await?;
    let renamed = renames::rename_host(store.as_ref(), &from, &to, principal).await?;
    for key in &renamed {
        changed(server, "renamed", &key.id, principal.name()).await;
    }
    move_reservations(store.as_ref(), &keys, &from, &to).await?;
    // Until every coordinator has read the keys again, sessions and commands come back under the old name, which is held for so
    // long. Calls that began before that end within their own deadline, and so do their steps that are still on the way.
    sleep(KEYS_KNOWN_WITHIN + CALL_DEADLINE + BEGUN_WITHIN).await;
    agents += move_agents(server, principal, &from, &to).await?;
    move_reservations(store.as_ref(), &keys, &from, &to).await?;
    Ok(RenamedHost {
        from,
        to,
        agents,
        keys: renamed.len(),
    })
}

/// Gives the names that stay reserved for a host to another one: those of agents made with its keys, and without any, as while the
/// fleet had none.
async fn move_reservations(
    store: &dyn Store,
    keys: &[Key],
    from: &str,
    to: &str,
) -> Result<(), Refusal> {
    let keys = keys.iter().filter(|key| key.host() == from);
    for maker in keys.map(|key| &key.id[..]).chain(NAMES_WITHOUT_KEY) {
        store.move_reservations(maker, from, to).await?;
    }
    Ok(())
}

/// Moves the agents of a host to another one, one base name after the other. Returns how many were moved.
async fn move_agents(
    server: &AppState,
    principal: &Principal,
    from: &str,
    to: &str,
) -> Result<usize, Refusal> {
    let base_of_host = |agent: Agent| {
        is_moved(&agent, from).then(|| agent.owner.map_or(agent.id, |owner| owner.base))
    };
    let bases = select(&server.services, principal, base_of_host).await?;
    let mut moved = 0;
    for base in BTreeSet::from_iter(bases) {
        moved += server.services.store.move_host(&base, from, to).await?;
    }
    Ok(moved)
}
