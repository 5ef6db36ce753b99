//! Duties in Redis: a sorted set by time, and a hash of the claims.

use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::AgentId;
use c3po_shared::limits::NAME_LIFE;
use c3po_shared::time::Timestamp;
use uuid::Uuid;

use super::records::corrupt;
use super::{RedisStore, millis};
use crate::store::{
    CLAIMED_MAX, Claimed, Due, Duty, DutyKind, DutyStore, FORMER_LIFE, RETURN_MAX, Result,
};

/// How many agents one call gives their duties: each costs six commands, and no call runs more than 500.
const ADOPTED: usize = 80;

/// A claimed duty as a function returns it: kind and id, how long ago it was due, and whether an earlier claim ran out.
type Row = (String, u64, bool);

#[async_trait]
impl DutyStore for RedisStore {
    async fn plan(&self, duty: &Duty, due: Timestamp) -> Result<()> {
        let mut call = self.names.call("plan", []);
        call.arg(duty.kind.as_str()).arg(&duty.id).arg(due.millis());
        self.within(self.connection.invoke::<u8>(&call))
            .await
            .map(drop)
    }

    async fn claim_due(&self, limit: usize, hold: Duration) -> Result<Due> {
        let claim = Uuid::new_v4();
        let mut call = self.names.call("claim_due", []);
        call.arg(claim.to_string())
            .arg(millis(hold))
            .arg(limit.min(CLAIMED_MAX));
        for kind in DutyKind::ALL {
            call.arg(kind.as_str());
        }
        let (next, rows): (Option<u64>, Vec<Row>) =
            self.within(self.connection.invoke(&call)).await?;
        let claimed = rows.into_iter().map(|row| claimed(claim, row));
        Ok(Due {
            claimed: claimed.collect::<Result<_>>()?,
            next: next.map(Duration::from_millis),
        })
    }

    async fn finish(&self, claimed: &Claimed) -> Result<bool> {
        end_claim(self, claimed, None).await
    }

    async fn postpone(&self, claimed: &Claimed, by: Duration) -> Result<bool> {
        end_claim(self, claimed, Some(by)).await
    }

    async fn expire(&self, agent: &AgentId) -> Result<Option<Duration>> {
        let call = self.names.call_about("expire", agent);
        let left: Option<u64> = self.within(self.connection.invoke(&call)).await?;
        Ok(left.map(Duration::from_millis))
    }

    async fn withdraw(&self, agent: &AgentId) -> Result<Option<Duration>> {
        let mut call = self.names.call_about("withdraw", agent);
        call.arg(millis(RETURN_MAX))
            .arg(millis(NAME_LIFE))
            .arg(millis(FORMER_LIFE));
        let left: Option<u64> = self.within(self.connection.invoke(&call)).await?;
        Ok(left.map(Duration::from_millis))
    }
}

fn claimed(claim: Uuid, (duty, late, taken_over): Row) -> Result<Claimed> {
    let (kind, id) = duty.split_once(' ').unwrap_or((&duty, ""));
    let kind = DutyKind::named(kind).ok_or_else(|| corrupt(format_args!("no duty '{duty}'")))?;
    Ok(Claimed {
        duty: Duty {
            kind,
            id: id.to_owned(),
        },
        claim,
        late: Duration::from_millis(late),
        taken_over,
    })
}

async fn end_claim(store: &RedisStore, claimed: &Claimed, again: Option<Duration>) -> Result<bool> {
    let Claimed { duty, claim, .. } = claimed;
    let mut call = store.names.call("end_claim", []);
    call.arg(duty.to_string())
        .arg(claim.to_string())
        .arg(again.map_or_else(String::new, |again| millis(again).to_string()));
    store.within(store.connection.invoke(&call)).await
}

/// Plans the duties of agents that a coordinator of an earlier build made. Those with a duty keep it.
pub(super) async fn adopt(store: &RedisStore) -> Result<()> {
    let mut after = String::new();
    loop {
        let mut call = store.names.call("adopt", [store.names.key("agents")]);
        call.arg(&after)
            .arg(ADOPTED)
            .arg(millis(RETURN_MAX))
            .arg(millis(NAME_LIFE));
        let names: Vec<String> = store.within(store.connection.invoke(&call)).await?;
        let is_last = names.len() < ADOPTED;
        match names.into_iter().next_back() {
            Some(last) if !is_last => after = last,
            _ => return Ok(()),
        }
    }
}
