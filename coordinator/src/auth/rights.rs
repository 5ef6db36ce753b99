//! The rights of principals: those that a scope grants, and the agents that a key covers.
//!
//! Only logins act and answer for people, give verdicts and make logins, with two exceptions: anybody acts and answers on an open
//! coordinator of this machine, and the control socket makes logins.

use std::net::IpAddr;

use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use c3po_shared::vocabulary::{LoginScope, Scope};

use super::principal::{Principal, Reach, Who};

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

/// Returns which clients without a credential an open coordinator on that address has. A public URL leads others to it through
/// a proxy.
pub(super) fn reach(listen: IpAddr, public_url: Option<&str>, answers_need_login: bool) -> Reach {
    if listen.is_loopback() && public_url.is_none() {
        let answers = !answers_need_login;
        Reach::Machine { answers }
    } else {
        Reach::Network
    }
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
    /// Returns whether a new agent may have that name. With a key, only its own host's person has a name like those of hosts'
    /// persons: the host of another one may join at any moment.
    pub(crate) fn may_make(&self, name: &AgentId) -> bool {
        let is_own = |host: &str| *name == AgentId::of_person(host);
        !name.is_person_of_a_host() || self.own_host().is_none_or(is_own)
    }

    /// Returns a `FORBIDDEN` refusal if it does not have the right.
    pub(crate) fn check(&self, right: Right) -> Result<(), Refusal> {
        let may = match (&self.who, right) {
            (Who::Key { scope, .. }, right) => grants(*scope, right),
            (Who::Login { scope, .. }, right) => grants_person(*scope, right),
            (Who::Anybody(reach), Right::Answer) => *reach == Reach::Machine { answers: true },
            (Who::Local, Right::MakeLogin) => true,
            (_, right) if right.is_of_people() => false,
            (Who::Local, Right::Speak) | (Who::Anybody(_), Right::Administer) => false,
            (Who::Anybody(_) | Who::Token | Who::Local, _) => true,
        };
        if may {
            return Ok(());
        }
        let subject = match &self.who {
            Who::Key { id, scope, .. } => format!("the key {id} has the scope '{scope}' and"),
            Who::Login { id, scope, .. } => format!("the login {id} has the scope '{scope}' and"),
            Who::Local => "this socket".to_owned(),
            Who::Anybody(_) | Who::Token => "you".to_owned(),
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

    /// Returns the refusal of its HTTP request: `UNAUTHORIZED` without a credential, because another request with one may be
    /// accepted.
    pub(crate) fn refused(&self, refusal: Refusal) -> Refusal {
        let code = match &self.who {
            Who::Anybody(_) => ErrorCode::Unauthorized,
            _ => refusal.code,
        };
        Refusal { code, ..refusal }
    }

    /// Returns whether it may act as that agent. Only logins act as `human`, and anybody on an open coordinator of this
    /// machine. A key always covers the person of its host.
    pub(crate) fn covers(&self, agent: &AgentId) -> bool {
        let is_human = *agent == AgentId::human();
        match &self.who {
            Who::Key { agents, host, .. } => {
                !is_human && (agents.cover(agent) || *agent == AgentId::of_person(host))
            }
            Who::Login { .. } => is_human,
            Who::Anybody(reach) => !is_human || *reach != Reach::Network,
            Who::Token | Who::Local => !is_human,
        }
    }

    /// Returns the agent for a client on that host that wishes to act as `human` and may not: the person of its host.
    pub(crate) fn person(&self, wished: &AgentId, host: &str) -> Option<AgentId> {
        let own = AgentId::of_person(host);
        (*wished == AgentId::human() && !self.covers(wished)).then_some(own)
    }

    /// Returns a `FORBIDDEN` refusal if it may not act as that agent, whether or not the agent exists.
    pub(crate) fn speaks_as(&self, agent: &AgentId) -> Result<(), Refusal> {
        self.check(Right::Speak)?;
        if self.covers(agent) {
            return Ok(());
        }
        match &self.who {
            Who::Key { id, agents, .. } if *agent != AgentId::human() => {
                let globs = agents.as_slice().join(", ");
                let error = format!("the key {id} does not cover {agent}, only {globs}");
                Err(Refusal::new(ErrorCode::Forbidden, error)
                    .advise(Advice::CoveredName)
                    .detail("agent", agent.as_str())
                    .detail("agents", agents.as_slice().to_vec()))
            }
            Who::Login { id, .. } => {
                let error = format!("the login {id} acts as human only, and not as {agent}");
                Err(Refusal::new(ErrorCode::Forbidden, error)
                    .suggest("Act as an agent with the key of its host.")
                    .detail("agent", agent.as_str()))
            }
            _ => Err(Refusal::only_a_login(agent)),
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
        check(&Principal::anybody(Reach::Network), "SLRO----");
        check(&Principal::anybody(strict()), "SLRO----");
        check(&Principal::anybody(lenient()), "SLRO-Y--");
        check(&Principal::token(), "SLROA---");
        check(&Principal::local(), "-LROA--M");
        let login = |scope| Principal::login("0a1b2c3d", "ann", scope);
        check(&login(LoginScope::Answer), "S----Y--");
        check(&login(LoginScope::Person), "SL---YV-");
        check(&login(LoginScope::Operator), "SL-O-YV-");
        check(&login(LoginScope::Admin), "SLROAYVM");
    }

    fn lenient() -> Reach {
        Reach::Machine { answers: true }
    }

    fn strict() -> Reach {
        Reach::Machine { answers: false }
    }

    #[test]
    fn anybody_acts_and_answers_as_a_person_only_on_an_open_coordinator_of_this_machine() {
        let check = |listen: &str, public_url, need_login, expected| {
            let listen = listen.parse().expect("an address");
            let found = reach(listen, public_url, need_login);
            assert_eq!(found, expected, "{listen} {public_url:?} {need_login}");
        };
        check("127.0.0.1", None, false, lenient());
        check("::1", None, false, lenient());
        check("127.0.0.1", None, true, strict());
        check("127.0.0.1", Some("https://nas"), false, Reach::Network);
        check("0.0.0.0", None, false, Reach::Network);
    }

    #[test]
    fn a_login_acts_as_the_person_and_as_no_agent() {
        let web = "web".parse().expect("an id");
        for scope in LoginScope::ALL {
            let login = Principal::login("0a1b2c3d", "ann", *scope);
            assert!(login.speaks_as(&AgentId::human()).is_ok());
            let refused = login.speaks_as(&web).map_err(|refusal| refusal.code);
            assert_eq!(refused, Err(ErrorCode::Forbidden));
            assert_eq!(login.person(&AgentId::human(), "nas"), None);
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
        assert!(Principal::anybody(Reach::Network).speaks_as(&api).is_ok());
    }

    #[test]
    fn no_key_and_no_token_acts_as_the_person() {
        let human = AgentId::human();
        let person = |principal: &Principal| {
            let person = principal.person(&human, "nas");
            person.map(|person| person.to_string())
        };
        for principal in [
            key(Scope::Agent, "*"),
            key(Scope::Agent, "human"),
            key(Scope::Agent, "web-*"),
            key(Scope::Admin, "*"),
            Principal::token(),
            Principal::anybody(Reach::Network),
        ] {
            let refusal = principal.speaks_as(&human).expect_err("it is not a login");
            assert_eq!(refusal.error, "only a login acts as human, for a person");
            assert!(refusal.suggestion.contains("c3po login"), "{refusal:?}");
            assert_eq!(person(&principal).as_deref(), Some("nas-cli"));
            assert!(principal.speaks_as(&AgentId::of_person("nas")).is_ok());
        }
        for reach in [lenient(), strict()] {
            let anybody = Principal::anybody(reach);
            assert!(anybody.speaks_as(&human).is_ok() && person(&anybody).is_none());
        }
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
