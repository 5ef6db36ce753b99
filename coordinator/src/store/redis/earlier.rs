//! Data of an earlier build: detects it, and deletes it on request except for the keys of hosts and the invites.

use redis::{Cmd, RedisResult};

use super::connection::{RedisConnection, store_error};
use super::key_names::KeyNames;
use super::node::Node;
use crate::store::Result;

/// The key with the layout of earlier builds. It is deleted last, so that an interrupted deletion starts again.
const SCHEMA: &str = "c3po:schema";
/// The keys of hosts and the invites, each with its old and new name.
const CARRIED: [(&str, &str); 2] = [
    ("c3po:keys", "credentials"),
    ("c3po:{c3po:keys}:invites", "invites"),
];
/// Other old keys that belong to no agent.
const OTHERS: [&str; 3] = ["c3po:agents", "c3po:outboxes", "c3po:audit"];
/// Old keys of each agent, after its name in braces. The last two are prefixes for messages and threads.
const OF_AGENTS: [&str; 6] = ["agent", "unshown", "shown", "repeated", "outbox", "seq"];
const OF_MESSAGES: [&str; 2] = ["m:", "t:"];
/// How many keys one step scans.
const STEP: usize = 500;

/// Returns whether there is data of an earlier build.
pub(super) async fn is_there(connection: &RedisConnection) -> Result<bool> {
    Ok(!homes(connection, SCHEMA).await?.is_empty())
}

/// Copies the keys of hosts and the invites to the fleet, and deletes all other data of the earlier build.
pub(super) async fn discard(connection: &RedisConnection, names: &KeyNames) -> Result<()> {
    for (old, new) in CARRIED {
        for node in homes(connection, old).await? {
            let kept: Vec<(String, String)> = tell(&node, redis::cmd("HGETALL").arg(old)).await?;
            for (field, value) in &kept {
                let mut keep = redis::cmd("HSETNX");
                let _: bool = connection
                    .run(keep.arg(names.key(new)).arg(field).arg(value))
                    .await?;
            }
            tracing::info!("kept {} records of {old}", kept.len());
        }
    }
    for node in connection
        .masters()
        .await
        .map_err(|error| store_error(&error))?
    {
        let deleted = delete(&node).await?;
        tracing::info!(
            "deleted {deleted} keys of an earlier build at {}",
            node.name()
        );
    }
    for node in homes(connection, SCHEMA).await? {
        let _: u64 = tell(&node, redis::cmd("UNLINK").arg(SCHEMA)).await?;
    }
    Ok(())
}

/// Deletes the old keys of one server step by step. Returns how many keys were deleted.
async fn delete(node: &Node) -> Result<u64> {
    let (mut cursor, mut deleted) = (0_u64, 0);
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor)
            .arg("MATCH")
            .arg("c3po:*")
            .arg("COUNT")
            .arg(STEP);
        let (next, keys): (u64, Vec<String>) = tell(node, &scan).await?;
        for key in keys.iter().filter(|key| is_old(key)) {
            deleted += tell::<u64>(node, redis::cmd("UNLINK").arg(key)).await?;
        }
        if next == 0 {
            return Ok(deleted);
        }
        cursor = next;
    }
}

/// Returns whether a key was made by an earlier build, excluding the key of its layout.
fn is_old(key: &str) -> bool {
    if OTHERS.contains(&key) || CARRIED.iter().any(|(old, _)| *old == key) {
        return true;
    }
    let part = key
        .strip_prefix("c3po:{")
        .and_then(|rest| rest.split_once("}:"))
        .map(|(_, part)| part);
    part.is_some_and(|part| {
        OF_AGENTS.contains(&part) || OF_MESSAGES.iter().any(|begin| part.starts_with(begin))
    })
}

/// Returns the servers that have the key. Servers that refuse the query or do not have the slot are skipped.
async fn homes(connection: &RedisConnection, key: &str) -> Result<Vec<std::sync::Arc<Node>>> {
    let mut homes = Vec::new();
    for node in connection
        .masters()
        .await
        .map_err(|error| store_error(&error))?
    {
        let found: RedisResult<bool> = node.call(redis::cmd("EXISTS").arg(key)).await;
        match found {
            Ok(true) => homes.push(node),
            Ok(false) => {}
            Err(error) if matches!(error.code(), Some("NOPERM" | "MOVED")) => {}
            Err(error) => return Err(store_error(&error)),
        }
    }
    Ok(homes)
}

async fn tell<T: redis::FromRedisValue>(node: &Node, command: &Cmd) -> Result<T> {
    node.call(command)
        .await
        .map_err(|error| store_error(&error))
}

#[cfg(test)]
mod tests {
    use super::is_old;

    #[test]
    fn only_keys_of_earlier_builds_are_deleted() {
        for key in [
            "c3po:agents",
            "c3po:keys",
            "c3po:{a}:agent",
            "c3po:{a.b}:m:0123abcd",
            "c3po:{a}:t:a::b::0123abcd",
        ] {
            assert!(is_old(key), "{key}");
        }
        for key in [
            "c3po:schema",
            "c3po:mine",
            "c3po:{a}:mine",
            "c3po:agents:x",
            "{c3po}:agents",
            "c3po:{a}agent",
        ] {
            assert!(!is_old(key), "{key}");
        }
    }
}
