//! Chooses the name of a session: one that its host already has, the requested name, or the next free number.

use std::collections::HashSet;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::host::is_generated;
use c3po_shared::ids::AgentId;
use c3po_shared::limits::CLOCK_SKEW;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;

use super::{Caller, Services};
use crate::auth::{Principal, Right};
use crate::clock;
use crate::store::{Agent, Claim, Namesake, Owner, StoreError, Tenure};

/// How many names are tried for one requested name.
const NAMES_MAX: u32 = 1_000;

/// How many agents are tried although a session seems to hold them: that session may be saying goodbye at this moment.
const HELD_TRIED: usize = 2;

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

/// Refuses to read as an agent of another host, even one that was deleted.
pub(crate) async fn check_reader(
    services: &Services,
    name: &AgentId,
    host: &str,
) -> Result<(), Refusal> {
    if let Some(agent) = services.store.agent(name).await? {
        return belongs_to(&agent, host);
    }
    match services.store.host_of(name).await? {
        Some(of) if of != host => Err(foreign(name, &of, host)),
        _ => Ok(()),
    }
}

/// Makes the session an agent of its host. The first choice is the host's first agent of the requested name that no session
/// holds. Otherwise it is a new agent with the requested name if that is free, or with `name-2`, `name-3`, …. The agent
/// `held`, if the process held it last, comes before all.
///
/// A reserved name counts as taken, and so does the name of a host's person. A key that covers the requested name also covers
/// its numbers. Errors: `FORBIDDEN` if the requested name is not covered. `CONFLICT` if a thousand names are held, or if it
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
    let mut namesakes = services.namesakes(principal, &base).await?;
    let mut refused = HashSet::new();
    for _ in 0..2 * NAMES_MAX {
        let Some((name, owner)) = next_name(&wish, &namesakes, &refused, is_taken, clock::now())
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
            namesakes = services.namesakes(principal, &base).await?;
        }
        refused.insert(claim.name);
    }
    let error = format!("{base} and {NAMES_MAX} numbered names after it are taken");
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
    claim_known(services, principal, wish, name, |agent| {
        agent.instance == wish.instance
    })
    .await
}

/// Claims the agent of the requested name for a session that has a number of it: if it is an agent of the same host, and no
/// session holds it. Returns `None` otherwise, and the session keeps its number. Errors: those of [`settle_name`].
pub(crate) async fn drop_number(
    services: &Services,
    principal: &Principal,
    wish: &Claim,
) -> Result<Option<Tenure>, Refusal> {
    check_name(services, principal, &wish.name)?;
    let of_host = |agent: &Agent| {
        let owner = agent.owner.as_ref();
        owner.is_some_and(|owner| owner.host == wish.owner.host)
    };
    claim_known(services, principal, wish, &wish.name, of_host).await
}

