//! The use of pages in Redis: one key per person, which ends by itself and which every coordinator reads.

use std::time::Duration;

use async_trait::async_trait;

use super::{RedisStore, millis};
use crate::store::{PageUseStore, Result};

#[async_trait]
impl PageUseStore for RedisStore {
    async fn use_page(&self, person: &str, time: Duration) -> Result<()> {
        let mut call = self.names.call("use_page", [self.key_of_use(person)]);
        call.arg(millis(time));
        let _: u64 = self.within(self.connection.invoke(&call)).await?;
        Ok(())
    }

    async fn page_use(&self, person: &str) -> Result<Duration> {
        let call = self.names.call("page_use", [self.key_of_use(person)]);
        let left = self.within(self.connection.invoke(&call)).await?;
        Ok(Duration::from_millis(left))
    }
}

impl RedisStore {
    fn key_of_use(&self, person: &str) -> String {
        self.names.key(&format!("page:{person}"))
    }
}
