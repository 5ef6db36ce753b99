//! The memory of a full Redis that is left for replies.

use redis::RedisResult;

use super::connection::{RedisConnection, store_error};
use super::startup::line;
use crate::store::Result;

/// Returns whether a full server takes short replies yet: an eighth of its maxmemory is for them. One that does not report its
/// memory takes all of them.
pub(super) async fn has_reserve(connection: &RedisConnection) -> Result<bool> {
    let failed = |error| store_error(&error);
    let master = connection.master().await.map_err(failed)?;
    let info: RedisResult<String> = master.call(redis::cmd("INFO").arg("memory")).await;
    Ok(info.ok().is_none_or(|info| is_in_reserve(&info)))
}

fn is_in_reserve(info: &str) -> bool {
    let bytes = |name| line(info, name)?.parse::<u64>().ok();
    let sizes = bytes("used_memory").zip(bytes("maxmemory"));
    sizes.is_none_or(|(used, max)| used < max.saturating_add(max / 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_replies_may_use_an_eighth_more_than_the_maximum() {
        for (used, max, expected) in [(800, 800, true), (899, 800, true), (900, 800, false)] {
            let info = format!("# Memory\r\nused_memory:{used}\r\nmaxmemory:{max}\r\n");
            assert_eq!(is_in_reserve(&info), expected, "{info}");
        }
        assert!(is_in_reserve(""), "a server that reports nothing");
    }
}
