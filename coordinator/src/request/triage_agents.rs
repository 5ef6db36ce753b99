//! The agents that the policy names for triage: their right to answer for people, and warnings about those without one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use c3po_shared::message::Message;
use c3po_shared::refusal::{ErrorCode, Refusal};
use futures_util::future::try_join_all;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::{Caller, Services};
use crate::policy::{Triage, TriageAgent};
use crate::store::{Agent, StoreError};

/// How often the agents are looked at: the policy changes, and agents are made, moved and deleted.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(15);

/// Refuses a caller that the policy does not name for triage, with its host.
pub(super) fn check(triage: &Triage, caller: &Caller) -> Result<(), Refusal> {
    let is_named = triage.names(&caller.agent, caller.host.as_deref());
    is_named.then_some(()).ok_or_else(forbidden)
}

/// Refuses a caller that may not answer this question for people.
pub(super) fn check_question(
    triage: &Triage,
    caller: &Caller,
    question: &Message,
) -> Result<(), Refusal> {
    check(triage, caller)?;
    let may_have = triage.may_have(question);
    may_have.then_some(()).ok_or_else(forbidden)
}

fn forbidden() -> Refusal {
    let error = "the policy does not let you answer this question for people";
    Refusal::new(ErrorCode::Forbidden, error)
}

/// Warns in the log until `stop` is cancelled: of each agent once, for as long as the same is wrong with it.
pub(crate) async fn watch(services: Arc<Services>, stop: CancellationToken) {
    let mut ticks = interval(LOOKED_AT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known = BTreeSet::new();
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        // Without the store nothing is known about them, and the next look tells.
        let Ok(found) = warnings(&services).await else {
            continue;
        };
        for warning in found.difference(&known) {
            tracing::warn!("{warning}");
        }
        known = found;
    }
}

/// Returns the present warnings.
async fn warnings(services: &Services) -> Result<BTreeSet<String>, StoreError> {
    let policy = services.policies.current();
    let reading = policy.triage().agents().iter().map(|named| async {
        let agent = services.store.agent(named.name()).await?;
        Ok::<_, StoreError>(warning(named, agent.as_ref()))
    });
    Ok(try_join_all(reading).await?.into_iter().flatten().collect())
}

/// Returns the warning about an agent that the policy names, of which this is the record. `None` if it is right.
fn warning(named: &TriageAgent, agent: Option<&Agent>) -> Option<String> {
    let begin = format!("the policy names {named} for triage");
    let Some(agent) = agent else {
        return Some(format!("{begin}, but there is no agent {}", named.name()));
    };
    let host = agent.host.as_deref();
    if named.is_of(host) {
        return None;
    }
    let of = host.unwrap_or("no known host");
    Some(format!(
        "{begin}, but {} is an agent of {of} and does not answer for people. If its host was renamed, write the new name into \
         the policy",
        agent.id
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(host: Option<&str>) -> Agent {
        Agent {
            id: "helper".parse().expect("the name of an agent"),
            host: host.map(str::to_owned),
            ..Agent::placeholder()
        }
    }

    #[test]
    fn an_agent_that_is_missing_or_of_another_host_is_reported() {
        let check = |named: &str, agent: Option<Agent>, expected: Option<&str>| {
            let named = named.to_owned().try_into().expect("a triage agent");
            assert_eq!(warning(&named, agent.as_ref()).as_deref(), expected);
        };
        check("helper@vic", Some(agent(Some("vic"))), None);
        check("helper", Some(agent(Some("evil"))), None);
        check("helper", Some(agent(None)), None);
        check(
            "helper@vic",
            None,
            Some("the policy names helper@vic for triage, but there is no agent helper"),
        );
        check(
            "helper@vic",
            Some(agent(Some("evil"))),
            Some(
                "the policy names helper@vic for triage, but helper is an agent of evil and does not answer for people. If its \
                 host was renamed, write the new name into the policy",
            ),
        );
        check(
            "helper@vic",
            Some(agent(None)),
            Some(
                "the policy names helper@vic for triage, but helper is an agent of no known host and does not answer for \
                 people. If its host was renamed, write the new name into the policy",
            ),
        );
    }
}
