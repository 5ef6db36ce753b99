//! Which agents wait for people, and since when.

use std::collections::HashMap;
use std::sync::Arc;

use c3po_shared::agent::AgentRecord;
use c3po_shared::ids::AgentId;
use c3po_shared::question::Waiting;
use c3po_shared::refusal::Refusal;
use c3po_shared::time::Timestamp;

use super::{Services, begin, begin_read};
use crate::auth::{Principal, Work};
use crate::clock;
use crate::store::{Agent, OpenQuestion};

/// The agents with open questions to people, at one moment.
#[derive(Debug)]
pub(crate) struct Asking {
    /// When each asked the oldest of its open questions.
    since: HashMap<AgentId, Timestamp>,
}

impl Asking {
    /// Reads the open questions, for a principal.
    ///
    /// Errors: `STORE_UNAVAILABLE`, and those of [`begin_read`].
    pub(crate) async fn read(services: &Services, principal: &Principal) -> Result<Self, Refusal> {
        let mut since = HashMap::new();
        for question in &*open(services, principal).await? {
            since.entry(question.id.from()).or_insert(question.asked_at);
        }
        Ok(Self { since })
    }

    /// Returns the public record of an agent.
    pub(crate) fn record(&self, agent: &Agent, now: Timestamp) -> AgentRecord {
        let since = self.since.get(&agent.id);
        AgentRecord {
            asking_seconds: since.map(|since| now.since(*since).as_secs()),
            ..agent.record(now)
        }
    }
}

/// Returns how many questions wait for people, and the age of the oldest. Errors: as for [`Asking::read`].
pub(crate) async fn waiting(
    services: &Services,
    principal: &Principal,
) -> Result<Waiting, Refusal> {
    let open = open(services, principal).await?;
    let (oldest, now) = (open.first(), clock::now());
    Ok(Waiting {
        count: open.len(),
        oldest_seconds: oldest.map(|question| now.since(question.asked_at).as_secs()),
    })
}

async fn open(services: &Services, principal: &Principal) -> Result<Arc<[OpenQuestion]>, Refusal> {
    let _list = begin(principal, Work::List).await?;
    let _reading = begin_read(principal).await?;
    Ok(services.store.open_questions().await?)
}
