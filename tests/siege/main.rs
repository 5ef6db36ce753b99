//! `make siege`: a minute of everything that should not be sent, and what a good client notices of it.

#![expect(clippy::print_stdout, reason = "a person reads what it prints")]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
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
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// How much more memory the coordinator may have in the last quarter than in the second, in bytes.
const GROWTH_MAX: u64 = 4 << 20;
/// How much longer the good client may wait at the 99th percentile than while another coordinator of the same machine is
/// under siege.
const TIMES: f64 = 2.0;
/// The good client calls so often.
const EVERY: Duration = Duration::from_millis(5);
/// How often it is looked at how much memory the coordinator has.
const LOOK: Duration = Duration::from_millis(250);

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
    /// Only attack the coordinator that is there; the key comes by standard input
    #[arg(long, hide = true)]
    attack: Option<SocketAddr>,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let options = Options::parse();
    raise_descriptor_limit()?;
    match options.attack {
        Some(address) => attack(&options, address).await,
        None => measure(&options).await,
    }
}

async fn measure(options: &Options) -> Result<()> {
    let work = TempDir::new()?;
    let (ours, other) = (work.path().join("ours"), work.path().join("other"));
    let ((mut coordinator, key), (neighbour, other_key)) = (besieged(&ours).await?, besieged(&other).await?);
    let own = make_key(&coordinator, &ours).await?;
    let mut good = proxy_command(&ours, "good", &coordinator.url())?;
    good.env("C3PO_TOKEN", own);
    let good = McpClient::start(good, &ours.join("good.log"))?;
    good.initialize().await?;
    let span = Duration::from_secs(options.seconds);
    let without = pings(&good, span / 6).await?;
    let seconds = (options.seconds / 3).max(1);
    let siege = begin(options, seconds, neighbour.address(), &other_key).await?;
    let beside = pings(&good, Duration::from_secs(seconds) * 8 / 10).await?;
    println!("at a coordinator beside: {}", end(siege).await?);
    let process = coordinator.process()?.id()?;
    let siege = begin(options, options.seconds, coordinator.address(), &key).await?;
    let (with, memory) = tokio::join!(pings(&good, span * 8 / 10), watch(process, span));
    let (with, memory) = (with?, memory?);
    println!("at its own: {}", end(siege).await?);
    println!("a good client's ping, p99: {without:?} alone, {beside:?} with the siege at a coordinator beside, {with:?} at its own");
    let quarter = |number: usize| median(&memory[memory.len() * number / 4..memory.len() * (number + 1) / 4]);
    let (second, last) = (quarter(1), quarter(3));
    let most = memory.iter().max().copied().unwrap_or_default();
    println!("the coordinator: {} kB in the second quarter, {} kB in the last, {} kB at most", second >> 10, last >> 10, most >> 10);
    let log = coordinator.process()?.log();
    ensure!(!log.contains("panicked"), "the coordinator panicked:\n{log}");
    ensure!(last < second + GROWTH_MAX, "its memory grows");
    let times = with.as_secs_f64() / beside.as_secs_f64();
    let met = if times <= TIMES { "met" } else { "NOT MET" };
    println!("{times:.1} times ({:.1} times alone): {met}", with.as_secs_f64() / without.as_secs_f64());
    Ok(())
}

/// Starts a coordinator that demands credentials. Returns it with a key.
async fn besieged(folder: &Path) -> Result<(Coordinator, String)> {
    std::fs::create_dir(folder)?;
    let store = format!("sqlite:{}", folder.join("c3po.db").display());
    let mut coordinator = Coordinator::absent(folder, &store)?.quietly().with("C3PO_CLOSED", Path::new("true"));
    coordinator.restart().await?;
    let key = make_key(&coordinator, folder).await?;
    Ok((coordinator, key))
}

/// Has a process of its own attack: what that does for it is not what the good client waits for.
async fn begin(options: &Options, seconds: u64, address: SocketAddr, key: &str) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--rate", &options.rate.to_string(), "--seconds", &seconds.to_string()]);
    command.args(["--seed", &options.seed.to_string(), "--attack", &address.to_string()]).kill_on_drop(true);
    let mut siege = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    siege.stdin.take().context("its input")?.write_all(key.as_bytes()).await?;
    Ok(siege)
}

/// Waits for the end of a siege. Returns what was done.
async fn end(siege: Child) -> Result<String> {
    let output = siege.wait_with_output().await?;
    ensure!(output.status.success(), "the siege failed: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

async fn attack(options: &Options, address: SocketAddr) -> Result<()> {
    let mut key = String::new();
    tokio::io::stdin().read_to_string(&mut key).await?;
    let span = Duration::from_secs(options.seconds);
    let siege = Siege { address, key: Some(key), rate: options.rate, span, seed: options.seed };
    let done = siege.run().await;
    println!("{done:?}");
    Ok(())
}

/// Returns how much memory a process had, look by look.
async fn watch(process: u32, span: Duration) -> Result<Vec<u64>> {
    let (end, mut looks) = (Instant::now() + span, Vec::new());
    while Instant::now() < end {
        sleep(LOOK).await;
        looks.push(Vitals::of(process)?.resident);
    }
    Ok(looks)
}

fn median(looks: &[u64]) -> u64 {
    let mut looks = looks.to_vec();
    looks.sort_unstable();
    looks.get(looks.len() / 2).copied().unwrap_or_default()
}

/// Makes a key.
async fn make_key(coordinator: &Coordinator, home: &Path) -> Result<String> {
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
