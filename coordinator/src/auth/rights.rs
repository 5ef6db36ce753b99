//! The rights of principals: those that a scope grants, and the agents that a key covers.

use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use c3po_shared::vocabulary::Scope;

use super::principal::{Principal, Who};

/// A right of a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    /// Acting as an agent.
    Speak,
    /// Listing agents and reading metrics.
    Look,
    /// Deleting agents of the own host.
    Remove,
    /// Reading the audit and the policy.
    Operate,
    /// Reading and changing keys and invites.
    Administer,
}

impl Right {
    /// Returns its word in the audit.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Speak => "speak",
            Self::Look => "look",
            Self::Remove => "remove",
            Self::Operate => "operate",
            Self::Administer => "administer",
        }
    }

    /// Returns the scopes that grant it.
    pub(crate) fn scopes(self) -> impl Iterator<Item = Scope> {
        Scope::ALL
            .iter()
            .copied()
            .filter(move |scope| grants(*scope, self))
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Speak => "act as an agent",
            Self::Look => "list agents",
            Self::Remove => "delete agents",
            Self::Operate => "read audit and policy",
            Self::Administer => "list or change keys, invites and pairs of agents",
        }
    }
}

/// Returns whether the scope grants the right.
fn grants(scope: Scope, right: Right) -> bool {
    match scope {
        Scope::Agent => matches!(right, Right::Speak | Right::Look | Right::Remove),
        Scope::Read => right == Right::Look,
        Scope::Operator => matches!(right, Right::Look | Right::Operate),
        Scope::Admin => true,
    }
}

impl Principal {
    /// Returns a `FORBIDDEN` refusal if it does not have the right.
    pub(crate) fn check(&self, right: Right) -> Result<(), Refusal> {
        let may = match (&self.who, right) {
            (Who::Local, Right::Speak) | (Who::Anybody, Right::Administer) => false,
            (Who::Anybody | Who::Token | Who::Local, _) => true,
            (Who::Key { scope, .. }, right) => grants(*scope, right),
        };
        if may {
            return Ok(());
        }
        let error = match &self.who {
            Who::Key { id, scope, .. } => {
                format!(
                    "the key {id} has the scope '{scope}' and may not {}",
                    right.describe()
                )
            }
            who => format!(
                "{} may not {}",
                if matches!(who, Who::Local) {
                    "this socket"
                } else {
                    "you"
                },
                right.describe()
            ),
        };
        Err(Refusal::new(ErrorCode::Forbidden, error).suggest(
            "Ask the administrator of the coordinator for a key with another scope: `c3po-coordinator keys create NAME \
             --scope SCOPE`.",
        ))
    }

    /// Returns whether it may act as that agent. A wildcard does not cover `human`: that needs its exact name or an admin
    /// key.
    pub(crate) fn covers(&self, agent: &AgentId) -> bool {
        match &self.who {
            Who::Key { scope, agents, .. } => {
                agents.cover(agent)
                    && (*agent != AgentId::human() || *scope == Scope::Admin || agents.name(agent))
            }
            Who::Anybody | Who::Token | Who::Local => true,
        }
    }

    /// Returns the agent for a person who requests that name, if it is another one. A key that covers agents of its host but
    /// not `human` maps to the person of that host.
    pub(crate) fn person(&self, wished: &AgentId) -> Option<AgentId> {
        let own = self
            .own_host()
            .map(AgentId::of_person)
            .filter(|own| self.covers(own))?;
        (*wished == AgentId::human() && !self.covers(wished)).then_some(own)
    }

