//! The agents under one name, of which there may be thousands: their reader pays for them.

use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::refusal::Refusal;

use super::price::note_agents;
use crate::auth::{Principal, Work};
use crate::store::{Namesake, Store};

/// Returns the agents under a name, for a principal that waits at most for that time for each place.
///
/// Errors: `STORE_UNAVAILABLE`, and those of [`Principal::begin`].
pub(super) async fn read_namesakes(
    store: &dyn Store,
    principal: &Principal,
    base: &AgentId,
    within: Duration,
) -> Result<Vec<Namesake>, Refusal> {
    let _list = principal.begin(Work::List, within).await?;
    let _reading = principal.begin(Work::Read, within).await?;
    let namesakes = store.namesakes(base).await?;
    principal.note_calls(1);
    note_agents(principal, namesakes.len());
    Ok(namesakes)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use c3po_shared::limits::CALLS_PER_SECOND;
    use c3po_shared::vocabulary::Scope;
    use uuid::Uuid;

    use super::*;
    use crate::auth::key;
    use crate::config::Fleet;
    use crate::store::sqlite::SqliteStore;
    use crate::store::{Claim, Owner, Quota};

    fn claim(base: &AgentId, slot: u32) -> Claim {
        let name = if slot == 1 {
            base.clone()
        } else {
            base.suffixed(slot)
        };
        Claim {
            name,
            owner: Owner {
                base: base.clone(),
                host: "nas".into(),
                slot,
            },
            instance: Uuid::from_u128(slot.into()),
            session_id: None,
            reach: Vec::new(),
            context: 0,
            state: None,
            fleeting: false,
            one_shot: false,
            reserved: true,
            succeeds: Vec::new(),
            lease: Duration::from_secs(45),
            quota: Quota::default(),
            key: None,
            kind: "session",
        }
    }

    #[tokio::test]
    async fn a_read_of_many_agents_costs_as_many_calls_as_its_length_is_worth() {
        const AGENTS: u32 = 160;
        const READS: u32 = 40;
        const WITHIN: Duration = Duration::from_secs(1);
        let folder = tempfile::tempdir().expect("a folder");
        let store = SqliteStore::open(&folder.path().join("c3po.db"), &Fleet::default()).await;
        let store = store.expect("a store");
        let base: AgentId = "web".parse().expect("an id");
        for slot in 1..=AGENTS {
            let tenure = store.claim(&claim(&base, slot)).await.expect("claimed");
            assert!(tenure.is_some());
        }
        let principal = key(Scope::Agent, "*");
        let began = Instant::now();
        // These use up the burst, and the same number after the reads has to be waited for, with the price of the reads.
        principal.note_calls(CALLS_PER_SECOND);
        for _ in 0..READS {
            let read = read_namesakes(&store, &principal, &base, WITHIN)
                .await
                .expect("read");
            assert_eq!(read.len(), AGENTS as usize);
        }
        principal.note_calls(CALLS_PER_SECOND);
        principal.rest().await;
        let calls = CALLS_PER_SECOND + READS * 6;
        assert!(began.elapsed() >= Duration::from_secs(1) * calls / CALLS_PER_SECOND);
    }
}
