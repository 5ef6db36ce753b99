//! Checks before a Redis is used: its durability and the format of its data.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, RedisResult, ServerErrorKind};
use rustls::AlertDescription;

use super::connection::RedisConnection;
use super::earlier;
use super::key_names::{KeyNames, SCHEMA};
use super::node::Node;
use super::open_error::OpenError;
use crate::store::StoreError;

/// Runs all checks, logs the durability settings, and records the layout if there is none.
pub(super) async fn check(
    connection: &RedisConnection,
    names: &KeyNames,
    discard_old: bool,
) -> Result<(), OpenError> {
    let failed = |error: RedisError| failed(connection.address(), &error);
    let master = connection.master().await.map_err(failed)?;
    let answer: RedisResult<()> = master.call(&redis::cmd("PING")).await;
    answer.map_err(failed)?;
    check_server(&master, connection.is_cluster()).await?;
    check_schema(connection, names, discard_old).await
}

async fn check_server(node: &Node, in_cluster: bool) -> Result<(), OpenError> {
    // A user without permission for `INFO` continues, because every check below has a fallback.
    let info: String = node.call(&redis::cmd("INFO")).await.unwrap_or_default();
    check_kind(node, &info, in_cluster)?;
    check_policy(node, &info).await?;
    report_durability(node, &info).await;
    if let Some(warning) = unbounded(
        setting(node, "maxmemory", &info, "maxmemory")
            .await
            .as_deref(),
    ) {
        tracing::warn!("the Redis at {} {warning}", node.name());
    }
    if in_cluster
        && setting(node, "cluster-require-full-coverage", &info, "")
            .await
            .as_deref()
            == Some("yes")
    {
        tracing::warn!(
            "the Redis at {} has cluster-require-full-coverage yes: if one server of the cluster fails, all of them \
             refuse requests; set it to no, so that only the fleets of that server are affected",
            node.name()
        );
    }
    Ok(())
}

fn check_kind(node: &Node, info: &str, in_cluster: bool) -> Result<(), OpenError> {
    let address = node.name().to_owned();
    if let Some(version) = older_than_7(info) {
        return Err(OpenError::TooOld { address, version });
    }
    match (line(info, "redis_mode"), line(info, "role")) {
        (Some("cluster"), _) if !in_cluster => Err(OpenError::InCluster { address }),
        (_, Some("slave")) if !in_cluster => Err(OpenError::Replica { address }),
        _ => Ok(()),
    }
}

/// Returns the version if it is older than 7.0. Valkey reports the compatible Redis version here.
fn older_than_7(info: &str) -> Option<String> {
    let version = line(info, "redis_version")?;
    let major: u32 = version.split('.').next()?.parse().ok()?;
    (major < 7).then(|| version.to_owned())
}

/// Returns the value of this field of `INFO`.
/// Returns the value with that name in the output of `INFO`.
pub(super) fn line<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

async fn check_policy(node: &Node, info: &str) -> Result<(), OpenError> {
    match setting(node, "maxmemory-policy", info, "maxmemory_policy").await {
        Some(policy) if policy == "noeviction" => Ok(()),
        Some(policy) => Err(OpenError::Evicts {
            address: node.name().to_owned(),
            policy,
        }),
        None => {
            tracing::warn!(
                "cannot read the maxmemory-policy of the Redis at {}; make sure that it is noeviction",
                node.name()
            );
            Ok(())
        }
    }
}

/// Returns a warning about the memory limit. Without a limit the machine may run out of memory, and its kernel then kills a
/// process.
fn unbounded(maxmemory: Option<&str>) -> Option<&'static str> {
    match maxmemory {
        Some("0") => Some(
            "has no maxmemory: it can use all the memory of its machine instead of refusing messages; set it with \
             `redis-cli CONFIG SET maxmemory 512mb` and in its redis.conf",
        ),
        Some(_) => None,
        None => Some("does not show its maxmemory: make sure that it has one"),
    }
}

