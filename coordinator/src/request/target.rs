//! Parses the target of a message, and finds the matching agents.

use c3po_shared::ids::{AgentId, IdError};
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};

use super::namesakes::read_namesakes;
use super::price::note_agents;
use super::{PLACE_DEADLINE, Services};
use crate::auth::Principal;
use crate::store::{AGENTS_STEP, Agent, Namesake, Quota};

/// How many names an error suggests.
const NEAREST_MAX: usize = 3;
/// The lowest similarity (0 to 1) at which a name is suggested.
const LIKENESS_MIN: f64 = 0.8;

/// The target of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// One agent by its id, or the agent of a host under a name.
    One(AgentId, Option<String>),
    /// Every agent with a role.
    Role(AgentId),
}

impl Target {
    /// Parses `id`, `id@host` or `@role`.
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let refused = |error: IdError| {
            Refusal::invalid(format!("target: {error}")).advise(Advice::NameRecipient)
        };
        match text.trim().split_once('@') {
            Some(("", role)) => match role.parse::<AgentId>().map_err(refused)? {
                role if role.is_reserved() => {
                    let error = format!("target: {role} is reserved and not a role");
                    Err(Refusal::invalid(error).advise(Advice::NameRecipient))
                }
                role => Ok(Self::Role(role)),
            },
            Some((id, host)) if !host.is_empty() => Ok(Self::One(
                id.parse().map_err(refused)?,
                Some(host.to_owned()),
            )),
            _ => Ok(Self::One(text.trim().parse().map_err(refused)?, None)),
        }
    }
}

/// Returns the agent of that name. Without an exact match, returns the only one that differs only in case.
///
/// The person always exists. Errors: `AGENT_NOT_FOUND` with the nearest names.
pub(super) async fn find(
    services: &Services,
    principal: &Principal,
    id: &AgentId,
) -> Result<Agent, Refusal> {
    if let Some(agent) = services.store.agent(id).await? {
        return Ok(agent);
    }
    if *id == AgentId::human() {
        return Ok(services
            .store
            .introduce(id, None, &Quota::default())
            .await?);
    }
    if id.is_reserved() {
        return Err(Refusal::invalid(format!("{id} is not an agent")).advise(Advice::Broadcast));
    }
    let known = select(services, principal, |agent| Some(agent.id)).await?;
    let same: Vec<_> = known
        .iter()
        .filter(|known| known.as_str().eq_ignore_ascii_case(id.as_str()))
        .collect();
    if let [only] = same.as_slice()
        && let Some(agent) = services.store.agent(only).await?
    {
        return Ok(agent);
    }
    let nearest: Vec<_> = nearest(id, known.iter()).into_iter().cloned().collect();
    Err(Refusal::agent_not_found(id.as_str(), &nearest))
}

/// Returns the agent that the target names, whether or not a session holds it. With a host, it is that host's agent under the
/// name.
///
/// Errors: `AGENT_NOT_FOUND` with the host's nearest names, or the host that has the name.
pub(super) async fn recipient(
    services: &Services,
    principal: &Principal,
    id: &AgentId,
    host: Option<&str>,
) -> Result<Agent, Refusal> {
    let Some(host) = host else {
        return find(services, principal, id).await;
    };
    let namesakes = read_namesakes(services.store.as_ref(), principal, id, PLACE_DEADLINE).await?;
    if let Some(agent) = of_pair(id, host, &namesakes) {
        return find(services, principal, &agent.id).await;
    }
    Err(no_pair(
        id,
        host,
        &select(services, principal, |agent| Some(Namesake::from(agent))).await?,
    ))
}

/// Returns the host's agent under that name: that of its first session, or the agent with exactly that id.
fn of_pair<'a>(id: &AgentId, host: &str, known: &'a [Namesake]) -> Option<&'a Namesake> {
    let of_host = || {
        known
            .iter()
            .filter(|agent| is_host(agent.host.as_deref(), host))
    };
    let slot = |agent: &&Namesake| {
        agent
            .owner
            .as_ref()
            .filter(|owner| owner.base == *id)
            .map(|owner| owner.slot)
    };
    let first = of_host()
        .filter(|agent| slot(agent).is_some())
        .min_by_key(|agent| slot(agent));
    first.or_else(|| of_host().find(|agent| agent.id == *id))
}

fn is_of(agent: &Namesake, host: &str) -> bool {
    is_host(agent.host.as_deref(), host)
}

fn is_host(of: Option<&str>, host: &str) -> bool {
    of.is_some_and(|name| name.eq_ignore_ascii_case(host))
}

