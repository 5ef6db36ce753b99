//! The effect of badly behaved agents on others: their deliveries, with and without them, in turns.
//!
//! They run in a process of their own, so that others do not wait for their work on long texts. Their share of the machine
//! is measured too, with the same load at another coordinator beside this one. Of several turns the least disturbed one
//! counts, on either side: other load of the machine only adds time.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::crowd::{Agent, Crowd, Pace, Rough, RoughOnes, Sending};
use harness::loaded::Loaded;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::runtime::Runtime;
use tokio::time::{interval, sleep};

use super::part;
use super::report::{Goal, Report};
use super::scripts;

/// The others: how many wait, how many send, and how many messages they send per second in all.
const WAITING: usize = 100;
const SENDERS: usize = 10;
const RATE: f64 = 400.0;
/// How many turns each side has, and how long one takes.
const TURNS: usize = 3;
const SPAN: Duration = Duration::from_millis(1_500);
/// How long the misbehaviour lasts before it is measured, and how long the last messages may take.
const SETTLING: Duration = Duration::from_millis(500);
/// How much slower the others' messages may be than with the same load on another coordinator of this machine.
const TIMES: f64 = 2.0;
/// The most memory of the coordinator, in megabytes.
const MEMORY: f64 = 150.0;
/// How long the others may take to connect.
const GATHERING: Duration = Duration::from_secs(30);

/// Measures everything.
pub(crate) fn all(runtime: &Runtime, report: &mut Report) -> Result<()> {
    for rough in Rough::ALL {
        runtime.block_on(one(rough, report))?;
    }
    Ok(())
}

async fn one(rough: Rough, report: &mut Report) -> Result<()> {
    let work = TempDir::new()?;
    let server = Loaded::on_redis(work.path()).await?;
    let crowd = Crowd::new(server.address);
    crowd.gather("other", WAITING);
    crowd.gathered(WAITING, GATHERING).await?;
    let mut senders = crowd.join("sender", SENDERS).await?;
    let elsewhere_work = TempDir::new()?;
    let elsewhere = Loaded::on_redis(elsewhere_work.path()).await?;
    let (mut without, mut beside, mut with, mut memory) = (f64::MAX, f64::MAX, f64::MAX, 0);
    let (mut sent, mut refused) = (0, 0);
    let span = report.span(SPAN);
    for _ in 0..TURNS {
        let (back, p99) = others(&crowd, senders, span).await?;
        without = p99.min(without);
        let rough_ones = Apart::start(elsewhere.address, rough).await?;
        sleep(SETTLING).await;
        let (back, p99) = others(&crowd, back, span).await?;
        beside = p99.min(beside);
        rough_ones.end().await?;
        let rough_ones = Apart::start(server.address, rough).await?;
        sleep(SETTLING).await;
        let (back, p99) = tokio::select! {
            measured = others(&crowd, back, span) => measured?,
            never = watch(&server, &mut memory) => match never? {},
        };
        with = p99.min(with);
        let (more_sent, more_refused) = rough_ones.end().await?;
        sent += more_sent;
        refused += more_refused;
        senders = back;
    }
    crowd.end().await;
    let name = rough.name();
    let times = Some(Goal::Times(TIMES));
    report.figure(
        &format!("{name}: the others' p99"),
        with,
        "ms",
        Some(beside),
        times,
    );
    let alone = with / without;
    report.note(&format!(
        "{alone:.1} x without them; the floor is the others' p99 with them at a coordinator beside"
    ));
    report.figure(
        &format!("{name}: coordinator's memory"),
        memory as f64 / 1e6,
        "MB",
        None,
        Some(Goal::Below(MEMORY)),
    );
    let seconds = TURNS as f64 * (span + 2 * SETTLING).as_secs_f64();
    report.note(&format!(
        "{:.0} sends a second by them, {refused} refused",
        sent as f64 / seconds
    ));
    scripts::judge(&server, name, report).await
}

/// Misbehaving agents in a separate process, which ends with its input.
struct Apart {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Apart {
    /// Starts agents that misbehave in that way. Returns once they have begun.
    async fn start(address: SocketAddr, rough: Rough) -> Result<Self> {
        let mut command = Command::from(part("rough")?);
        command
            .args([rough.name(), &address.to_string()])
            .kill_on_drop(true);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("its output")?;
        let mut output = BufReader::new(output).lines();
        output.next_line().await?.context("they did not begin")?;
        Ok(Self { process, output })
    }

    /// Stops them. Returns how many sends were accepted, and how many rejected.
    async fn end(mut self) -> Result<(u64, u64)> {
        drop(self.process.stdin.take());
        let said = self
            .output
            .next_line()
            .await?
            .context("they did not say what they did")?;
        let (sent, refused) = said.split_once(' ').context("two numbers")?;
        self.process.wait().await?;
        Ok((sent.parse()?, refused.parse()?))
    }
}

/// Behaves badly until the input ends, then reports its actions.
pub(super) fn rough(name: &str, address: SocketAddr) -> Result<()> {
    crate::thread()?.block_on(async {
        let rough = Rough::ALL
            .into_iter()
            .find(|rough| rough.name() == name)
            .context("no such behaviour")?;
        let ones = RoughOnes::start(address, rough).await?;
        println!("begun");
        tokio::io::stdin().read_to_end(&mut Vec::new()).await?;
        let did = ones.tally().take();
        println!(
            "{} {}",
            did.sent.count(),
            did.troubles.values().sum::<u64>()
        );
        ones.end().await;
        Ok(())
    })
}

/// Runs the others' messages. Returns their senders and the p99 of their deliveries, in milliseconds.
async fn others(crowd: &Crowd, senders: Vec<Agent>, span: Duration) -> Result<(Vec<Agent>, f64)> {
    crowd.tally().take();
    let targets = (0..WAITING)
        .map(|number| format!("other-{number}"))
        .collect();
    let sending = Sending {
        targets,
        pace: Pace::PerSecond(RATE),
        span,
        body: 50,
    };
    let senders = crowd.send(senders, &sending).await?;
    sleep(SETTLING).await;
    Ok((
        senders,
        crowd.tally().take().arrived.percentile(0.99).as_secs_f64() * 1e3,
    ))
}

/// Records the most memory that the coordinator had.
async fn watch(server: &Loaded, most: &mut u64) -> Result<std::convert::Infallible> {
    let mut ticks = interval(Duration::from_millis(50));
    loop {
        ticks.tick().await;
        *most = server.memory()?.coordinator.max(*most);
    }
}