async fn report_durability(node: &Node, info: &str) {
    let address = node.name();
    let fsync = setting(node, "appendfsync", info, "").await;
    match setting(node, "appendonly", info, "aof_enabled")
        .await
        .as_deref()
    {
        Some("yes" | "1") => match fsync.as_deref() {
            Some("always") => {
                tracing::info!(
                    "the Redis at {address} writes every accepted message to disk immediately"
                )
            }
            Some("everysec") => tracing::info!(
                "the Redis at {address} writes to disk every second (appendfsync everysec): when its machine crashes, \
                 up to one second of accepted messages can be lost; appendfsync always loses none"
            ),
            Some("no") => tracing::warn!(
                "the Redis at {address} leaves the time of disk writes to the system (appendfsync no): when its \
                 machine crashes, 30 seconds or more of accepted messages can be lost; set appendfsync everysec or \
                 always"
            ),
            _ => {
                tracing::warn!(
                    "cannot read the appendfsync of the Redis at {address}: everysec loses up to one second"
                )
            }
        },
        Some(_) => tracing::warn!(
            "the Redis at {address} has no append-only file (appendonly no): when it ends, everything since its last \
             snapshot is lost; set appendonly yes"
        ),
        None => tracing::warn!(
            "cannot read appendonly of the Redis at {address}; make sure that it is yes"
        ),
    }
}

/// Reads a setting, or the equivalent line of `INFO` if reading settings is not permitted.
async fn setting(node: &Node, name: &str, info: &str, of_info: &str) -> Option<String> {
    let asked: RedisResult<HashMap<String, String>> =
        node.call(redis::cmd("CONFIG").arg("GET").arg(name)).await;
    let value = asked.ok().and_then(|mut found| found.remove(name));
    value.or_else(|| line(info, of_info).map(str::to_owned))
}

async fn check_schema(
    connection: &RedisConnection,
    names: &KeyNames,
    discard_old: bool,
) -> Result<(), OpenError> {
    let address = || connection.address().to_owned();
    let unreachable = |error: StoreError| unreachable(connection.address(), &error);
    let (mut read, mut note) = (redis::cmd("GET"), redis::cmd("SET"));
    read.arg(names.key("schema"));
    let mut found: Option<String> = connection.run(&read).await.map_err(unreachable)?;
    // Written only if missing: a full Redis still allows reads, and a coordinator must start in order to free memory.
    if found.is_none() {
        if earlier::is_there(connection).await.map_err(unreachable)? {
            if !discard_old {
                return Err(OpenError::EarlierBuild { address: address() });
            }
            earlier::discard(connection, names)
                .await
                .map_err(unreachable)?;
        }
        let note = note.arg(names.key("schema")).arg(SCHEMA).arg("NX");
        let () = connection.run(note).await.map_err(unreachable)?;
        found = connection.run(&read).await.map_err(unreachable)?;
    }
    let found = found.unwrap_or_default();
    match found.parse::<u64>() {
        Ok(SCHEMA) => Ok(()),
        _ => Err(OpenError::NewerSchema {
            address: address(),
            found,
        }),
    }
}

/// Returns the error for failed first commands, separating permanent from temporary failures.
pub(super) fn failed(address: &str, error: &RedisError) -> OpenError {
    let is_final = matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
        || matches!(
            error.kind(),
            ErrorKind::AuthenticationFailed
                | ErrorKind::Server(ServerErrorKind::NoPerm | ServerErrorKind::ResponseError)
        );
    match error.code() {
        Some("OOM") => OpenError::Full {
            address: address.to_owned(),
        },
        _ if is_final => OpenError::Refused {
            address: address.to_owned(),
            reason: error.to_string(),
        },
        _ => unreachable(address, error),
    }
}

/// Returns the error for an unusable server, with advice if the cause is known.
fn unreachable(address: &str, error: &(dyn Error + 'static)) -> OpenError {
    let (address, reason) = (address.to_owned(), error.to_string());
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(_)) => OpenError::Untrusted { address, reason },
        Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            OpenError::AsksForCertificate { address, reason }
        }
        _ => OpenError::Unreachable { address, reason },
    }
}

/// Returns the TLS error behind this error. The Redis client wraps it in an I/O error behind an `Arc`.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let cause = error
        .source()?
        .downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    cause.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use super::{older_than_7, unbounded};

    #[test]
    fn a_redis_without_a_bound_of_its_memory_is_reported() {
        assert!(
            unbounded(Some("0")).is_some_and(|warning| warning.contains("CONFIG SET maxmemory"))
        );
        assert!(unbounded(None).is_some());
        assert_eq!(unbounded(Some("536870912")), None);
    }

    #[test]
    fn a_redis_before_7_is_too_old() {
        let check = |info: &str, expected: Option<&str>| {
            assert_eq!(older_than_7(info).as_deref(), expected, "{info}")
        };
        check(
            "# Server\r\nredis_version:6.2.14\r\nredis_mode:cluster\r\n",
            Some("6.2.14"),
        );
        check("redis_version:7.0.15\r\n", None);
        check(
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n",
            None,
        );
        check("redis_version:10.0.0\r\n", None);
        check("redis_version:unstable\r\n", None);
        check("", None);
    }
}
