//! The memory of Redis: whether it is full, and what is left for replies then.

use redis::RedisResult;

use super::connection::{RedisConnection, store_error};
use super::startup::line;
use crate::store::Result;

/// Returns whether a full server takes short replies yet: an eighth of its maxmemory is for them. One that does not report its
/// memory takes all of them.
pub(super) async fn has_reserve(connection: &RedisConnection) -> Result<bool> {
    let memory = memory(connection).await?;
    Ok(memory.is_none_or(|memory| memory.is_in_reserve()))
}

/// Returns whether the server refuses new messages because its memory is used, or soon will.
pub(super) async fn is_nearly_full(connection: &RedisConnection) -> Result<bool> {
    let memory = memory(connection).await?;
    Ok(memory.is_some_and(|memory| memory.is_nearly_full()))
}

/// The memory of a server in bytes. Without a limit `max` is 0.
#[derive(Debug, PartialEq, Eq)]
struct Memory {
    used: u64,
    max: u64,
}

impl Memory {
    fn read(info: &str) -> Option<Self> {
        let bytes = |name| line(info, name)?.parse().ok();
        bytes("used_memory")
            .zip(bytes("maxmemory"))
            .map(|(used, max)| Self { used, max })
    }

    fn is_nearly_full(&self) -> bool {
        self.max > 0 && self.used >= self.max - self.max / 32
    }

    fn is_in_reserve(&self) -> bool {
        self.used < self.max.saturating_add(self.max / 8)
    }
}

/// Returns the memory of the master, if it reports it.
async fn memory(connection: &RedisConnection) -> Result<Option<Memory>> {
    let failed = |error| store_error(&error);
    let master = connection.master().await.map_err(failed)?;
    let info: RedisResult<String> = master.call(redis::cmd("INFO").arg("memory")).await;
    Ok(info.ok().and_then(|info| Memory::read(&info)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_replies_may_use_more_than_the_maximum_and_the_log_less() {
        for (used, max, is_nearly_full, is_in_reserve) in [
            (774, 800, false, true),
            (775, 800, true, true),
            (800, 800, true, true),
            (899, 800, true, true),
            (900, 800, true, false),
            (900, 0, false, false),
        ] {
            let info = format!("# Memory\r\nused_memory:{used}\r\nmaxmemory:{max}\r\n");
            let memory = Memory::read(&info).expect("both numbers");
            assert_eq!(memory.is_nearly_full(), is_nearly_full, "{info}");
            assert_eq!(memory.is_in_reserve(), is_in_reserve, "{info}");
        }
        assert_eq!(Memory::read(""), None, "a server that reports nothing");
    }
}
