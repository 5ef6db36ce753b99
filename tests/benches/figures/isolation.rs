//! What others notice of agents that behave badly: their own deliveries, with and without them, one right after the other.

use std::time::Duration;

use anyhow::Result;
use harness::crowd::{Agent, Counted, Crowd, Pace, Rough, RoughOnes, Sending};
use harness::loaded::Loaded;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::{interval, sleep};

use crate::report::{Goal, Report};

/// The others: so many wait, so many send, together so many messages a second.
const WAITING: usize = 100;
const SENDERS: usize = 10;
const RATE: f64 = 300.0;
/// How long each measurement takes.
const SPAN: Duration = Duration::from_secs(4);
/// How long the bad behaviour lasts before it is looked at.
const SETTLING: Duration = Duration::from_secs(1);
/// How much later a message of the others may arrive.
const TIMES: f64 = 2.0;
/// What the coordinator may grow to, in megabytes.
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
    let senders = crowd.join("sender", SENDERS).await?;
    let (senders, without) = others(&crowd, senders).await?;
    let rough_ones = RoughOnes::start(server.address, rough).await?;
    sleep(SETTLING).await;
    let mut most = 0;
    let measured = tokio::select! {
        measured = others(&crowd, senders) => measured?,
        never = watch(&server, &mut most) => match never? {},
    };
    let (_, with) = measured;
    let did = rough_ones.tally().take();
    rough_ones.end().await;
    crowd.end().await;
    let name = rough.name();
    let p99 = |counted: &Counted| counted.arrived.percentile(0.99).as_secs_f64() * 1e3;
    report.figure(&format!("{name}: the others' p99"), p99(&with), "ms", Some(p99(&without)), Some(Goal::Times(TIMES)));
    report.figure(&format!("{name}: coordinator's memory"), most as f64 / 1e6, "MB", None, Some(Goal::Below(MEMORY)));
    let per_second = did.sent.count() as f64 / (SPAN + SETTLING).as_secs_f64();
    let refused: u64 = did.troubles.values().sum();
    report.note(&format!("{per_second:.0} sends a second by them, {refused} refused"));
    Ok(())
}

/// The others go about their business.
async fn others(crowd: &Crowd, senders: Vec<Agent>) -> Result<(Vec<Agent>, Counted)> {
    crowd.tally().take();
    let targets = (0..WAITING).map(|number| format!("other-{number}")).collect();
    let sending = Sending { targets, pace: Pace::PerSecond(RATE), span: SPAN, body: 50 };
    let senders = crowd.send(senders, &sending).await?;
    sleep(SETTLING).await;
    Ok((senders, crowd.tally().take()))
}

/// Keeps the most that the coordinator held.
async fn watch(server: &Loaded, most: &mut u64) -> Result<std::convert::Infallible> {
    let mut ticks = interval(Duration::from_millis(50));
    loop {
        ticks.tick().await;
        *most = server.memory()?.coordinator.max(*most);
    }
}