    /// Returns a `FORBIDDEN` refusal if it may not act as that agent, whether or not the agent exists.
    pub(crate) fn speaks_as(&self, agent: &AgentId) -> Result<(), Refusal> {
        self.check(Right::Speak)?;
        match &self.who {
            Who::Key { id, agents, .. } if !self.covers(agent) => {
                let globs = agents.as_slice().join(", ");
                let but = if agents.cover(agent) {
                    ", which a key must name exactly"
                } else {
                    ""
                };
                let error = format!("the key {id} does not cover {agent}{but}, only {globs}");
                let refusal = Refusal::new(ErrorCode::Forbidden, error)
                    .advise(Advice::CoveredName)
                    .detail("agent", agent.as_str())
                    .detail("agents", agents.as_slice().to_vec());
                Err(match self.person(agent) {
                    Some(person) => refusal.detail("person", person.to_string()),
                    None => refusal,
                })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::principal::tests::key;
    use super::*;

    #[test]
    fn each_scope_grants_the_rights_of_the_table() {
        let check = |principal: &Principal, expected: [bool; 5]| {
            let found = [
                Right::Speak,
                Right::Look,
                Right::Remove,
                Right::Operate,
                Right::Administer,
            ]
            .map(|right| principal.check(right).map_err(|refusal| refusal.code) == Ok(()));
            assert_eq!(found, expected, "{principal:?}");
        };
        check(&key(Scope::Agent, "*"), [true, true, true, false, false]);
        check(&key(Scope::Read, "*"), [false, true, false, false, false]);
        check(
            &key(Scope::Operator, "*"),
            [false, true, false, true, false],
        );
        check(&key(Scope::Admin, "*"), [true, true, true, true, true]);
        check(&Principal::anybody(), [true, true, true, true, false]);
        check(&Principal::token(), [true, true, true, true, true]);
        check(&Principal::local(), [false, true, true, true, true]);
    }

    #[test]
    fn a_key_acts_only_as_the_agents_that_it_covers() {
        let (web, api) = (
            "web-1".parse().expect("an id"),
            "api".parse().expect("an id"),
        );
        assert!(key(Scope::Agent, "web-*").speaks_as(&web).is_ok());
        let refusal = key(Scope::Agent, "web-*")
            .speaks_as(&api)
            .expect_err("not covered");
        assert_eq!(refusal.code, ErrorCode::Forbidden);
        assert!(key(Scope::Read, "*").speaks_as(&web).is_err());
        assert!(Principal::anybody().speaks_as(&api).is_ok());
    }

    #[test]
    fn a_wildcard_covers_agents_and_not_the_person() {
        let human = AgentId::human();
        assert!(
            !key(Scope::Agent, "*").covers(&human) && !key(Scope::Agent, "hum?n").covers(&human)
        );
        assert!(key(Scope::Agent, "human").covers(&human) && key(Scope::Admin, "*").covers(&human));
        assert!(!key(Scope::Admin, "web-*").covers(&human) && Principal::token().covers(&human));
        let refusal = key(Scope::Agent, "*")
            .speaks_as(&human)
            .expect_err("it is not named");
        assert_eq!(
            refusal.error,
            "the key 0a1b2c3d does not cover human, which a key must name exactly, only *"
        );
        let person =
            |principal: &Principal| principal.person(&human).map(|person| person.to_string());
        assert_eq!(person(&key(Scope::Agent, "*")).as_deref(), Some("nas-cli"));
        assert_eq!(
            person(&key(Scope::Agent, "web-*")),
            None,
            "it covers no such agent either"
        );
        assert_eq!(
            (
                person(&key(Scope::Agent, "human")),
                person(&Principal::anybody())
            ),
            (None, None)
        );
    }

    #[test]
    fn the_refusal_of_a_name_lists_the_names_that_the_key_covers() {
        let check = |glob: &str, name: &str, expected: &str| {
            let refused = key(Scope::Agent, glob).speaks_as(&name.parse().expect("an id"));
            let refusal = refused.expect_err("it does not cover it");
            assert_eq!(
                (refusal.error.as_str(), refusal.advice),
                (expected, Some(Advice::CoveredName))
            );
        };
        check(
            "web",
            "api",
            "the key 0a1b2c3d does not cover api, only web",
        );
        check(
            "web-1",
            "web-2",
            "the key 0a1b2c3d does not cover web-2, only web-1",
        );
    }
}
