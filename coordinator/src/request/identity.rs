//! Chooses the name of a session: one that its host already has, the requested name, or the next free number.

use std::collections::HashSet;
use std::time::Duration;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::host::is_generated;
use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use uuid::Uuid;

use super::candidates::next_name;
use super::namesakes::read_namesakes;
use super::{Caller, Services};
use crate::auth::{Principal, Right};
use crate::clock;
use crate::store::{Agent, Claim, Holder, Owner, StoreError, Tenure};

/// How many names are tried for one requested name: a host may have many agents of it, which sessions hold.
const NAMES_TRIED: usize = 2_000;

/// Refuses a principal without this right, and records the denial.
pub(crate) fn check_right(
    services: &Services,
    principal: &Principal,
    right: Right,
) -> Result<(), Refusal> {
    principal.check(right).inspect_err(|refusal| {
        let entry = Entry::new(Event::Denied)
            .verb(right.word())
            .because(refusal.error.clone());
        services.audit.note(principal.sign(entry));
    })
}

/// Refuses a principal that may not act as this agent, whether or not the agent exists, and records the denial.
pub(crate) fn check_name(
    services: &Services,
    principal: &Principal,
    name: &AgentId,
) -> Result<(), Refusal> {
    principal.speaks_as(name).inspect_err(|refusal| {
        let entry = Entry::new(Event::Denied)
            .to(name)
            .verb("speak")
            .because(refusal.error.clone());
        services.audit.note(principal.sign(entry));
    })
}

/// Refuses to act as an agent of another host, and records the denial.
pub(crate) fn check_host(
    services: &Services,
    principal: &Principal,
    agent: &Agent,
    host: &str,
) -> Result<(), Refusal> {
    belongs_to(agent, host).inspect_err(|refusal| {
        let entry = Entry::new(Event::Denied)
            .to(&agent.id)
            .verb("speak")
            .because(refusal.error.clone());
        services.audit.note(principal.sign(entry));
    })
}

/// Refuses to act as an agent of another host. A request that only reads leaves no entry in the audit.
pub(super) fn belongs_to(agent: &Agent, host: &str) -> Result<(), Refusal> {
    match agent.other_host(host) {
        Some(of) => Err(foreign(&agent.id, of, host)),
        None => Ok(()),
    }
}

/// Returns whether the agent exists and belongs to another host.
async fn is_foreign(services: &Services, name: &AgentId, host: &str) -> Result<bool, Refusal> {
    Ok(services
        .store
        .agent(name)
        .await?
        .is_some_and(|agent| belongs_to(&agent, host).is_err()))
}

/// Returns the refusal to act as an agent of another host.
pub(crate) fn foreign(name: &AgentId, of: &str, host: &str) -> Refusal {
    let error = format!("{name} belongs to the host {of}, and this is {host}");
    Refusal::new(ErrorCode::Forbidden, error)
        .suggest("Act as an agent of this host, or as yourself without --as.")
}

/// Refuses to read as an agent of another host than the key's, even as one that was deleted. After a read, this looks at the key
/// as it is then.
///
/// Errors: `FORBIDDEN`, `STORE_UNAVAILABLE`, and those of [`Principal::is_known`].
pub(crate) async fn check_reader(
    services: &Services,
    principal: &Principal,
    name: &AgentId,
) -> Result<(), Refusal> {
    let Some(host) = principal.own_host() else {
        return Ok(());
    };
    principal.is_known().await?;
    if let Some(agent) = services.store.agent(name).await? {
        return belongs_to(&agent, host);
    }
    match former_holder(services, name).await? {
        Some(of) if of.host != host => Err(foreign(name, &of.host, host)),
        _ => Ok(()),
    }
}

