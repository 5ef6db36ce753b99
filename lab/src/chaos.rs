//! `make chaos`: many agents send each other messages while everything is killed by chance; then nothing may be lost.

#![expect(clippy::print_stdout, reason = "a person or a program reads what it prints")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use harness::storm::{Aftermath, Store, Storm, run};
use serde_json::json;

const HELP: &str = "\
Agents send each other messages while coordinators, their store and proxies are killed with kill -9, and links cut,
by chance.
Ends with 1 where a message was lost, shown twice or out of order, or a receipt was not true.

  --messages N    how many messages are to be accepted (10000)
  --agents N      how many agents send them to each other (50)
  --seed N        what chance follows from (the time, and printed)
  --store WHICH   redis: two coordinators on one Redis; cluster: on three; sqlite: one coordinator; both: redis and sqlite (both)
  --pace MS       how long an agent pauses at the most between two sends (600)
  --json          a summary for programs on standard output, one line for each store
";

/// What was asked for.
struct Options {
    storm: Storm,
    stores: Vec<Store>,
    json: bool,
}

fn options() -> Result<Option<Options>> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let pace = Duration::from_millis(600);
    let storm = Storm { messages: 10_000, agents: 50, seed: now, store: Store::Redis, pace };
    let mut options = Options { storm, stores: vec![Store::Redis, Store::Sqlite], json: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--json" => options.json = true,
            "--messages" => options.storm.messages = value()?.parse().context("--messages")?,
            "--agents" => options.storm.agents = value()?.parse::<usize>().context("--agents")?.max(2),
            "--seed" => options.storm.seed = value()?.parse().context("--seed")?,
            "--pace" => options.storm.pace = Duration::from_millis(value()?.parse().context("--pace")?),
            "--store" => {
                options.stores = match value()?.as_str() {
                    "redis" => vec![Store::Redis],
                    "cluster" => vec![Store::Cluster],
                    "sqlite" => vec![Store::Sqlite],
                    "both" => vec![Store::Redis, Store::Sqlite],
                    other => bail!("there is no store {other}: redis, cluster, sqlite or both"),
                }
            }
            other => bail!("there is no option {other}; --help shows them"),
        }
    }
    Ok(Some(options))
}

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let Some(options) = options()? else {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    let mut clean = true;
    for store in &options.stores {
        let storm = Storm { store: *store, ..options.storm.clone() };
        eprintln!("{store:?}: {} messages, {} agents, --seed {}", storm.messages, storm.agents, storm.seed);
        let seed = storm.seed;
        let aftermath = run(storm, |line| eprintln!("{store:?}: {line}")).await?;
        clean &= aftermath.report.findings.is_empty();
        tell(*store, seed, &aftermath, options.json);
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn tell(store: Store, seed: u64, aftermath: &Aftermath, as_json: bool) {
    let Aftermath { report, kills, took, logs } = aftermath;
    if let Some(logs) = logs {
        eprintln!("{store:?}: the logs are in {}; again with --seed {seed}", logs.display());
    }
    if as_json {
        let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        let summary = json!({
            "store": format!("{store:?}").to_lowercase(), "seed": seed, "seconds": took.as_secs_f64(),
            "kills": {"coordinators": kills[0], "store": kills[1], "proxies": kills[2], "links": kills[3]},
            "sends": report.sends, "accepted": report.accepted, "queued": report.queued, "refused": report.refused,
            "unknown": report.unknown, "shown": report.shown, "repeated": report.repeated,
            "findings": findings,
        });
        println!("{summary}");
    } else {
        println!("{store:?}, seed {seed}, {:.1} s: {report}", took.as_secs_f64());
    }
}
