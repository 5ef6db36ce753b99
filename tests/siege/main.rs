//! `make siege`: a minute of everything that should not be sent, and what a good client notices of it.

#![expect(clippy::print_stdout, reason = "a person reads what it prints")]

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use harness::coordinator::Coordinator;
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::proxy_command;
use harness::siege::Siege;
use harness::vitals::{Vitals, raise_descriptor_limit};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

/// How much more memory the coordinator may have after it than after the first tenth of it.
const GROWTH_MAX: u64 = 4 << 20;
/// How much longer the good client may wait at the 99th percentile.
const TIMES: f64 = 2.0;
/// The good client calls so often.
const EVERY: Duration = Duration::from_millis(5);

/// A minute of malformed, oversized, slow, half-sent and random input on every entry of a coordinator
#[derive(Debug, Parser)]
#[command(name = "make siege ARGS='…'")]
struct Options {
    /// Attacks in a second
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// How long they last
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What repeats them
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let options = Options::parse();
    raise_descriptor_limit()?;
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.quietly().with("C3PO_CLOSED", Path::new("true"));
    coordinator.restart().await?;
    let (key, own) = (key(&coordinator, work.path()).await?, key(&coordinator, work.path()).await?);
    let mut good = proxy_command(work.path(), "good", &coordinator.url())?;
    good.env("C3PO_TOKEN", own);
    let good = McpClient::start(good, &work.path().join("good.log"))?;
    good.initialize().await?;
    let span = Duration::from_secs(options.seconds);
    let without = pings(&good, span / 6).await?;
    let process = coordinator.process()?.id()?;
    let siege = Siege { address: coordinator.address(), key: Some(key), rate: options.rate, span, seed: options.seed };
    let measuring = async {
        sleep(span / 10).await;
        let early = Vitals::of(process)?.resident;
        let with = pings(&good, span * 8 / 10).await?;
        anyhow::Ok((early, with))
    };
    let (done, measured) = tokio::join!(siege.run(), measuring);
    let (early, with) = measured?;
    let late = Vitals::of(process)?.resident;
    println!("{done:?}");
    println!("a good client's ping, p99: {without:?} before, {with:?} meanwhile");
    println!("the coordinator: {} kB early, {} kB late", early / 1024, late / 1024);
    let log = coordinator.process()?.log();
    ensure!(!log.contains("panicked"), "the coordinator panicked:\n{log}");
    ensure!(late < early + GROWTH_MAX, "its memory grows");
    let times = with.as_secs_f64() / without.as_secs_f64();
    println!("{times:.1} times: {}", if times <= TIMES { "met" } else { "NOT MET" });
    Ok(())
}

/// Makes a key.
async fn key(coordinator: &Coordinator, home: &Path) -> Result<String> {
    let mut create = command(program("c3po-coordinator")?, home);
    create.args(["keys", "create", "siege", "--listen", &coordinator.address().to_string()]);
    let said = String::from_utf8(create.output().await?.stdout)?;
    Ok(said.lines().next().context("no key")?.to_owned())
}

/// Returns the 99th percentile of what a ping takes.
async fn pings(good: &McpClient, span: Duration) -> Result<Duration> {
    let (end, mut took) = (Instant::now() + span, Vec::new());
    while Instant::now() < end {
        let began = Instant::now();
        good.reply("ping", json!({})).await?;
        took.push(began.elapsed());
        sleep(EVERY).await;
    }
    took.sort();
    took.get(took.len() * 99 / 100).copied().context("no ping")
}
