//! What is looked at before a Redis is used: does it keep what it accepts, and can this version read it.

use std::collections::HashMap;

use super::connection::Connection;
use super::keys::{SCHEMA, SCHEMA_KEY};
use crate::store::StoreError;

/// Why a Redis cannot be the store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address is not one. It is not repeated: it may hold a password.
    #[error("the address of the store is not a Redis URL such as redis://127.0.0.1:6379: {0}")]
    Url(String),
    /// Nothing answers there as Redis does.
    #[error("no Redis answers at {address}: {reason}")]
    Unreachable {
        /// Where.
        address: String,
        /// What happened instead.
        reason: String,
    },
    /// It may throw away what it accepted.
    #[error(
        "the Redis at {address} has maxmemory-policy {policy}, which lets it throw away accepted messages when memory \
         runs out; set it with `redis-cli CONFIG SET maxmemory-policy noeviction` and in its redis.conf"
    )]
    Evicts {
        /// Where.
        address: String,
        /// What its policy is.
        policy: String,
    },
    /// A c3po from before the first release has written there.
    #[error(
        "the Redis at {address} holds data of layout {found}, from before the first release, and this c3po reads only \
         {SCHEMA}; name another database, such as redis://HOST:PORT/1, or empty this one with `redis-cli FLUSHDB`"
    )]
    OlderSchema {
        /// Where.
        address: String,
        /// Which layout was found.
        found: String,
    },
    /// A newer c3po has written there.
    #[error("the Redis at {address} holds data of layout {found}, and this c3po reads up to {SCHEMA}; update c3po")]
    NewerSchema {
        /// Where.
        address: String,
        /// Which layout was found.
        found: String,
    },
}

/// Looks at everything, logs what the durability settings mean, and notes the layout where there is none.
pub(super) async fn check(connection: &Connection) -> Result<(), OpenError> {
    let unreachable =
        |error: StoreError| OpenError::Unreachable { address: connection.address(), reason: error.to_string() };
    let () = connection.run(&redis::cmd("PING")).await.map_err(unreachable)?;
    check_policy(connection).await?;
    report_durability(connection).await;
    check_schema(connection).await
}

async fn check_policy(connection: &Connection) -> Result<(), OpenError> {
    let address = connection.address();
    match setting(connection, "maxmemory-policy", "maxmemory_policy").await {
        Some(policy) if policy == "noeviction" => Ok(()),
        Some(policy) => Err(OpenError::Evicts { address, policy }),
        None => {
            tracing::warn!(
                "cannot see the maxmemory-policy of the Redis at {address}; make sure that it is noeviction"
            );
            Ok(())
        }
    }
}

async fn report_durability(connection: &Connection) {
    let address = connection.address();
    let fsync = setting(connection, "appendfsync", "").await;
    match setting(connection, "appendonly", "aof_enabled").await.as_deref() {
        Some("yes" | "1") => match fsync.as_deref() {
            Some("always") => tracing::info!("the Redis at {address} writes every accepted message to disk at once"),
            Some("everysec") => tracing::info!(
                "the Redis at {address} writes to disk every second (appendfsync everysec): when its machine crashes, \
                 up to one second of accepted messages can be lost; appendfsync always loses none"
            ),
            Some("no") => tracing::warn!(
                "the Redis at {address} leaves writing to disk to the system (appendfsync no): when its machine \
                 crashes, half a minute of accepted messages or more can be lost; set appendfsync everysec or always"
            ),
            _ => {
                tracing::warn!("cannot see the appendfsync of the Redis at {address}: everysec loses up to one second")
            }
        },
        Some(_) => tracing::warn!(
            "the Redis at {address} keeps no log of what it accepts (appendonly no): when it ends, everything since \
             its last snapshot is lost; set appendonly yes"
        ),
        None => tracing::warn!("cannot see whether the Redis at {address} keeps what it accepts (appendonly)"),
    }
}

/// Reads a setting, or the line of INFO that tells the same where reading settings is not allowed.
async fn setting(connection: &Connection, name: &str, line: &str) -> Option<String> {
    let asked: Result<HashMap<String, String>, _> = connection.run(redis::cmd("CONFIG").arg("GET").arg(name)).await;
    if let Some(value) = asked.ok().and_then(|mut found| found.remove(name)) {
        return Some(value);
    }
    let info: String = connection.run(&redis::cmd("INFO")).await.ok()?;
    info.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':')).map(|value| value.trim().to_owned())
}

async fn check_schema(connection: &Connection) -> Result<(), OpenError> {
    let address = connection.address();
    let unreachable =
        |error: StoreError| OpenError::Unreachable { address: address.clone(), reason: error.to_string() };
    let note = redis::cmd("SET").arg(SCHEMA_KEY).arg(SCHEMA).arg("NX").to_owned();
    let () = connection.run(&note).await.map_err(unreachable)?;
    let found: String = connection.run(redis::cmd("GET").arg(SCHEMA_KEY)).await.map_err(unreachable)?;
    match found.parse::<u64>() {
        Ok(SCHEMA) => Ok(()),
        Ok(layout) if layout < SCHEMA => Err(OpenError::OlderSchema { address, found }),
        _ => Err(OpenError::NewerSchema { address, found }),
    }
}
