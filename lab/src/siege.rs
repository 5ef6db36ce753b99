//! `lab siege`: a minute of everything that should not be sent, and what a good client notices of it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use harness::coordinator::Coordinator;
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::proxy_command;
use harness::redis::Redis;
use harness::siege::Siege;
use harness::unfinished::{self, Half};
use harness::vitals::{Vitals, raise_descriptor_limit};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::Store;

/// How much more memory the coordinator may have in the last quarter than in the second, in bytes.
const GROWTH_MAX: u64 = 4 << 20;
/// How much longer a good client may wait at the 99th percentile than one of another coordinator of the machine at the
/// same time, in the median slice: what the machine does, it does to both.
const TIMES_MAX: f64 = 2.0;
/// The most memory that the coordinator may have at any time, in bytes.
const MEMORY_MAX: u64 = 256 << 20;
/// For how much memory a coordinator has one connection by itself, in bytes.
const PER_CONNECTION: u64 = 128 << 10;
/// Where a system with the first version of control groups limits memory.
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";
/// The input that is never finished: in the clear, and over TLS.
const HALVES: [Half; 4] = [Half::Body("/mcp"), Half::Body("/api/agents/remove"), Half::FirstFrame, Half::LaterFrame];
const HALVES_OF_TLS: [Half; 1] = [Half::Handshake];
/// The part of the attacks that may find no room on the attackers' side: with more, it was no siege at that rate.
const LEFT_OUT_MAX: f64 = 0.05;
/// Into so many slices of time a siege is cut: one in which the machine stood still says nothing about the others.
const SLICES: u32 = 10;
/// A good client calls so often.
const EVERY: Duration = Duration::from_millis(5);
/// How often it is looked at how much memory the coordinator has.
const LOOK: Duration = Duration::from_millis(250);
/// For how long the good client calls before anybody attacks, as a part of the siege.
const ALONE: u32 = 6;

