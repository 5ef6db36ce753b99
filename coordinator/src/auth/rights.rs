//! The rights of principals: those that a scope grants, and the agents that a key covers.
//!
//! Only logins answer for people, give verdicts and make logins, with two exceptions: anybody answers on an open coordinator of
//! this machine, and the control socket makes logins.

use std::net::IpAddr;

use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use c3po_shared::vocabulary::{LoginScope, Scope};

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
    /// Answering questions for people.
    Answer,
    /// Giving verdicts on permission requests.
    Verdict,
    /// Making, listing and revoking logins.
    MakeLogin,
}

impl Right {
    /// Every right.
    pub(crate) const ALL: [Self; 8] = [
        Self::Speak,
        Self::Look,
        Self::Remove,
        Self::Operate,
        Self::Administer,
        Self::Answer,
        Self::Verdict,
        Self::MakeLogin,
    ];

    /// Returns its word in the audit.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Speak => "speak",
            Self::Look => "look",
            Self::Remove => "remove",
            Self::Operate => "operate",
            Self::Administer => "administer",
            Self::Answer => "answer",
            Self::Verdict => "verdict",
            Self::MakeLogin => "make_login",
        }
    }

    /// Returns the scopes of keys that grant it.
    pub(crate) fn scopes(self) -> impl Iterator<Item = Scope> {
        Scope::ALL
            .iter()
            .copied()
            .filter(move |scope| grants(*scope, self))
    }

    /// Returns the scopes of logins that grant it.
    pub(crate) fn login_scopes(self) -> impl Iterator<Item = LoginScope> {
        LoginScope::ALL
            .iter()
            .copied()
            .filter(move |scope| grants_person(*scope, self))
    }

    /// Returns whether only people have it.
    fn is_of_people(self) -> bool {
        matches!(self, Self::Answer | Self::Verdict | Self::MakeLogin)
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Speak => "act as an agent",
            Self::Look => "list agents",
            Self::Remove => "delete agents",
            Self::Operate => "read audit and policy",
            Self::Administer => "list or change keys, invites and pairs of agents",
            Self::Answer => "answer for people",
            Self::Verdict => "give verdicts",
            Self::MakeLogin => "make, list or revoke logins",
        }
    }
}

/// Returns whether clients without a credential may answer for people: on an open coordinator that only this machine reaches,
/// unless answers need a login. A public URL leads others to it through a proxy.
pub(super) fn anybody_answers(
    is_open: bool,
    listen: IpAddr,
    public_url: Option<&str>,
    answers_need_login: bool,
) -> bool {
    is_open && listen.is_loopback() && public_url.is_none() && !answers_need_login
}

/// Returns whether the scope of a key grants the right.
fn grants(scope: Scope, right: Right) -> bool {
    match scope {
        Scope::Agent => matches!(right, Right::Speak | Right::Look | Right::Remove),
        Scope::Read => right == Right::Look,
        Scope::Operator => matches!(right, Right::Look | Right::Operate),
        Scope::Admin => !right.is_of_people(),
    }
}

/// Returns whether the scope of a login grants the right.
fn grants_person(scope: LoginScope, right: Right) -> bool {
    let least = match right {
        Right::Speak | Right::Answer => LoginScope::Answer,
        Right::Look | Right::Verdict => LoginScope::Person,
        Right::Operate => LoginScope::Operator,
        Right::Remove | Right::Administer | Right::MakeLogin => LoginScope::Admin,
    };
    scope >= least
}

