//! Checks the policy before a message is sent; skipped when no rule can deny.

use std::sync::Arc;

use c3po_shared::audit::Event;
use c3po_shared::ids::AgentId;
use c3po_shared::policy::{Effect, PolicyAnswer, PolicyParty, PolicyQuestion, Verb};
use c3po_shared::refusal::{ErrorCode, Refusal};
use serde_json::Value;

use super::{Caller, Services};
use crate::policy::{Party, Policy, Verdict};
use crate::store::Agent;

/// The rules that apply to one call, and the caller's role if they need it.
#[derive(Debug, Clone)]
pub(super) struct Permission {
    verb: Verb,
    /// `None` if no rule can deny this verb.
    policy: Option<Arc<Policy>>,
    role: Option<String>,
}

impl Permission {
    /// Returns the present rules. The store is read only if a rule depends on the caller's role.
    pub(super) async fn of(
        services: &Services,
        caller: &Caller,
        verb: Verb,
    ) -> Result<Self, Refusal> {
        let policy = Some(services.policies.current()).filter(|policy| policy.may_deny(verb));
        let role = match &policy {
            Some(policy) if policy.asks_role_of_sender(verb) => services
                .store
                .agent(&caller.agent)
                .await?
                .and_then(|agent| agent.role),
            _ => None,
        };
        Ok(Self { verb, policy, role })
    }

    /// Returns the action that it is about.
    pub(super) fn verb(&self) -> Verb {
        self.verb
    }

    /// Refuses a send that the policy denies, and records the denial. The store is read only if a rule needs more than a
    /// name.
    pub(super) async fn check(
        &self,
        services: &Services,
        caller: &Caller,
        to: &AgentId,
    ) -> Result<(), Refusal> {
        let Some(policy) = &self.policy else {
            return Ok(());
        };
        let recipient = if policy.asks_about_recipient(self.verb) {
            services.store.agent(to).await?
        } else {
            None
        };
        let from = Party {
            id: caller.agent.as_str(),
            role: self.role.as_deref(),
            // People have none, whichever machine they use.
            host: caller.host.as_deref().filter(|_| !caller.agent.is_human()),
        };
        let to_party = Party {
            id: to.as_str(),
            role: recipient.as_ref().and_then(|agent| agent.role.as_deref()),
            host: recipient.as_ref().and_then(host_of),
        };
        let verdict = policy.decide(from, to_party, self.verb);
        if verdict.effect == Effect::Allow {
            return Ok(());
        }
        let refusal = refusal(&caller.agent, to, self.verb, &verdict);
        services.audit.note(
            caller
                .entry(Event::Denied)
                .to(to)
                .verb(self.verb.as_str())
                .because(refusal.error.clone()),
        );
        Err(refusal)
    }
}

fn refusal(from: &AgentId, to: &AgentId, verb: Verb, verdict: &Verdict) -> Refusal {
    let why = if verdict.reason.is_empty() {
        "no reason is given"
    } else {
        verdict.reason.as_str()
    };
    let (which, rule) = match verdict.rule {
        Some(number) => (format!("rule {number} of the policy"), Value::from(number)),
        None => ("the policy".to_owned(), Value::from("default")),
    };
    let error = format!("{which} denies {verb} from {from} to {to}: {why}");
    Refusal::new(ErrorCode::ForbiddenByPolicy, error).detail("rule", rule)
}

/// Returns the verdict of the present rules for a case, and the known facts about both sides.
pub(crate) async fn explain(
    services: &Services,
    question: PolicyQuestion,
) -> Result<PolicyAnswer, Refusal> {
    let (from, to) =
        futures_util::try_join!(party(services, question.from), party(services, question.to))?;
    fn known(party: &PolicyParty) -> Party<'_> {
        Party {
            id: party.id.as_str(),
            role: party.role.as_deref(),
            host: party.host.as_deref(),
        }
    }
    let verdict = services
        .policies
        .current()
        .decide(known(&from), known(&to), question.verb);
    let Verdict {
        effect,
        reason,
        rule,
    } = verdict;
    let outdated = services.policies.outdated();
    Ok(PolicyAnswer {
        effect,
        rule,
        reason,
        verb: question.verb,
        from,
        to,
        outdated,
    })
}

/// Returns the host of an agent. `human` has none: an earlier build recorded the one that used it last.
fn host_of(agent: &Agent) -> Option<&str> {
    let host = agent.host.as_deref();
    host.filter(|_| agent.id != AgentId::human())
}

async fn party(services: &Services, id: AgentId) -> Result<PolicyParty, Refusal> {
    Ok(match services.store.agent(&id).await? {
        Some(agent) => PolicyParty {
            id,
            known: true,
            host: host_of(&agent).map(str::to_owned),
            role: agent.role,
        },
        None => PolicyParty {
            id,
            known: false,
            role: None,
            host: None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_rule_and_its_reason() {
        let (from, to) = ("cam".parse().expect("an id"), "nas".parse().expect("an id"));
        let verdict = |rule, reason: &str| Verdict {
            effect: Effect::Deny,
            reason: reason.into(),
            rule,
        };
        let by_rule = refusal(
            &from,
            &to,
            Verb::Message,
            &verdict(Some(2), "cameras only reply"),
        );
        assert_eq!(
            by_rule.error,
            "rule 2 of the policy denies message from cam to nas: cameras only reply"
        );
        assert_eq!(
            (by_rule.code, by_rule.details["rule"].clone()),
            (ErrorCode::ForbiddenByPolicy, 2.into())
        );
        let by_default = refusal(&from, &to, Verb::Reply, &verdict(None, ""));
        assert_eq!(by_default.details["rule"], "default");
        assert!(
            by_default.error.ends_with("no reason is given"),
            "{by_default}"
        );
    }
}