/// Returns the host of an agent that was deleted, if it is known: that of the person with this name, which was always that
/// host's, or the one for which the name is reserved.
pub(super) async fn former_holder(
    services: &Services,
    name: &AgentId,
) -> Result<Option<Holder>, Refusal> {
    let store = services.store.as_ref();
    match services.persons.host_of(store, name).await? {
        Some(host) => Ok(Some(Holder {
            host,
            since: Timestamp::default(),
        })),
        None => Ok(store.holder(name).await?),
    }
}

/// How long a session waits for the agents of its name: many come at once after a restart, and a proxy waits longer for the
/// reply to its `hello`.
const NAMES_WITHIN: Duration = Duration::from_secs(4);

/// Makes the session an agent of its host. The first choice is the host's first agent of the requested name that no session
/// holds. Otherwise it is a new agent with the requested name if that is free, or with a number as `name-2`. The agent
/// `held`, if the process held it last, comes before all.
///
/// A reserved name counts as taken, and so does the name of a host's person. A key that covers the requested name also covers
/// its numbers. Errors: `FORBIDDEN` if the requested name is not covered. `CONFLICT` if all tried names are held, or if it
/// differs only in case from the name of an agent of the same host. `QUOTA_EXCEEDED` if its key has reached its limit of agents.
/// `STORE_UNAVAILABLE`, and `RATE_LIMITED` if the principal reads too much at a time.
pub(crate) async fn settle_name(
    services: &Services,
    principal: &Principal,
    wish: Claim,
    held: Option<&AgentId>,
) -> Result<Tenure, Refusal> {
    check_name(services, principal, &wish.name)?;
    if let Some(id) = principal.login_id() {
        let error = format!("the login {id} is for a person and not for a session");
        return Err(Refusal::new(ErrorCode::Forbidden, error)
            .suggest("Connect the session with the key of its host."));
    }
    if let Some(tenure) = keep_name(services, principal, &wish, held).await? {
        return Ok(tenure);
    }
    let base = wish.name.clone();
    let store = services.store.as_ref();
    let is_taken = base.is_reserved()
        || !principal.may_make(&base)
        || services.persons.host_of(store, &base).await?.is_some();
    let mut namesakes = read_namesakes(store, principal, &base, NAMES_WITHIN).await?;
    let mut refused = HashSet::new();
    for _ in 0..NAMES_TRIED {
        let lot = Uuid::new_v4().as_u128();
        let Some((name, owner)) =
            next_name(&wish, &namesakes, &refused, is_taken, clock::now(), lot)
        else {
            break;
        };
        let claim = claim(services, principal, &wish, name, owner);
        match store.claim(&claim).await {
            Ok(Some(tenure)) => return Ok(tenure),
            // A name that differs from another only in case is skipped, unless it is the requested one and both are of this
            // host.
            Err(StoreError::Alike { name, known })
                if name != base || is_foreign(services, &known, &claim.owner.host).await? => {}
            outcome => drop(outcome?),
        }
        // Another session may have claimed it first, so that this host now has an agent of that name.
        if !namesakes.iter().any(|agent| agent.id == claim.name) {
            namesakes = read_namesakes(store, principal, &base, NAMES_WITHIN).await?;
        }
        principal.note_calls(1);
        refused.insert(claim.name);
    }
    let error = format!("{base} and all names with a number that were tried are taken");
    Err(Refusal::new(ErrorCode::Conflict, error).suggest("Set C3PO_AGENT_ID to another name."))
}

/// Claims the agent that the process held last, if it was still the last to hold it. One row is read for that, because a name
/// may have a thousand agents.
async fn keep_name(
    services: &Services,
    principal: &Principal,
    wish: &Claim,
    held: Option<&AgentId>,
) -> Result<Option<Tenure>, Refusal> {
    let Some(name) = held else { return Ok(None) };
    let of_process = |agent: &Agent| agent.instance == wish.instance;
    claim_known(services, principal, wish, name, of_process).await
}

