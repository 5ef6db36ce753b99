//! The entries of the log that a principal may see.

use std::collections::HashMap;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::AgentId;
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;

use super::Services;
use super::identity::{belongs_to, former_holder};
use crate::auth::{Principal, Right};

/// The readers that see an event.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    /// No reader of events sees it.
    Never,
    /// Every reader sees it.
    Always,
    /// The hosts of its agents see it.
    Own,
}

/// Returns which readers see an event: with the right to read the audit every change, otherwise those that `list_agents` shows
/// anyway and those of the own agents.
fn shown(principal: &Principal, event: Event) -> Shown {
    match event {
        Event::Denied | Event::Unknown | Event::LoopSuspected => Shown::Never,
        Event::SessionBegun
        | Event::SessionEnded
        | Event::StatusChanged
        | Event::Renamed
        | Event::Gap => Shown::Always,
        _ if principal.check(Right::Operate).is_ok() => Shown::Always,
        Event::Accepted | Event::Answered | Event::Receipt | Event::Acknowledged => Shown::Own,
        Event::KeyChanged | Event::LoginChanged | Event::GuardChanged | Event::PolicyChanged => {
            Shown::Never
        }
    }
}

/// The entries that a principal may see.
#[derive(Debug, Default)]
pub(super) struct View {
    /// Since when an agent has been one of the principal's own; `None` if it is not.
    own: HashMap<AgentId, Option<Timestamp>>,
}

impl View {
    /// Returns whether the principal may see the entry.
    pub(super) async fn shows(
        &mut self,
        services: &Services,
        principal: &Principal,
        entry: &Entry,
    ) -> Result<bool, Refusal> {
        match shown(principal, entry.event) {
            Shown::Never => return Ok(false),
            Shown::Always => return Ok(true),
            Shown::Own => {}
        }
        for agent in [entry.agent.as_ref(), entry.to.as_ref()]
            .into_iter()
            .flatten()
        {
            let since = match self.own.get(agent) {
                Some(since) => *since,
                None => own_since(services, principal, agent).await?,
            };
            self.own.insert(agent.clone(), since);
            if since.is_some_and(|since| since <= entry.at) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns since when the name has been of an agent as which the principal may act; `None` if it is, or was, another host's. An
/// agent that is gone and of no known host is none of them.
async fn own_since(
    services: &Services,
    principal: &Principal,
    agent: &AgentId,
) -> Result<Option<Timestamp>, Refusal> {
    if principal.speaks_as(agent).is_err() {
        return Ok(None);
    }
    let Some(own) = principal.own_host() else {
        return Ok(Some(Timestamp::default()));
    };
    if agent.is_reserved() {
        return Ok(None);
    }
    if let Some(agent) = services.store.agent(agent).await? {
        let is_own = belongs_to(&agent, own).is_ok();
        return Ok(is_own.then_some(agent.registered_at));
    }
    let of = former_holder(services, agent).await?;
    let of = of.filter(|holder| holder.host == own);
    Ok(of.map(|holder| holder.since))
}

#[cfg(test)]
mod tests {
    use c3po_shared::vocabulary::Scope;

    use super::*;
    use crate::auth::key;

    #[test]
    fn changes_of_agents_are_shown_to_their_hosts_and_all_changes_to_an_operator() {
        for (scope, event, expected) in [
            (Scope::Agent, Event::Accepted, Shown::Own),
            (Scope::Agent, Event::StatusChanged, Shown::Always),
            (Scope::Agent, Event::KeyChanged, Shown::Never),
            (Scope::Read, Event::Answered, Shown::Own),
            (Scope::Operator, Event::Acknowledged, Shown::Always),
            (Scope::Operator, Event::PolicyChanged, Shown::Always),
            (Scope::Admin, Event::Denied, Shown::Never),
        ] {
            assert_eq!(shown(&key(scope, "*"), event), expected, "{scope} {event}");
        }
    }
}