/// Returns the refusal for a host that has no agent of that name, with a suggestion. It suggests the host's agent with the
/// same requested name, else its nearest names, else the host that has the name.
fn no_pair(id: &AgentId, host: &str, known: &[Namesake]) -> Refusal {
    let refusal = Refusal::new(ErrorCode::AgentNotFound, format!("no agent {id} on {host}"));
    let named = known
        .iter()
        .find(|agent| agent.id.as_str().eq_ignore_ascii_case(id.as_str()));
    let base = named
        .and_then(|agent| agent.owner.as_ref())
        .map_or(id, |owner| &owner.base);
    let wished = |agent: &&Namesake| {
        agent
            .owner
            .as_ref()
            .is_some_and(|owner| owner.base == *base)
    };
    let there: Vec<&AgentId> = match known.iter().filter(|agent| is_of(agent, host)).find(wished) {
        Some(agent) => vec![&agent.id],
        None => nearest(
            id,
            known
                .iter()
                .filter(|agent| is_of(agent, host))
                .map(|agent| &agent.id),
        ),
    };
    let names = |ids: &[&AgentId]| {
        ids.iter()
            .map(|id| id.as_str().to_owned())
            .collect::<Vec<_>>()
    };
    match (
        there.as_slice(),
        named.and_then(|agent| agent.host.as_ref()),
    ) {
        ([], Some(elsewhere)) => refusal.suggest(format!(
            "{id} is on {elsewhere}. list_agents shows who is on which host."
        )),
        ([], None) => refusal.suggest("list_agents shows who is on which host."),
        (ids, _) => {
            let names = names(ids);
            refusal
                .suggest(format!("On {host} it is {}.", names.join(" or ")))
                .detail("nearest", names)
        }
    }
}

/// Returns the part that `pick` takes of each known agent. They are read a few at a time, each time in a place, because their texts
/// may be long and others want to read between.
pub(crate) async fn select<T>(
    services: &Services,
    principal: &Principal,
    pick: impl Fn(Agent) -> Option<T>,
) -> Result<Vec<T>, Refusal> {
    let (mut picked, mut read, mut after) = (Vec::new(), 0, None);
    loop {
        let page = services
            .agents(principal, after.as_ref(), AGENTS_STEP)
            .await?;
        after = page
            .last()
            .filter(|_| page.len() == AGENTS_STEP)
            .map(|last| last.id.clone());
        read += page.len();
        picked.extend(page.into_iter().filter_map(&pick));
        if after.is_none() {
            note_agents(principal, read);
            return Ok(picked);
        }
    }
}

/// Returns the known names most similar to the given one, best first.
fn nearest<'a>(meant: &AgentId, known: impl Iterator<Item = &'a AgentId>) -> Vec<&'a AgentId> {
    let meant = meant.as_str().to_ascii_lowercase();
    let mut scored: Vec<(f64, &AgentId)> = known
        .map(|id| {
            (
                strsim::jaro_winkler(&meant, &id.as_str().to_ascii_lowercase()),
                id,
            )
        })
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored
        .into_iter()
        .take(NEAREST_MAX)
        .map(|(_, id)| id)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Owner;

    fn agent(name: &str) -> AgentId {
        name.parse().expect("an id")
    }

    #[test]
    fn targets_are_read() {
        let check = |text, expected| assert_eq!(Target::parse(text).ok(), expected, "{text}");
        check("meshtastic", Some(Target::One(agent("meshtastic"), None)));
        check(" meshtastic ", Some(Target::One(agent("meshtastic"), None)));
        check(
            "meshtastic@nas2",
            Some(Target::One(agent("meshtastic"), Some("nas2".into()))),
        );
        check("@reviewer", Some(Target::Role(agent("reviewer"))));
        check("agent with spaces", None);
        check("@", None);
        check("a@", None);
    }

    fn known(name: &str, base: &str, host: &str, slot: u32) -> Namesake {
        let owner = Owner {
            base: agent(base),
            host: host.into(),
            slot,
        };
        Agent {
            id: agent(name),
            host: Some(host.into()),
            owner: Some(owner),
            ..Agent::placeholder()
        }
        .into()
    }

    #[test]
    fn a_name_with_a_host_is_the_agent_that_the_host_has_under_it() {
        let all = [
            known("web", "web", "laptop", 1),
            known("web-2", "web", "nas", 1),
            known("web-3", "web", "nas", 2),
            known("api", "api", "nas", 1),
        ];
        let check = |id, host, expected| {
            assert_eq!(
                of_pair(&agent(id), host, &all).map(|agent| agent.id.as_str()),
                expected,
                "{id}@{host}"
            );
        };
        check("web", "laptop", Some("web"));
        check("web", "NAS", Some("web-2"));
        check("web-3", "nas", Some("web-3"));
        check("web-2", "laptop", None);
        check("web", "box", None);
        let hint = |id, host| no_pair(&agent(id), host, &all).suggestion;
        assert_eq!(hint("web-2", "laptop"), "On laptop it is web.");
        assert_eq!(hint("Web", "nas"), "On nas it is web-2.");
        assert_eq!(hint("ap", "nas"), "On nas it is api.");
        assert_eq!(
            hint("api", "laptop"),
            "api is on nas. list_agents shows who is on which host."
        );
        assert_eq!(
            hint("zzz", "box"),
            "list_agents shows who is on which host."
        );
    }

    #[test]
    fn the_nearest_names_are_suggested() {
        let known = [agent("homeassistant"), agent("meshtastic"), agent("media")];
        assert_eq!(
            nearest(&agent("Meshtastik"), known.iter()),
            [&agent("meshtastic")]
        );
        assert!(nearest(&agent("zzz"), known.iter()).is_empty());
    }
}
