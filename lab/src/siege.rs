//! `lab siege`: a minute of malformed and excessive input, its effect on a good client, and the memory that is given back.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use futures_util::future::try_join_all;
use harness::coordinator::Coordinator;
use harness::entry::Entry;
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

/// How much more memory the coordinator may have in the last quarter than in the second, in bytes: the state of its
/// connections makes such a difference.
const GROWTH_MAX: u64 = 32 << 20;
/// How much longer a good client may wait at the 99th percentile than one of another coordinator of the machine at the
/// same time, in the median slice: other load of the machine affects both.
const TIMES_MAX: f64 = 2.0;
/// The memory limit of the coordinator at any time, in bytes.
const MEMORY_MAX: u64 = 256 << 20;
/// For how much memory a coordinator has one connection slot by default, in bytes.
const PER_CONNECTION: u64 = 240 << 10;
const PER_CONNECTION_OF_TLS: u64 = 384 << 10;
/// The folder of memory limits on a system with control groups of version 1.
const MEMORY_GROUPS: &str = "/sys/fs/cgroup/memory";
/// The connections beside the attacks, in turn; the last kind is for TLS only.
const HALVES: [Half; 7] = [
    Half::Body("/mcp"),
    Half::Body("/api/agents/remove"),
    Half::FirstFrame,
    Half::LaterFrame,
    Half::Broadcasts,
    Half::Answers,
    Half::Handshake,
];
/// The least number of attacking processes, each with its own key.
const ATTACKERS: u32 = 2;
/// The descriptors of an attacking process that are not for connections of [`HALVES`].
const RESERVED: u64 = 1_000;
/// The least share of the coordinator's connection slots that must be taken at some time: with fewer, it was no siege.
const TAKEN_MIN: f64 = 0.9;
/// The time until the coordinator has given back the memory of the siege: more than the longest of its deadlines.
const RETURNED_WITHIN: Duration = Duration::from_secs(60);
/// How much more memory it may have then than before the siege, in bytes, and how many more descriptors. The
/// coordinator returns free memory to the system above 48 MB.
const KEPT_MAX: u64 = 32 << 20;
const DESCRIPTORS_KEPT_MAX: usize = 16;
/// The share of attacks that the attackers may skip for lack of room on their side: with more, the rate was not reached.
const LEFT_OUT_MAX: f64 = 0.05;
/// The number of time slices of a siege: one in which the machine stood still does not affect the others.
const SLICES: u32 = 10;
/// The interval between two calls of a good client.
const EVERY: Duration = Duration::from_millis(5);
/// How often the coordinator's memory is read.
const LOOK: Duration = Duration::from_millis(250);
/// The divisor of the siege's duration for which the good client calls before any attack.
const ALONE: u32 = 6;

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Attacks in a second
    #[arg(long, default_value_t = 1_000.0)]
    rate: f64,
    /// How long they last
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed that repeats them
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Connections beside them: bodies, frames and handshakes that are never finished, broadcasts, answers that are not read
    #[arg(long, default_value_t = 20_000)]
    connections: u32,
    /// Whether the coordinators are attacked in the clear or over TLS
    #[arg(long, value_enum, default_values_t = [Over::Clear, Over::Tls])]
    over: Vec<Over>,
    /// The memory of the besieged coordinator, in MB, where this machine lets it be limited
    #[arg(long, default_value_t = 512)]
    memory: u64,
    /// The store of the coordinator
    #[arg(long, value_enum, default_values_t = [Store::Redis, Store::Sqlite])]
    store: Vec<Store>,
    /// Only attack the coordinator that is there; the key comes by standard input
    #[arg(long, hide = true)]
    attack: Option<SocketAddr>,
}

impl Options {
    /// Returns how many connection slots a coordinator with that memory has by default.
    fn places(&self, over: Over) -> u32 {
        let each = if over == Over::Tls {
            PER_CONNECTION_OF_TLS
        } else {
            PER_CONNECTION
        };
        u32::try_from((self.memory << 20) / each).unwrap_or(u32::MAX)
    }
}