/// Claims that agent, if it exists, was requested by the same name, and may be taken.
async fn claim_known(
    services: &Services,
    principal: &Principal,
    wish: &Claim,
    name: &AgentId,
    may_be_taken: impl Fn(&Agent) -> bool,
) -> Result<Option<Tenure>, Refusal> {
    let agent = services.store.agent(name).await?.filter(may_be_taken);
    let owner = agent.and_then(|agent| agent.owner);
    let Some(owner) = owner.filter(|owner| owner.base == wish.owner.base) else {
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

/// Returns the next agent that a session tries to become, or `None` if there is no other. If `is_taken` is set, no new agent
/// gets the requested name without a number. The store refuses an agent that another session holds or that belongs to another
/// host.
///
/// The first choice is the previous agent of the same process. Then come the agents of its host, which keep their names: those
/// that no session seems to hold, then a few others. Then comes a new agent with the lowest free number. Only the first
/// session of a host gets the name without a number.
fn next_name(
    wish: &Claim,
    namesakes: &[Namesake],
    refused: &HashSet<AgentId>,
    is_taken: bool,
    now: Timestamp,
) -> Option<(AgentId, Owner)> {
    let Owner { base, host, .. } = &wish.owner;
    let owned = || {
        namesakes
            .iter()
            .filter_map(|agent| Some((agent, agent.owner.as_ref()?)))
    };
    let untried = || owned().filter(|(agent, _)| !refused.contains(&agent.id));
    if let Some((agent, owner)) = untried().find(|(agent, _)| agent.instance == wish.instance) {
        return Some((agent.id.clone(), owner.clone()));
    }
    let of_host = |owner: &Owner| owner.base == *base && owner.host == *host;
    let seems_held = |agent: &Namesake| {
        agent.held_until > now + CLOCK_SKEW && !wish.succeeds.contains(&agent.instance)
    };
    let kept = untried().filter(|(agent, owner)| {
        of_host(owner) && (refused.len() < HELD_TRIED || !seems_held(agent))
    });
    if let Some((agent, owner)) = kept.min_by_key(|(agent, owner)| (seems_held(agent), owner.slot))
    {
        return Some((agent.id.clone(), owner.clone()));
    }
    let slots: HashSet<u32> = owned()
        .filter(|(_, owner)| of_host(owner))
        .map(|(_, owner)| owner.slot)
        .collect();
    let slot = (1..).find(|slot| !slots.contains(slot))?;
    let names: HashSet<&AgentId> = owned().map(|(agent, _)| &agent.id).collect();
    let is_free = |name: &AgentId| !refused.contains(name) && !names.contains(name);
    let numbered = (2..=NAMES_MAX).map(|number| base.suffixed(number));
    let name = (slot == 1 && !is_taken)
        .then(|| base.clone())
        .into_iter()
        .chain(numbered)
        .find(is_free)?;
    Some((
        name,
        Owner {
            base: base.clone(),
            host: host.clone(),
            slot,
        },
    ))
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
        return check_speaker(services, caller).await;
    };
    match services.store.agent(&tenure.agent).await? {
        Some(agent) if tenure.is_of(agent.generation, agent.instance) => Ok(()),
        _ => Err(StoreError::TakenOver(tenure.agent.clone())),
    }
}

/// Returns whether a session holds the agent that its host does not report as dead.
pub(super) fn is_held(agent: &Agent, caller: &Caller) -> bool {
    agent.is_online(clock::now()) && !caller.dead.contains(&agent.instance)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::store::Quota;

    fn now() -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000)
    }

    fn id(name: &str) -> AgentId {
        name.parse().expect("an id")
    }

    fn owner(base: &str, host: &str, slot: u32) -> Owner {
        Owner {
            base: id(base),
            host: host.into(),
            slot,
        }
    }

    /// Returns an agent whose last session was that process; slot 0 means without an owner.
    fn agent(name: &str, base: &str, host: &str, slot: u32, process: u128) -> Namesake {
        Namesake {
            id: id(name),
            owner: (slot > 0).then(|| owner(base, host, slot)),
            host: Some(host.into()),
            instance: Uuid::from_u128(process),
            held_until: Timestamp::from_millis(0),
        }
    }

    fn wish(name: &str, host: &str, process: u128) -> Claim {
        Claim {
            name: id(name),
            owner: owner(name, host, 1),
            instance: Uuid::from_u128(process),
            session_id: None,
            reach: Vec::new(),
            context: 0,
            state: None,
            fleeting: false,
            one_shot: false,
            reserved: true,
            succeeds: Vec::new(),
            lease: Duration::ZERO,
            quota: Quota::default(),
            key: None,
            kind: "session",
        }
    }

    #[test]
    fn each_host_keeps_its_own_names() {
        let known = [
            agent("web", "web", "laptop", 1, 1),
            agent("web-2", "web", "nas", 1, 2),
            agent("web-4", "web", "laptop", 2, 4),
        ];
        let check = |wish: Claim, refused: &[&str], name: &str, owner: Owner| {
            let refused = refused.iter().map(|name| id(name)).collect();
            let found = next_name(&wish, &known, &refused, false, now());
            assert_eq!(found, Some((id(name), owner)), "{refused:?}");
        };
        let (laptop, nas) = (wish("web", "laptop", 9), wish("web", "nas", 9));
        let own = |host: &str, slot: u32| owner("web", host, slot);
        check(laptop.clone(), &[], "web", own("laptop", 1));
        check(laptop.clone(), &["web"], "web-4", own("laptop", 2));
        check(laptop.clone(), &["web", "web-4"], "web-3", own("laptop", 3));
        check(
            laptop,
            &["web", "web-4", "web-3"],
            "web-5",
            own("laptop", 3),
        );
        check(nas.clone(), &[], "web-2", own("nas", 1));
        check(nas, &["web-2"], "web-3", own("nas", 2));
        check(wish("web", "box", 9), &[], "web-3", own("box", 1));
        // The same process, under any name.
        check(wish("web", "laptop", 4), &[], "web-4", own("laptop", 2));
        check(wish("web-2", "nas", 2), &[], "web-2", own("nas", 1));
        // A folder whose name looks like a numbered name of another.
        let numbered = owner("web-2", "nas", 1);
        check(wish("web-2", "nas", 9), &[], "web-2-2", numbered);
    }

    #[test]
    fn a_session_tries_few_of_the_agents_that_others_hold() {
        let held = |agent: Namesake| Namesake {
            held_until: now() + 2 * CLOCK_SKEW,
            ..agent
        };
        let known = [
            held(agent("web", "web", "nas", 1, 1)),
            held(agent("web-2", "web", "nas", 2, 2)),
            held(agent("web-3", "web", "nas", 3, 3)),
            agent("web-4", "web", "nas", 4, 4),
        ];
        let check = |wish: Claim, refused: &[&str], expected: (&str, u32)| {
            let refused = refused.iter().map(|name| id(name)).collect();
            let chosen = next_name(&wish, &known, &refused, false, now());
            assert_eq!(
                chosen,
                Some((id(expected.0), owner("web", "nas", expected.1))),
                "{refused:?}"
            );
        };
        check(wish("web", "nas", 9), &[], ("web-4", 4));
        check(wish("web", "nas", 9), &["web-4"], ("web", 1));
        check(wish("web", "nas", 9), &["web-4", "web"], ("web-5", 5));
        check(wish("web", "nas", 2), &[], ("web-2", 2));
        check(
            Claim {
                succeeds: vec![Uuid::from_u128(3)],
                ..wish("web", "nas", 9)
            },
            &[],
            ("web-3", 3),
        );
    }

    #[test]
    fn the_bare_name_is_for_the_first_session_of_a_host() {
        let none = HashSet::new();
        let first = next_name(&wish("web", "nas", 9), &[], &none, false, now());
        assert_eq!(first, Some((id("web"), owner("web", "nas", 1))));
        let second = next_name(
            &wish("web", "nas", 9),
            &[agent("web-2", "web", "nas", 1, 1)],
            &[id("web-2")].into(),
            false,
            now(),
        );
        assert_eq!(second, Some((id("web-3"), owner("web", "nas", 2))));
        // The store decides whether an agent without an owner may be taken.
        let introduced = next_name(
            &wish("web", "nas", 9),
            &[agent("web", "web", "nas", 0, 0)],
            &none,
            false,
            now(),
        );
        assert_eq!(introduced, Some((id("web"), owner("web", "nas", 1))));
        let reserved = next_name(&wish("human", "nas", 9), &[], &none, true, now());
        assert_eq!(reserved, Some((id("human-2"), owner("human", "nas", 1))));
    }
}