/// Claims the agent of the requested name for a session that has a number of it: if it is an agent of the same host, and no
/// session holds it. Returns `None` otherwise, and the session keeps its number. Errors: those of [`settle_name`].
pub(crate) async fn drop_number(
    services: &Services,
    principal: &Principal,
    wish: &Claim,
) -> Result<Option<Tenure>, Refusal> {
    check_name(services, principal, &wish.name)?;
    claim_known(services, principal, wish, &wish.name, |_| true).await
}

/// Claims that agent, if it exists, is of the same host, was requested by the same name, and may be taken.
async fn claim_known(
    services: &Services,
    principal: &Principal,
    wish: &Claim,
    name: &AgentId,
    may_be_taken: impl Fn(&Agent) -> bool,
) -> Result<Option<Tenure>, Refusal> {
    let agent = services.store.agent(name).await?.filter(may_be_taken);
    let owner = agent.and_then(|agent| agent.owner);
    let Owner { base, host, .. } = &wish.owner;
    let Some(owner) = owner.filter(|owner| owner.base == *base && owner.host == *host) else {
        return Ok(None);
    };
    let claim = claim(services, principal, wish, name.clone(), owner);
    Ok(services.store.claim(&claim).await?)
}

/// Returns the claim of a name for that owner.
fn claim(
    services: &Services,
    principal: &Principal,
    wish: &Claim,
    name: AgentId,
    owner: Owner,
) -> Claim {
    let fleeting = wish.fleeting || owner.slot > 1 || is_generated(&owner.host);
    // Without a key, a generated hostname is another host at each start, which would leave its names reserved.
    let reserved = principal.own_host().is_some() || !is_generated(&owner.host);
    Claim {
        name,
        owner,
        fleeting,
        reserved,
        quota: services.quota(principal),
        key: principal.key_id().map(str::to_owned),
        ..wish.clone()
    }
}

/// Checks, before an act, that a person's command still acts as an agent of its host that no session holds. A person may not act
/// as a connected session, and the agent may be gone, and its name another host's, since the command began. The store checks a
/// session, and the host again, in the step of the act ([`Caller::speaker`]).
///
/// Errors: `TakenOver` if a session has claimed it or it is gone, `Reserved` if it is another host's.
pub(crate) async fn check_speaker(services: &Services, caller: &Caller) -> Result<(), StoreError> {
    if caller.tenure.is_some() || caller.agent == AgentId::human() {
        return Ok(());
    }
    let Some(agent) = services.store.agent(&caller.agent).await? else {
        return Err(StoreError::TakenOver(caller.agent.clone()));
    };
    let other_host = caller.host.as_ref().and_then(|host| agent.other_host(host));
    match other_host {
        Some(of) => Err(StoreError::Reserved {
            name: agent.id.clone(),
            host: of.to_owned(),
        }),
        None if is_held(&agent, caller) => Err(StoreError::TakenOver(agent.id)),
        None => Ok(()),
    }
}

/// Checks, after a read, that what a caller has read is its own: another session may hold its agent, or the name be another
/// host's, since the call began.
///
/// Errors: `TakenOver`, and those of [`check_speaker`].
pub(crate) async fn check_read(services: &Services, caller: &Caller) -> Result<(), StoreError> {
    let Some(tenure) = &caller.tenure else {
        let known = caller.principal.is_known().await;
        known.map_err(|refusal| StoreError::Unavailable(refusal.error))?;
        return check_speaker(services, caller).await;
    };
    match services.store.agent(&tenure.agent).await? {
        Some(agent)
            if tenure.is_of(agent.generation, agent.instance) && agent.uid == tenure.uid =>
        {
            Ok(())
        }
        _ => Err(StoreError::TakenOver(tenure.agent.clone())),
    }
}

/// Returns whether a session holds the agent that its host does not report as dead.
pub(super) fn is_held(agent: &Agent, caller: &Caller) -> bool {
    agent.is_online(clock::now()) && !caller.dead.contains(&agent.instance)
}