/// What can be chosen.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Attacks in a second
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// How long they last
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// What repeats them
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Connections beside them whose input is never finished: bodies, frames, handshakes
    #[arg(long, default_value_t = 500)]
    halves: u32,
    /// Let the coordinators speak TLS; then handshakes alone are never finished
    #[arg(long)]
    tls: bool,
    /// The memory of the besieged coordinator, in MB, where this machine lets it be limited
    #[arg(long, default_value_t = 512)]
    memory: u64,
    /// What the coordinator keeps its messages in
    #[arg(long, value_enum, default_values_t = [Store::Redis, Store::Sqlite])]
    store: Vec<Store>,
    /// Only attack the coordinator that is there; the key comes by standard input
    #[arg(long, hide = true)]
    attack: Option<SocketAddr>,
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    raise_descriptor_limit()?;
    match options.attack {
        Some(address) => attack(options, address).await?,
        None => besiege(options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Besieges a coordinator on each store.
///
/// Errors: one panicked, grew, or kept its good client waiting.
async fn besiege(options: &Options) -> Result<()> {
    let mut complaints = Vec::new();
    for store in &options.store {
        println!("{store:?}:");
        complaints.extend(measure(options, *store).await?.into_iter().map(|what| format!("{store:?}: {what}")));
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

/// Besieges one coordinator beside another that nobody attacks. Returns what should not be.
async fn measure(options: &Options, store: Store) -> Result<Vec<&'static str>> {
    let work = TempDir::new()?;
    let mut besieged = Post::open(&work.path().join("besieged"), store, options).await?;
    let beside = Post::open(&work.path().join("beside"), store, options).await?;
    let span = Duration::from_secs(options.seconds);
    let alone = percentile(&pings(&besieged.good, span / ALONE).await?)?;
    let process = besieged.coordinator.process()?.id()?;
    let limited = MemoryGroup::limit(process, options.memory << 20);
    let siege = begin(options, besieged.coordinator.address(), &besieged.key).await?;
    let (at_its_own, at_another, memory) =
        tokio::join!(pings(&besieged.good, span), pings(&beside.good, span), watch(process, span));
    let (at_its_own, at_another, memory) = (at_its_own?, at_another?, memory?);
    let [begun, left_out] = end(siege).await?;
    drop(limited);
    println!("  {begun} attacks; for {left_out} more the machine was too slow");
    let mut times = (0..SLICES).map(|slice| times(&at_its_own, &at_another, slice)).collect::<Result<Vec<_>>>()?;
    times.sort_by(f64::total_cmp);
    let (fewest, times, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!(
        "  a good client's ping, p99: {alone:.2?} before, {:.2?} meanwhile, {:.2?} at a coordinator beside: \
         {times:.1} times in the median slice, {fewest:.1} to {most:.1} in all",
        percentile(&at_its_own)?,
        percentile(&at_another)?
    );
    let quarter = |number: usize| median(&memory[memory.len() * number / 4..memory.len() * (number + 1) / 4]);
    let (second, last) = (quarter(1), quarter(3));
    let most = memory.iter().max().copied().unwrap_or_default();
    println!(
        "  the coordinator: {} kB in the second quarter, {} kB in the last, {} kB at most",
        second >> 10,
        last >> 10,
        most >> 10
    );
    let has_panicked = besieged.coordinator.process()?.log().contains("panicked");
    let complaints = [
        (left_out > (begun + left_out) * LEFT_OUT_MAX, "the attackers fell behind: this machine takes a lower --rate"),
        (has_panicked, "the coordinator panicked"),
        (last >= second + GROWTH_MAX, "its memory grows"),
        (most > MEMORY_MAX, "it has too much memory"),
        (times > TIMES_MAX, "its good client waits too long"),
    ];
    Ok(complaints.into_iter().filter(|(is_so, _)| *is_so).map(|(_, what)| what).collect())
}

/// A coordinator that demands credentials, with a store of its own, a key of it, and a client that does nobody harm.
struct Post {
    _redis: Option<Redis>,
    coordinator: Coordinator,
    key: String,
    good: McpClient,
}

impl Post {
    async fn open(folder: &Path, store: Store, options: &Options) -> Result<Self> {
        fs::create_dir(folder)?;
        let redis = match store {
            Store::Redis => Some(Redis::start().await?),
            Store::Sqlite => None,
        };
        let sqlite = || format!("sqlite:{}", folder.join("c3po.db").display());
        let store = redis.as_ref().map_or_else(sqlite, Redis::url);
        let connections = ((options.memory << 20) / PER_CONNECTION).to_string();
        let absent = Coordinator::absent(folder, &store)?.quietly();
        let absent = if options.tls { absent.over_tls("auto") } else { absent.with("C3PO_TLS", Path::new("off")) };
        let mut coordinator =
            absent.with("C3PO_CLOSED", Path::new("true")).with("C3PO_MAX_CONNECTIONS", Path::new(&connections));
        coordinator.restart().await?;
        let key = make_key(&coordinator, folder).await?;
        let name = folder.file_name().and_then(|name| name.to_str()).context("a folder without a name")?;
        let mut good = proxy_command(folder, name, &coordinator.url())?;
        good.env("C3PO_TOKEN", make_key(&coordinator, folder).await?);
        if options.tls {
            good.env("C3PO_FINGERPRINT", coordinator.fingerprint()?);
        }
        let good = McpClient::start(good, &folder.join("good.log"))?;
        good.initialize().await?;
        Ok(Self { _redis: redis, coordinator, key, good })
    }
}

/// A control group that limits the memory of one process, until this is gone.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Limits a process; where this machine does not allow that it prints so.
    fn limit(process: u32, bytes: u64) -> Option<Self> {
        let group = Self(Path::new(MEMORY_GROUPS).join(format!("c3po-siege-{process}")));
        let made = fs::create_dir(&group.0)
            .and_then(|()| fs::write(group.0.join("memory.limit_in_bytes"), bytes.to_string()))
            .and_then(|()| fs::write(group.0.join("cgroup.procs"), process.to_string()));
        if let Err(error) = made {
            println!("  without a limit of memory: {error}");
            return None;
        }
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // A group with a process in it cannot be removed: that goes back to the first one.
        let processes = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines() {
            let _ = fs::write(Path::new(MEMORY_GROUPS).join("cgroup.procs"), process);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// Has a process of its own attack: what that does for it is not what the good client waits for.
async fn begin(options: &Options, address: SocketAddr, key: &str) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["siege", "--rate", &options.rate.to_string(), "--seconds", &options.seconds.to_string()]);
    command.args(["--seed", &options.seed.to_string(), "--attack", &address.to_string()]).kill_on_drop(true);
    command.args(["--halves", &options.halves.to_string()]).args(options.tls.then_some("--tls"));
    let mut siege = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    siege.stdin.take().context("its input")?.write_all(key.as_bytes()).await?;
    Ok(siege)
}

/// Waits for the end of a siege. Returns how many attacks were begun and how many were left out.
async fn end(siege: Child) -> Result<[f64; 2]> {
    let output = siege.wait_with_output().await?;
    ensure!(output.status.success(), "the siege failed: {}", output.status);
    serde_json::from_slice(&output.stdout).context("reading what was done")
}

async fn attack(options: &Options, address: SocketAddr) -> Result<()> {
    let mut key = String::new();
    tokio::io::stdin().read_to_string(&mut key).await?;
    let span = Duration::from_secs(options.seconds);
    let siege = Siege { address, key: Some(key.clone()), rate: options.rate, span, seed: options.seed };
    let kinds: &[Half] = if options.tls { &HALVES_OF_TLS } else { &HALVES };
    let (done, ()) = tokio::join!(siege.run(), unfinished::hold(address, Some(&key), kinds, options.halves, span));
    println!("{}", json!([&done.begun, &done.left_out]));
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

/// Calls until the time is over. Returns what each call took.
async fn pings(good: &McpClient, span: Duration) -> Result<Vec<Ping>> {
    let (begin, mut done) = (Instant::now(), Vec::new());
    while begin.elapsed() < span {
        let called = Instant::now();
        good.reply("ping", json!({})).await?;
        done.push(Ping { slice: slice_of(called - begin, span), took: called.elapsed() });
        sleep(EVERY).await;
    }
    Ok(done)
}

struct Ping {
    slice: u32,
    took: Duration,
}

fn slice_of(since: Duration, span: Duration) -> u32 {
    (since.as_secs_f64() / span.as_secs_f64() * f64::from(SLICES)) as u32
}

/// Returns how much longer one client waited than the other in a slice, at the 99th percentile.
fn times(own: &[Ping], other: &[Ping], slice: u32) -> Result<f64> {
    let [own, other] = [own, other].map(|pings| percentile(pings.iter().filter(|ping| ping.slice == slice)));
    Ok(own?.as_secs_f64() / other?.as_secs_f64())
}

/// Returns the 99th percentile of what they took.
fn percentile<'a>(pings: impl IntoIterator<Item = &'a Ping>) -> Result<Duration> {
    let mut took: Vec<Duration> = pings.into_iter().map(|ping| ping.took).collect();
    took.sort();
    took.get(took.len() * 99 / 100).copied().context("no ping")
}
