//! Which name a session gets: the one that its host has for the wished one, else that itself or the next free with a number.

use std::collections::HashSet;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::host::is_generated;
use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;

use super::{Caller, Office};
use crate::auth::{Principal, Right};
use crate::store::{Agent, Claim, Owner, StoreError, Tenure};

/// How many names of one wished name are tried.
const NAMES_MAX: u32 = 1_000;

/// Refuses whoever may not do that, and notes it.
pub(crate) fn check_right(office: &Office, principal: &Principal, right: Right) -> Result<(), Refusal> {
    principal.check(right).inspect_err(|refusal| {
        let entry = Entry::new(Event::Denied).verb(right.word()).because(refusal.error.clone());
        office.audit.note(principal.sign(entry));
    })
}

/// Refuses whoever may not speak as that agent, whether or not there is one, and notes that.
pub(crate) fn check_name(office: &Office, principal: &Principal, name: &AgentId) -> Result<(), Refusal> {
    principal.speaks_as(name).inspect_err(|refusal| {
        let entry = Entry::new(Event::Denied).to(name).verb("speak").because(refusal.error.clone());
        office.audit.note(principal.sign(entry));
    })
}

/// Refuses whoever would speak as an agent of another host, and notes that.
pub(crate) fn check_host(office: &Office, principal: &Principal, agent: &Agent, host: &str) -> Result<(), Refusal> {
    belongs_to(agent, host).inspect_err(|refusal| {
        let entry = Entry::new(Event::Denied).to(&agent.id).verb("speak").because(refusal.error.clone());
        office.audit.note(principal.sign(entry));
    })
}

/// Refuses whoever would speak as an agent of another host. A request that only reads leaves no entry in the audit.
pub(crate) fn belongs_to(agent: &Agent, host: &str) -> Result<(), Refusal> {
    // One that no session ever had is of the host where it was first: the person of a host has mail that is nobody else's.
    let of = agent.owner.as_ref().map(|owner| &owner.host).or(agent.host.as_ref());
    let Some(of) = of.filter(|of| *of != host && agent.id != AgentId::human()) else { return Ok(()) };
    let error = format!("{} belongs to the host {of}, and this is {host}", agent.id);
    Err(Refusal::new(ErrorCode::Forbidden, error)
        .suggest("Speak as an agent of this host, or as yourself without --as."))
}

/// Makes a session an agent of its host: the first of the host's agents of the wished name that no session holds, else a new
/// one, of the wished name where nobody has that, else `name-2`, `name-3`, ….
///
/// A reserved name counts as another's. A key that covers the wished name covers the numbers as well. Errors: `FORBIDDEN`
/// where the wished name is not covered, `CONFLICT` where a thousand names are held or where it differs from an agent's in case
/// alone, `QUOTA_EXCEEDED` where its key has as many agents as it may have, `STORE_UNAVAILABLE`.
pub(crate) async fn settle_name(office: &Office, principal: &Principal, wish: Claim) -> Result<Tenure, Refusal> {
    check_name(office, principal, &wish.name)?;
    let base = wish.name.clone();
    let mut namesakes = office.store.namesakes(&base).await?;
    let mut refused = HashSet::new();
    for _ in 0..2 * NAMES_MAX {
        let Some((name, owner)) = next_name(&wish, &namesakes, &refused) else { break };
        let fleeting = wish.fleeting || owner.slot > 1 || is_generated(&owner.host);
        let claim = Claim { name, owner, fleeting, quota: office.quota(principal), ..wish.clone() };
        match office.store.claim(&claim).await {
            Ok(Some(tenure)) => return Ok(tenure),
            // A number that differs in case alone from another's is passed over; the wished name is not.
            Err(StoreError::Alike { name, .. }) if name != base => {}
            outcome => drop(outcome?),
        }
        // Another session may have been quicker, and this host has an agent of that name now.
        if !namesakes.iter().any(|agent| agent.id == claim.name) {
            namesakes = office.store.namesakes(&base).await?;
        }
        refused.insert(claim.name);
    }
    let error = format!("{base} and {NAMES_MAX} names after it are taken");
    Err(Refusal::new(ErrorCode::Conflict, error).suggest("Set C3PO_AGENT_ID to another name."))
}