/// The transport to a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Over {
    /// Without TLS
    Clear,
    /// With TLS
    Tls,
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let descriptors = raise_descriptor_limit()?;
    match options.attack {
        Some(address) => attack(options, address).await?,
        None => besiege(options, descriptors).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Besieges a coordinator on each store, in clear text and over TLS.
///
/// Errors: a coordinator ended, panicked, grew, delayed its good client, or kept memory or descriptors.
async fn besiege(options: &Options, descriptors: u64) -> Result<()> {
    let room = u32::try_from(descriptors.saturating_sub(RESERVED).max(1)).unwrap_or(u32::MAX);
    let attackers = options.connections.div_ceil(room).max(ATTACKERS);
    let mut complaints = Vec::new();
    for (store, over) in options
        .store
        .iter()
        .flat_map(|store| options.over.iter().map(move |over| (*store, *over)))
    {
        println!("{store:?}, {over:?}:");
        let measured = measure(options, store, over, attackers).await?;
        complaints.extend(
            measured
                .into_iter()
                .map(|what| format!("{store:?}, {over:?}: {what}")),
        );
    }
    ensure!(complaints.is_empty(), "{}", complaints.join("; "));
    Ok(())
}

/// Besieges one coordinator beside another without attackers. Returns the violations.
async fn measure(
    options: &Options,
    store: Store,
    over: Over,
    attackers: u32,
) -> Result<Vec<&'static str>> {
    let work = TempDir::new()?;
    let mut besieged = Post::open(&work.path().join("besieged"), store, over, options).await?;
    let beside = Post::open(&work.path().join("beside"), store, over, options).await?;
    let span = Duration::from_secs(options.seconds);
    let alone = percentile(&pings(&besieged.good, span / ALONE).await?)?;
    let process = besieged.coordinator.process()?.id()?;
    let before = Vitals::of(process)?;
    let limited = MemoryGroup::limit(process, options.memory << 20);
    let siege = begin(options, over, attackers, &besieged).await?;
    let (at_its_own, at_another, looks) = tokio::join!(
        pings(&besieged.good, span),
        pings(&beside.good, span),
        watch(process, span)
    );
    let (at_its_own, at_another, looks) = (at_its_own?, at_another?, looks?);
    let [begun, left_out] = end(siege).await?;
    println!("  {begun} attacks; for {left_out} more the machine was too slow");
    let mut times: Vec<f64> = (0..SLICES)
        .map(|slice| times(&at_its_own, &at_another, slice))
        .collect();
    times.sort_by(f64::total_cmp);
    let (fewest, times, most) = (times[0], times[times.len() / 2], times[times.len() - 1]);
    println!(
        "  a good client's ping, p99: {alone:.2?} before, {:.2?} meanwhile, {:.2?} at a coordinator beside: \
         {times:.1} times in the median slice, {fewest:.1} to {most:.1} in all",
        percentile(&at_its_own)?,
        percentile(&at_another)?
    );
    let (after, waited) = given_back(process, &before).await?;
    drop(limited);
    let is_given_back = waited < RETURNED_WITHIN;
    let memory = report(&before, &looks, &after, waited);
    let taken = looks
        .iter()
        .map(|look| look.descriptors)
        .max()
        .unwrap_or_default() as f64;
    let has_panicked = besieged.coordinator.process()?.log().contains("panicked");
    let complaints = [
        (
            left_out > (begun + left_out) * LEFT_OUT_MAX,
            "the attackers fell behind: this machine takes a lower --rate",
        ),
        (
            taken < f64::from(options.connections.min(options.places(over))) * TAKEN_MIN,
            "it had places left",
        ),
        (has_panicked, "the coordinator panicked"),
        (memory.grows, "its memory grows"),
        (memory.most > MEMORY_MAX, "it has too much memory"),
        (times > TIMES_MAX, "its good client waits too long"),
        (!is_given_back, "it keeps memory or descriptors"),
    ];
    Ok(complaints
        .into_iter()
        .filter(|(is_so, _)| *is_so)
        .map(|(_, what)| what)
        .collect())
}

/// The memory of a coordinator while it is besieged.
struct Memory {
    grows: bool,
    most: u64,
}

