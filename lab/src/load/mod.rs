//! `lab load`: thousands of agents that wait, some that send, and the cost for the coordinator and its store.

mod report;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use harness::crowd::{Crowd, Pace, Sending};
use harness::eventually::eventually;
use harness::loaded::Loaded;
use harness::vitals::raise_descriptor_limit;
use tokio::time::{interval, sleep};

use self::report::{Report, Sent};
use crate::{Store, say};

/// Descriptors that are not links: files, the runtime, the coordinator's pipes.
const OTHER_DESCRIPTORS: u64 = 100;
/// How long all agents together may take to connect.
const GATHERING: Duration = Duration::from_secs(180);
/// How long the last messages may take to arrive after the last send.
const LAST_ARRIVALS: Duration = Duration::from_secs(10);

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Agents that wait for mail; with 0 the senders send to each other, and acknowledge pushed messages
    #[arg(long, default_value_t = 1_000)]
    agents: usize,
    /// Agents that send
    #[arg(long, default_value_t = 64)]
    senders: usize,
    /// Messages per second by all senders together [default: each sends when the last one is answered]
    #[arg(long)]
    rate: Option<f64>,
    /// How long they send
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// How long all agents rest before that, to measure the cost of resting
    #[arg(long, default_value_t = 5.0)]
    rest: f64,
    /// Characters in a message
    #[arg(long, default_value_t = 60)]
    body: usize,
    /// The store of the coordinator that is started
    #[arg(long, value_enum, default_value = "redis")]
    store: Store,
    /// A coordinator that runs already, such as 127.0.0.1:8420, instead of one that is started. It needs
    /// C3PO_RATE_LIMIT=0, C3PO_LOOP_MESSAGES=0 and C3PO_STORE_QUOTA=0
    #[arg(long)]
    coordinator: Option<String>,
    /// The process to measure with --coordinator
    #[arg(long, requires = "coordinator")]
    pid: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let limit = raise_descriptor_limit()?;
    let needed = (options.agents + options.senders) as u64 + OTHER_DESCRIPTORS;
    ensure!(
        limit >= needed,
        "{needed} descriptors are needed and {limit} allowed: raise `ulimit -n`, or take fewer agents"
    );
    let work = tempfile::tempdir().context("making a folder")?;
    let server = match &options.coordinator {
        Some(address) => Loaded::running(address, options.pid)?,
        None => match options.store {
            Store::Redis => Loaded::on_redis(work.path()).await?,
            Store::Sqlite => Loaded::on_sqlite(work.path()).await?,
        },
    };
    let report = measure(options, &server).await?;
    if options.json {
        println!("{}", report.json());
    } else {
        println!("{report}");
    }
    Ok(ExitCode::SUCCESS)
}

async fn measure(options: &Options, server: &Loaded) -> Result<Report> {
    let crowd = Crowd::new(server.address);
    let mut report = Report {
        agents: options.agents,
        senders: options.senders,
        ..Report::default()
    };
    gather(&crowd, options.agents, server, &mut report).await?;

    let senders = crowd.join("sender", options.senders).await?;
    say(&format!(
        "{} agents that send have a link; everybody rests for {} s",
        options.senders, options.rest
    ));
    let before = server.used()?;
    sleep(Duration::from_secs_f64(options.rest)).await;
    let resting = server.used()?.since(&before).per_second(options.rest);

    let name = |number| format!("agent-{number}");
    let mut targets: Vec<_> = (0..options.agents).map(name).collect();
    if targets.is_empty() {
        targets.extend(senders.iter().map(|sender| sender.name().to_owned()));
    }
    let pace = options.rate.map_or(Pace::AsAnswered, Pace::PerSecond);
    let span = Duration::from_secs_f64(options.seconds);
    let sending = Sending {
        targets,
        pace,
        span,
        body: options.body,
    };
    let before = server.used()?;
    let began = tokio::time::Instant::now();
    let sent = tokio::select! {
        sent = crowd.send(senders, &sending) => sent?,
        never = show_progress(&crowd) => match never {},
    };
    let took = began.elapsed();
    if options.agents > 0 {
        let all_arrived = async || {
            let (sent, arrived) = crowd.tally().progress();
            (arrived >= sent).then_some(())
        };
        // The report shows missing messages.
        let _ = eventually("every message arrives", LAST_ARRIVALS, all_arrived).await;
    }
    let used = server.used()?.since(&before);
    report.sent = Some(Sent {
        counted: crowd.tally().take(),
        took,
        used,
        resting,
    });
    report.memory_at_the_end = server.memory()?;
    for sender in sent {
        sender.goodbye().await;
    }
    crowd.end().await;
    Ok(report)
}

async fn gather(crowd: &Crowd, agents: usize, server: &Loaded, report: &mut Report) -> Result<()> {
    report.memory_before = server.memory()?;
    let before = server.used()?;
    crowd.gather("agent", agents);
    report.gathered = tokio::select! {
        gathered = crowd.gathered(agents, GATHERING) => gathered?,
        never = show_progress(crowd) => match never {},
    };
    report.gathering_used = server.used()?.since(&before);
    // After that they have read their inboxes for the first time.
    sleep(Duration::from_secs(1)).await;
    report.memory_with_agents = server.memory()?;
    report.troubles_of_gathering = crowd.tally().take().troubles;
    say(&format!(
        "{agents} agents wait after {:.2} s",
        report.gathered.as_secs_f64()
    ));
    Ok(())
}

async fn show_progress(crowd: &Crowd) -> std::convert::Infallible {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let (sent, arrived) = crowd.tally().progress();
        say(&format!(
            "{} agents wait, {sent} messages sent, {arrived} arrived",
            crowd.waiting()
        ));
    }
}
