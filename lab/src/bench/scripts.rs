//! Redis's counts of scripts: their number, their commands, their time.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use harness::loaded::Loaded;
use redis::InfoDict;
use redis::aio::MultiplexedConnection;

use super::report::{Goal, Report};

/// The commands that run a script. Redis has one figure for all scripts that the same command ran.
const RUNNERS: [&str; 5] = ["eval", "evalsha", "evalsha_ro", "fcall", "fcall_ro"];
/// How long a script may take at the 99th percentile, in milliseconds.
const P99_MAX: f64 = 2.0;

/// The counts of a Redis since the last reset.
#[derive(Debug)]
pub(super) struct Counts {
    /// How many scripts ran.
    pub(super) scripts: f64,
    /// How many other commands ran, by name: nearly all of them in scripts.
    pub(super) commands: BTreeMap<String, f64>,
    /// How long scripts ran in all, in microseconds.
    pub(super) time: f64,
    /// How many bytes it received and sent.
    pub(super) bytes: f64,
}

/// Resets the statistics of a coordinator's Redis. Returns the connection for [`counts`].
pub(super) async fn count_anew(server: &Loaded) -> Result<Option<MultiplexedConnection>> {
    let Some(mut redis) = connection(server).await? else {
        return Ok(None);
    };
    let () = redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .query_async(&mut redis)
        .await?;
    Ok(Some(redis))
}

/// Returns the counts.
pub(super) async fn counts(redis: &mut MultiplexedConnection) -> Result<Counts> {
    let commands = section(redis, "commandstats", "cmdstat_").await?;
    let mut counts = Counts {
        scripts: 0.0,
        commands: BTreeMap::new(),
        time: 0.0,
        bytes: 0.0,
    };
    for (name, fields) in commands {
        let calls = field(&fields, "calls")?;
        if RUNNERS.contains(&name.as_str()) {
            counts.scripts += calls;
            counts.time += field(&fields, "usec")?;
        } else if !name.starts_with("config") && name != "info" {
            counts.commands.insert(name, calls);
        }
    }
    let stats: InfoDict = redis::cmd("INFO").arg("stats").query_async(redis).await?;
    for bytes in ["total_net_input_bytes", "total_net_output_bytes"] {
        counts.bytes += stats.get::<f64>(bytes).context(bytes)?;
    }
    Ok(counts)
}

/// Reports how long scripts took, from INFO latencystats. The run fails if they took too long.
pub(super) async fn judge(server: &Loaded, what: &str, report: &mut Report) -> Result<()> {
    let Some(mut redis) = connection(server).await? else {
        return Ok(());
    };
    for (name, fields) in section(&mut redis, "latencystats", "latency_percentiles_usec_").await? {
        if RUNNERS.contains(&name.as_str()) {
            let p99 = field(&fields, "p99")? / 1e3;
            report.must(
                &format!("scripts ({name}), {what}, p99"),
                p99,
                "ms",
                Goal::Below(P99_MAX),
            );
        }
    }
    Ok(())
}

async fn connection(server: &Loaded) -> Result<Option<MultiplexedConnection>> {
    let Some(url) = server.redis_url() else {
        return Ok(None);
    };
    Ok(Some(
        redis::Client::open(url)?
            .get_multiplexed_async_connection()
            .await?,
    ))
}

/// Returns the lines of a section of INFO with that prefix, by the rest of their names.
async fn section(
    redis: &mut MultiplexedConnection,
    name: &str,
    prefix: &str,
) -> Result<Vec<(String, String)>> {
    let text: String = redis::cmd("INFO").arg(name).query_async(redis).await?;
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix(prefix)?.split_once(':'));
    Ok(lines
        .map(|(name, fields)| (name.to_owned(), fields.trim().to_owned()))
        .collect())
}

fn field(fields: &str, name: &str) -> Result<f64> {
    let value = fields
        .split(',')
        .find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    value
        .with_context(|| format!("no {name} in {fields}"))?
        .parse()
        .with_context(|| fields.to_owned())
}
