//! Whom a message is for: reading the target, and finding the agents it means.

use c3po_shared::ids::{AgentId, IdError};
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};

use super::Office;
use crate::store::Agent;

/// How many names an error suggests.
const NEAREST_MAX: usize = 3;
/// From which likeness on (0 to 1) a name is worth suggesting.
const LIKENESS_MIN: f64 = 0.8;

/// Whom a message is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// One agent, perhaps only if it is on that host.
    One(AgentId, Option<String>),
    /// Every agent of a role.
    Role(AgentId),
}

impl Target {
    /// Reads `id`, `id@host` or `@role`.
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        let refused = |error: IdError| Refusal::invalid(format!("target: {error}")).advise(Advice::NameRecipient);
        match text.trim().split_once('@') {
            Some(("", role)) => Ok(Self::Role(role.parse().map_err(refused)?)),
            Some((id, host)) if !host.is_empty() => Ok(Self::One(id.parse().map_err(refused)?, Some(host.to_owned()))),
            _ => Ok(Self::One(text.trim().parse().map_err(refused)?, None)),
        }
    }
}

/// Returns the agent of that name: exactly, else the only one that differs in case alone.
///
/// The person is always known. Errors: `AGENT_NOT_FOUND` with the nearest names.
pub(super) async fn find(office: &Office, id: &AgentId) -> Result<Agent, Refusal> {
    if let Some(agent) = office.store.agent(id).await? {
        return Ok(agent);
    }
    if *id == AgentId::human() {
        return Ok(office.store.introduce(id, None).await?);
    }
    if id.is_reserved() {
        return Err(Refusal::invalid(format!("{id} is no agent")).advise(Advice::Broadcast));
    }
    let known = everyone(office).await?;
    let same: Vec<_> = known.iter().filter(|agent| agent.id.as_str().eq_ignore_ascii_case(id.as_str())).collect();
    match same.as_slice() {
        [only] => Ok((*only).clone()),
        _ => Err(Refusal::agent_not_found(id.as_str(), &nearest(id, known.iter().map(|agent| &agent.id)))),
    }
}

/// Returns the one agent that the target names, for which a message may be left.
pub(super) async fn recipient(office: &Office, id: &AgentId, host: Option<&str>) -> Result<Agent, Refusal> {
    let agent = find(office, id).await?;
    match (host, &agent.host) {
        (Some(wanted), Some(host)) if !host.eq_ignore_ascii_case(wanted) => {
            Err(Refusal::new(ErrorCode::AgentNotFound, format!("{id} is on {host}, not on {wanted}")))
        }
        _ => Ok(agent),
    }
}

/// Returns every known agent.
pub(super) async fn everyone(office: &Office) -> Result<Vec<Agent>, Refusal> {
    let mut all: Vec<Agent> = Vec::new();
    loop {
        let page = office.store.agents(all.last().map(|agent| &agent.id), PAGE_MAX).await?;
        let complete = page.len() < PAGE_MAX;
        all.extend(page);
        if complete {
            return Ok(all);
        }
    }
}

/// Returns the known names most like the one that was meant, the most alike first.
fn nearest<'a>(meant: &AgentId, known: impl Iterator<Item = &'a AgentId>) -> Vec<AgentId> {
    let meant = meant.as_str().to_ascii_lowercase();
    let mut scored: Vec<(f64, &AgentId)> = known
        .map(|id| (strsim::jaro_winkler(&meant, &id.as_str().to_ascii_lowercase()), id))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(NEAREST_MAX).map(|(_, id)| id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(name: &str) -> AgentId {
        name.parse().expect("an id")
    }

    #[test]
    fn targets_are_read() {
        let check = |text, expected| assert_eq!(Target::parse(text).ok(), expected, "{text}");
        check("meshtastic", Some(Target::One(agent("meshtastic"), None)));
        check(" meshtastic ", Some(Target::One(agent("meshtastic"), None)));
        check("meshtastic@nas2", Some(Target::One(agent("meshtastic"), Some("nas2".into()))));
        check("@reviewer", Some(Target::Role(agent("reviewer"))));
        check("agent with spaces", None);
        check("@", None);
        check("a@", None);
    }

    #[test]
    fn the_nearest_names_are_suggested() {
        let known = [agent("homeassistant"), agent("meshtastic"), agent("media")];
        assert_eq!(nearest(&agent("Meshtastik"), known.iter()), [agent("meshtastic")]);
        assert_eq!(nearest(&agent("zzz"), known.iter()), []);
    }
}