/// Prints the memory and descriptors of a coordinator before, during and after a siege.
fn report(before: &Vitals, looks: &[Vitals], after: &Vitals, waited: Duration) -> Memory {
    let resident: Vec<u64> = looks.iter().map(|look| look.resident).collect();
    let quarter = |number: usize| {
        median(&resident[resident.len() * number / 4..resident.len() * (number + 1) / 4])
    };
    let (second, last) = (quarter(1), quarter(3));
    // Includes the time when all connections close.
    let most = after.peak;
    println!(
        "  the coordinator: {} kB before, {} kB in the second quarter, {} kB in the last, {} kB at most, {} kB {waited:.0?} \
         afterwards",
        before.resident >> 10,
        second >> 10,
        last >> 10,
        most >> 10,
        after.resident >> 10
    );
    let open = looks
        .iter()
        .map(|look| look.descriptors)
        .max()
        .unwrap_or_default();
    println!(
        "  its descriptors: {} before, {open} at most, {} afterwards",
        before.descriptors, after.descriptors
    );
    Memory {
        grows: last >= second + GROWTH_MAX,
        most,
    }
}

/// Waits until a process has given back memory and descriptors. Returns its vitals then, and the time that it took.
async fn given_back(process: u32, before: &Vitals) -> Result<(Vitals, Duration)> {
    let began = Instant::now();
    loop {
        let after = Vitals::of(process)?;
        let is_given_back = after.resident <= before.resident + KEPT_MAX
            && after.descriptors <= before.descriptors + DESCRIPTORS_KEPT_MAX;
        if is_given_back || began.elapsed() >= RETURNED_WITHIN {
            return Ok((after, began.elapsed()));
        }
        sleep(LOOK).await;
    }
}

/// A coordinator that requires credentials, with a store of its own, and a well-behaved client.
struct Post {
    _redis: Option<Redis>,
    folder: PathBuf,
    coordinator: Coordinator,
    good: McpClient,
}

impl Post {
    async fn open(folder: &Path, store: Store, over: Over, options: &Options) -> Result<Self> {
        fs::create_dir(folder)?;
        let redis = match store {
            Store::Redis => Some(Redis::start().await?),
            Store::Sqlite => None,
        };
        let sqlite = || format!("sqlite:{}", folder.join("c3po.db").display());
        let store = redis.as_ref().map_or_else(sqlite, Redis::url);
        let connections = options.places(over).to_string();
        let absent = Coordinator::absent(folder, &store)?.quietly();
        let absent = if over == Over::Tls {
            absent.over_tls("auto")
        } else {
            absent.with("C3PO_TLS", Path::new("off"))
        };
        let mut coordinator = absent
            .with("C3PO_CLOSED", Path::new("true"))
            .with("C3PO_MAX_CONNECTIONS", Path::new(&connections));
        coordinator.restart().await?;
        let name = folder
            .file_name()
            .and_then(|name| name.to_str())
            .context("a folder without a name")?;
        let mut good = proxy_command(folder, name, &coordinator.url())?;
        good.env("C3PO_TOKEN", make_key(&coordinator, folder).await?);
        if over == Over::Tls {
            good.env("C3PO_FINGERPRINT", coordinator.fingerprint()?);
        }
        let good = McpClient::start(good, &folder.join("good.log"))?;
        good.initialize().await?;
        Ok(Self {
            _redis: redis,
            folder: folder.to_owned(),
            coordinator,
            good,
        })
    }
}

/// A control group that limits the memory of one process, removed on drop.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Limits a process; prints a notice if this machine does not allow it.
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
        // A group with a process in it cannot be removed, so its processes move to the root group.
        let processes = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for process in processes.lines() {
            let _ = fs::write(Path::new(MEMORY_GROUPS).join("cgroup.procs"), process);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// Starts the attacks in separate processes, so that their work is not part of the good client's wait.
async fn begin(options: &Options, over: Over, attackers: u32, post: &Post) -> Result<Vec<Child>> {
    let mut siege = Vec::new();
    for attacker in 0..attackers {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["siege", "--attack", &post.coordinator.address().to_string()]);
        command.args(["--rate", &(options.rate / f64::from(attackers)).to_string()]);
        command.args([
            "--connections",
            &(options.connections / attackers).to_string(),
        ]);
        command.args(["--seconds", &options.seconds.to_string()]);
        command.args(["--seed", &(options.seed + u64::from(attacker)).to_string()]);
        command
            .args(["--over", if over == Over::Tls { "tls" } else { "clear" }])
            .kill_on_drop(true);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let key = make_key(&post.coordinator, &post.folder).await?;
        child
            .stdin
            .take()
            .context("its input")?
            .write_all(key.as_bytes())
            .await?;
        siege.push(child);
    }
    Ok(siege)
}