impl Principal {
    /// Returns a `FORBIDDEN` refusal if it does not have the right.
    pub(crate) fn check(&self, right: Right) -> Result<(), Refusal> {
        let may = match (&self.who, right) {
            (Who::Key { scope, .. }, right) => grants(*scope, right),
            (Who::Login { scope, .. }, right) => grants_person(*scope, right),
            (Who::Anybody { answers }, Right::Answer) => *answers,
            (Who::Local, Right::MakeLogin) => true,
            (_, right) if right.is_of_people() => false,
            (Who::Local, Right::Speak) | (Who::Anybody { .. }, Right::Administer) => false,
            (Who::Anybody { .. } | Who::Token | Who::Local, _) => true,
        };
        if may {
            return Ok(());
        }
        let subject = match &self.who {
            Who::Key { id, scope, .. } => format!("the key {id} has the scope '{scope}' and"),
            Who::Login { id, scope, .. } => format!("the login {id} has the scope '{scope}' and"),
            Who::Local => "this socket".to_owned(),
            Who::Anybody { .. } | Who::Token => "you".to_owned(),
        };
        let error = format!("{subject} may not {}", right.describe());
        let suggestion = if right.is_of_people() || self.login_id().is_some() {
            "Log in as a person whose scope allows it: `c3po-coordinator login NAME --scope SCOPE` on the \
             coordinator's machine prints the link."
        } else {
            "Ask the administrator of the coordinator for a key with another scope: `c3po-coordinator keys create NAME \
             --scope SCOPE`."
        };
        Err(Refusal::new(ErrorCode::Forbidden, error).suggest(suggestion))
    }

    /// Returns whether it may act as that agent. A wildcard does not cover `human`: that needs its exact name or an admin
    /// key.
    pub(crate) fn covers(&self, agent: &AgentId) -> bool {
        match &self.who {
            Who::Key { scope, agents, .. } => {
                agents.cover(agent)
                    && (*agent != AgentId::human() || *scope == Scope::Admin || agents.name(agent))
            }
            Who::Login { .. } => *agent == AgentId::human(),
            Who::Anybody { .. } | Who::Token | Who::Local => true,
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
            Who::Login { id, .. } if !self.covers(agent) => {
                let error = format!("the login {id} acts as human only, and not as {agent}");
                Err(Refusal::new(ErrorCode::Forbidden, error)
                    .suggest("Act as an agent with the key of its host.")
                    .detail("agent", agent.as_str()))
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
        // A capital letter for each right that is granted, in that order.
        let check = |principal: &Principal, expected: &str| {
            let found = Right::ALL.map(|right| principal.check(right).is_ok());
            let found: String = found
                .iter()
                .zip("SLROAYVM".chars())
                .map(|(may, letter)| if *may { letter } else { '-' })
                .collect();
            assert_eq!(found, expected, "{principal:?}");
        };
        check(&key(Scope::Agent, "*"), "SLR-----");
        check(&key(Scope::Read, "*"), "-L------");
        check(&key(Scope::Operator, "*"), "-L-O----");
        check(&key(Scope::Admin, "*"), "SLROA---");
        check(&Principal::anybody(false), "SLRO----");
        check(&Principal::anybody(true), "SLRO-Y--");
        check(&Principal::token(), "SLROA---");
        check(&Principal::local(), "-LROA--M");
        let login = |scope| Principal::login("0a1b2c3d", "ann", scope);
        check(&login(LoginScope::Answer), "S----Y--");
        check(&login(LoginScope::Person), "SL---YV-");
        check(&login(LoginScope::Operator), "SL-O-YV-");
        check(&login(LoginScope::Admin), "SLROAYVM");
    }

    #[test]
    fn anybody_answers_only_on_an_open_coordinator_of_this_machine() {
        let check = |is_open, listen: &str, public_url, need_login, expected| {
            let listen = listen.parse().expect("an address");
            let found = anybody_answers(is_open, listen, public_url, need_login);
            assert_eq!(
                found, expected,
                "{is_open} {listen} {public_url:?} {need_login}"
            );
        };
        check(true, "127.0.0.1", None, false, true);
        check(true, "::1", None, false, true);
        check(true, "127.0.0.1", None, true, false);
        check(true, "127.0.0.1", Some("https://nas"), false, false);
        check(true, "0.0.0.0", None, false, false);
        check(false, "127.0.0.1", None, false, false);
    }

    #[test]
    fn a_login_acts_as_the_person_and_as_no_agent() {
        let web = "web".parse().expect("an id");
        for scope in LoginScope::ALL {
            let login = Principal::login("0a1b2c3d", "ann", *scope);
            assert!(login.speaks_as(&AgentId::human()).is_ok());
            let refused = login.speaks_as(&web).map_err(|refusal| refusal.code);
            assert_eq!(refused, Err(ErrorCode::Forbidden));
            assert_eq!(login.person(&AgentId::human()), None);
        }
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
        assert!(Principal::anybody(false).speaks_as(&api).is_ok());
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
                person(&Principal::anybody(false))
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
