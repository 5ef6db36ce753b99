//! `lab soak`: an hour of all activities at a moderate rate, with people who type, while the memory and descriptors of
//! every process are watched. No action may fail.

mod samples;
mod sessions;
mod verdict;
mod waits;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use harness::coordinator::Coordinator;
use harness::crowd::{Crowd, Pace, Sending};
use harness::redis::Redis;
use harness::vitals::raise_descriptor_limit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::samples::{Roster, Samples, Traffic};
use self::sessions::Sessions;
use crate::say;

/// How many coordinators share the Redis.
const COORDINATORS: usize = 2;
/// Of the crowd, one agent in this number sends instead of waiting.
const SENDERS: usize = 6;
/// The approximate lifetime of a link in the crowd.
const LINK_LIFE: Duration = Duration::from_secs(600);
/// The guard against loops, with the default setting.
const LOOPS: (&str, &str) = ("C3PO_LOOP_MESSAGES", "60");
/// A broadcast to the crowd counts once per recipient, and would block its sender with the default setting.
const SENDS: (&str, &str) = ("C3PO_RATE_LIMIT", "1000");
/// How long the crowd may take to connect.
const GATHERING: Duration = Duration::from_secs(60);

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How long
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// How much of that is not judged, at the beginning [default: a tenth, at least a minute]
    #[arg(long)]
    warm_up: Option<f64>,
    /// Agents of the crowd
    #[arg(long, default_value_t = 300)]
    agents: usize,
    /// Sessions, each with a real proxy
    #[arg(long, default_value_t = 10)]
    sessions: usize,
    /// Messages per second that the crowd sends
    #[arg(long, default_value_t = 50.0)]
    rate: f64,
    /// Seconds between two looks at the processes
    #[arg(long, default_value_t = 10.0)]
    every: f64,
    /// Where the samples are written
    #[arg(long, default_value = "target/soak.csv")]
    csv: PathBuf,
    /// The file for the crowd's traffic and its latency
    #[arg(long, default_value = "target/soak-traffic.csv")]
    traffic: PathBuf,
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    ensure!(
        options.sessions >= 2 && options.agents >= SENDERS,
        "two sessions and {SENDERS} agents are the least"
    );
    raise_descriptor_limit()?;
    let work = tempfile::tempdir().context("making a folder")?;
    let samples = soak(options, work.path()).await?;
    let span = Duration::from_secs_f64(options.minutes * 60.0);
    let warm_up = options
        .warm_up
        .map_or(span.div_f64(10.0).max(Duration::from_secs(60)), |minutes| {
            Duration::from_secs_f64(minutes * 60.0)
        });
    let verdict = verdict::of(&samples, warm_up);
    println!("{verdict}");
    println!(
        "samples in {}, traffic in {}",
        options.csv.display(),
        options.traffic.display()
    );
    Ok(if verdict.holds() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Starts the coordinators on one store.
async fn start(work: &Path, redis: &Redis, roster: &Roster) -> Result<Vec<Coordinator>> {
    let mut coordinators = Vec::new();
    for number in 1..=COORDINATORS {
        let folder = work.join(format!("coordinator-{number}"));
        std::fs::create_dir(&folder)?;
        let mut coordinator = Coordinator::absent(&folder, &redis.url())?.quietly();
        // Without keys, all agents share one quota.
        coordinator = coordinator
            .with(LOOPS.0, Path::new(LOOPS.1))
            .with(SENDS.0, Path::new(SENDS.1))
            .with("C3PO_STORE_QUOTA", Path::new("0"));
        coordinator.restart().await?;
        roster.enter(
            &format!("coordinator-{number}"),
            coordinator.process()?.id()?,
        );
        coordinators.push(coordinator);
    }
    Ok(coordinators)
}

async fn stop_all(coordinators: Vec<Coordinator>) -> Result<()> {
    for mut coordinator in coordinators {
        let status = coordinator.stop().await?;
        ensure!(status.success(), "a coordinator ended with {status}");
    }
    Ok(())
}

async fn soak(options: &Options, work: &Path) -> Result<Samples> {
    let roster = Arc::new(Roster::default());
    let redis = Redis::start().await?;
    roster.enter("redis", redis.id());
    let coordinators = start(work, &redis, &roster).await?;
    let addresses: Vec<_> = coordinators.iter().map(Coordinator::address).collect();
    let waiting = options.agents - options.agents / SENDERS;
    let crowd = Crowd::of_several(addresses).with_link_life(LINK_LIFE);
    crowd.gather("agent", waiting);
    crowd.gathered(waiting, GATHERING).await?;
    let senders = crowd.join("sender", options.agents / SENDERS).await?;
    say(&format!(
        "{waiting} agents wait on {COORDINATORS} coordinators, {} send",
        senders.len()
    ));

    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let traffic = Arc::new(Traffic::default());
    let urls: Vec<_> = coordinators.iter().map(Coordinator::url).collect();
    let sessions = Sessions::new(
        work,
        urls,
        waiting,
        Arc::clone(&roster),
        Arc::clone(&traffic),
    );
    for number in 0..options.sessions {
        tasks.spawn(
            sessions
                .clone()
                .live(number, options.sessions, stop.clone()),
        );
    }
    tasks.close();

    let span = Duration::from_secs_f64(options.minutes * 60.0);
    let targets = (0..waiting)
        .map(|number| format!("agent-{number}"))
        .collect();
    let sending = Sending {
        targets,
        pace: Pace::PerSecond(options.rate),
        span,
        body: 200,
    };
    let mut samples = Samples::create(&options.csv, &options.traffic)?;
    let looking = samples.take_every(
        Duration::from_secs_f64(options.every),
        &roster,
        &crowd,
        &traffic,
    );
    tokio::select! {
        sent = crowd.send(senders, &sending) => drop(sent?),
        looked = looking => match looked? {},
    }
    stop.cancel();
    tasks.wait().await;
    crowd.end().await;
    stop_all(coordinators).await?;
    Ok(samples)
}