/// Returns which agent a session tries to be next; `None` where there is no further one. The store refuses one that another
/// session holds or that belongs to another host.
///
/// First comes the agent that the same process had, then those of its host, which keep their names, then a new one: its
/// number is the lowest that nobody has. The bare name is for the first session of a host alone.
fn next_name(wish: &Claim, namesakes: &[Agent], refused: &HashSet<AgentId>) -> Option<(AgentId, Owner)> {
    let Owner { base, host, .. } = &wish.owner;
    let untried = namesakes.iter().filter(|agent| !refused.contains(&agent.id));
    let owned = untried.filter_map(|agent| Some((agent, agent.owner.as_ref()?)));
    if let Some((agent, owner)) = owned.clone().find(|(agent, _)| agent.instance == wish.instance) {
        return Some((agent.id.clone(), owner.clone()));
    }
    let of_host = |owner: &Owner| owner.base == *base && owner.host == *host;
    if let Some((agent, owner)) = owned.filter(|(_, owner)| of_host(owner)).min_by_key(|(_, owner)| owner.slot) {
        return Some((agent.id.clone(), owner.clone()));
    }
    let owners = || namesakes.iter().filter_map(|agent| agent.owner.as_ref());
    let slot = (1..).find(|slot| !owners().any(|owner| of_host(owner) && owner.slot == *slot))?;
    let is_free = |name: &AgentId| {
        let is_owned = namesakes.iter().any(|agent| agent.id == *name && agent.owner.is_some());
        !name.is_reserved() && !refused.contains(name) && !is_owned
    };
    let numbered = (2..=NAMES_MAX).map(|number| base.suffixed(number));
    let name = (slot == 1).then(|| base.clone()).into_iter().chain(numbered).find(is_free)?;
    Some((name, Owner { base: base.clone(), host: host.clone(), slot }))
}

/// Makes sure that no session has the name of a person's command by now: nobody speaks for a session.
///
/// Errors: `TakenOver` where one has.
pub(crate) async fn check_speaker(office: &Office, caller: &Caller) -> Result<(), StoreError> {
    if caller.tenure.is_some() || caller.agent == AgentId::human() {
        return Ok(());
    }
    let lives = |agent: &Agent| agent.is_online(Timestamp::now()) && !caller.dead.contains(&agent.instance);
    match office.store.agent(&caller.agent).await? {
        Some(agent) if lives(&agent) => Err(StoreError::TakenOver(agent.id)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;
    use crate::store::Quota;

    fn id(name: &str) -> AgentId {
        name.parse().expect("an id")
    }

    fn owner(base: &str, host: &str, slot: u32) -> Owner {
        Owner { base: id(base), host: host.into(), slot }
    }

    /// An agent whose session is that process; of slot 0 without an owner.
    fn agent(name: &str, base: &str, host: &str, slot: u32, process: u128) -> Agent {
        let owner = (slot > 0).then(|| owner(base, host, slot));
        Agent { id: id(name), owner, host: Some(host.into()), instance: Uuid::from_u128(process), ..Agent::nobody() }
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
            succeeds: Vec::new(),
            lease: Duration::ZERO,
            quota: Quota::default(),
        }
    }

    #[test]
    fn each_host_keeps_its_own_names() {
        let known = [
            agent("web", "web", "laptop", 1, 1),
            agent("web-2", "web", "nas", 1, 2),
            agent("web-4", "web", "laptop", 2, 4),
        ];
        let check = |wish: Claim, refused: &[&str], expected: (&str, Owner)| {
            let refused = refused.iter().map(|name| id(name)).collect();
            assert_eq!(next_name(&wish, &known, &refused), Some((id(expected.0), expected.1)), "{refused:?}");
        };
        check(wish("web", "laptop", 9), &[], ("web", owner("web", "laptop", 1)));
        check(wish("web", "laptop", 9), &["web"], ("web-4", owner("web", "laptop", 2)));
        check(wish("web", "laptop", 9), &["web", "web-4"], ("web-3", owner("web", "laptop", 3)));
        check(wish("web", "laptop", 9), &["web", "web-4", "web-3"], ("web-5", owner("web", "laptop", 3)));
        check(wish("web", "nas", 9), &[], ("web-2", owner("web", "nas", 1)));
        check(wish("web", "nas", 9), &["web-2"], ("web-3", owner("web", "nas", 2)));
        check(wish("web", "box", 9), &[], ("web-3", owner("web", "box", 1)));
        // The same process, by whatever name it comes.
        check(wish("web", "laptop", 4), &[], ("web-4", owner("web", "laptop", 2)));
        check(wish("web-2", "nas", 2), &[], ("web-2", owner("web", "nas", 1)));
        // A folder that is called like a number of another.
        check(wish("web-2", "nas", 9), &[], ("web-2-2", owner("web-2", "nas", 1)));
    }

    #[test]
    fn the_bare_name_is_for_the_first_session_of_a_host() {
        let none = HashSet::new();
        let first = next_name(&wish("web", "nas", 9), &[], &none);
        assert_eq!(first, Some((id("web"), owner("web", "nas", 1))));
        let second = next_name(&wish("web", "nas", 9), &[agent("web-2", "web", "nas", 1, 1)], &[id("web-2")].into());
        assert_eq!(second, Some((id("web-3"), owner("web", "nas", 2))));
        // Whether an agent without an owner may be taken is for the store to say.
        let introduced = next_name(&wish("web", "nas", 9), &[agent("web", "web", "nas", 0, 0)], &none);
        assert_eq!(introduced, Some((id("web"), owner("web", "nas", 1))));
        let reserved = next_name(&wish("human", "nas", 9), &[], &none);
        assert_eq!(reserved, Some((id("human-2"), owner("human", "nas", 1))));
    }
}
