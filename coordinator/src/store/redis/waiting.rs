//! Waits for answers in Redis: one key per waiting agent, which every coordinator reads.

use std::time::Duration;

use async_trait::async_trait;
use c3po_shared::ids::MessageId;

use super::{RedisStore, millis, records};
use crate::store::{Result, WaitStore};

#[async_trait]
impl WaitStore for RedisStore {
    async fn await_answer(&self, message: &MessageId, lease: Duration) -> Result<Vec<MessageId>> {
        let mut call = self
            .names
            .call("await_answer", [self.names.message(message)]);
        call.arg(message.as_str()).arg(millis(lease));
        let cycle: Vec<String> = self.within(self.connection.invoke(&call)).await?;
        cycle.iter().map(|id| records::parse(id)).collect()
    }
}
