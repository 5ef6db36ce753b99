//! Waits for answers in Redis: one key per waiting agent, which every coordinator reads.

use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::MessageId;

use super::speaker::session_argument;
use super::{RedisStore, millis, records};
use crate::store::{CycleCheck, Result, StoreError, Tenure, WaitStore};

#[async_trait]
impl WaitStore for RedisStore {
    async fn await_answer(
        &self,
        message: &MessageId,
        tenure: Option<&Tenure>,
        lease: Duration,
    ) -> Result<CycleCheck> {
        let mut call = self
            .names
            .call("await_answer", [self.names.message(message)]);
        call.arg(message.as_str())
            .arg(millis(lease))
            .arg(session_argument(tenure));
        let check: Option<(u32, Vec<String>)> = self.within(self.connection.invoke(&call)).await?;
        let (waits, cycle) = check.ok_or_else(|| StoreError::TakenOver(message.from()))?;
        let cycle = cycle.iter().map(|id| records::parse(id));
        Ok(CycleCheck {
            cycle: cycle.collect::<Result<_>>()?,
            waits,
        })
    }
}