/// Waits for the end of a siege. Returns how many attacks were begun and how many were left out.
async fn end(siege: Vec<Child>) -> Result<[f64; 2]> {
    let done = siege.into_iter().map(async |attacker| {
        let output = attacker.wait_with_output().await?;
        ensure!(
            output.status.success(),
            "the siege failed: {}",
            output.status
        );
        serde_json::from_slice::<[f64; 2]>(&output.stdout).context("reading what was done")
    });
    let done = try_join_all(done).await?;
    Ok([0, 1].map(|column| done.iter().map(|counts| counts[column]).sum()))
}

async fn attack(options: &Options, address: SocketAddr) -> Result<()> {
    let mut key = String::new();
    tokio::io::stdin().read_to_string(&mut key).await?;
    let span = Duration::from_secs(options.seconds);
    let (entry, kinds) = match options.over[..] {
        [Over::Tls] => (Entry::tls(address)?, &HALVES[..]),
        _ => (Entry::clear(address), &HALVES[..HALVES.len() - 1]),
    };
    let siege = Siege {
        entry: entry.clone(),
        key: Some(key.clone()),
        rate: options.rate,
        span,
        seed: options.seed,
    };
    let (done, ()) = tokio::join!(
        siege.run(),
        unfinished::hold(&entry, Some(&key), kinds, options.connections, span)
    );
    println!("{}", json!([&done.begun, &done.left_out]));
    Ok(())
}

/// Returns the vitals of a process, look by look.
///
/// Errors: it ended.
async fn watch(process: u32, span: Duration) -> Result<Vec<Vitals>> {
    let (end, mut looks) = (Instant::now() + span, Vec::new());
    while Instant::now() < end {
        sleep(LOOK).await;
        looks.push(Vitals::of(process).context("the coordinator ended")?);
    }
    Ok(looks)
}

fn median(looks: &[u64]) -> u64 {
    let mut looks = looks.to_vec();
    looks.sort_unstable();
    looks.get(looks.len() / 2).copied().unwrap_or_default()
}

/// Creates a key.
async fn make_key(coordinator: &Coordinator, home: &Path) -> Result<String> {
    let mut create = command(program("c3po-coordinator")?, home);
    create.args([
        "keys",
        "create",
        "siege",
        "--listen",
        &coordinator.address().to_string(),
    ]);
    let said = String::from_utf8(create.output().await?.stdout)?;
    Ok(said.lines().next().context("no key")?.to_owned())
}

/// Calls until the time is over. Returns the time of each call.
async fn pings(good: &McpClient, span: Duration) -> Result<Vec<Ping>> {
    let (begin, mut done) = (Instant::now(), Vec::new());
    while begin.elapsed() < span {
        let called = Instant::now();
        good.reply("ping", json!({})).await?;
        done.push(Ping {
            slice: slice_of(called - begin, span),
            took: called.elapsed(),
        });
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

/// Returns the ratio of the two clients' 99th percentiles in a slice. A client without a ping waited longer than a slice;
/// if the other one has none, the machine stood still.
fn times(own: &[Ping], other: &[Ping], slice: u32) -> f64 {
    match [own, other].map(|pings| percentile(pings.iter().filter(|ping| ping.slice == slice))) {
        [Ok(own), Ok(other)] => own.as_secs_f64() / other.as_secs_f64(),
        [_, Err(_)] => 1.0,
        [Err(_), Ok(_)] => f64::INFINITY,
    }
}

/// Returns the 99th percentile of their times.
fn percentile<'a>(pings: impl IntoIterator<Item = &'a Ping>) -> Result<Duration> {
    let mut took: Vec<Duration> = pings.into_iter().map(|ping| ping.took).collect();
    took.sort();
    took.get(took.len() * 99 / 100).copied().context("no ping")
}
