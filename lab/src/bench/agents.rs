//! Many agents at once: their cost, how fast messages reach them, and that resting agents cost the others nothing.

use std::time::Duration;

use anyhow::Result;
use harness::crowd::{Counted, Crowd, Pace, Sending, fill};
use harness::loaded::{Loaded, Used};
use harness::vitals::raise_descriptor_limit;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use super::report::{Goal, Report};
use super::scripts;

/// How many agents are idle while the cost of a message is measured; the last number is the large case.
const RESTING: [usize; 3] = [10, 1_000, 10_000];
/// The depth of the recipients' inboxes: the second leaves just enough room for the new messages.
const DEPTHS: [usize; 2] = [10, 980];
/// The number of agents that receive messages, and of those that send them.
const BUSY: usize = 20;
const SENDERS: usize = 16;
/// Messages per second, the same each time: a busier coordinator batches more and spends less on each.
const RATE: f64 = 1_000.0;
/// How long messages are sent, and how long all agents are idle before that.
const SENDING: Duration = Duration::from_secs(4);
const REST: Duration = Duration::from_secs(4);
/// How much more a message may cost, to allow for the machine's noise.
const FLAT: f64 = 1.3;
/// How long all agents may take to connect; the goal is less.
const GATHERING: Duration = Duration::from_secs(120);
/// Descriptors that are not links.
const OTHER_DESCRIPTORS: usize = 100;

/// The times of a message.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Processor time of the coordinator and of Redis, in microseconds.
    processor: f64,
    /// From the send to the end of a wait, in milliseconds.
    p50: f64,
    p99: f64,
}

/// Measures everything.
pub(crate) fn all(runtime: &Runtime, report: &mut Report) -> Result<()> {
    let most = RESTING[RESTING.len() - 1];
    let allowed = raise_descriptor_limit()?;
    if allowed < (most + BUSY + SENDERS + OTHER_DESCRIPTORS) as u64 {
        report.left_out(
            "10,000 agents",
            &format!("only {allowed} descriptors are allowed"),
        );
        return Ok(());
    }
    runtime.block_on(by_those_who_rest(report))?;
    runtime.block_on(by_depth(report))
}

async fn by_those_who_rest(report: &mut Report) -> Result<()> {
    let work = TempDir::new()?;
    let server = Loaded::on_redis(work.path()).await?;
    let crowd = Crowd::new(server.address);
    crowd.gather("busy", BUSY);
    crowd.gathered(BUSY, GATHERING).await?;
    let busy: Vec<_> = (0..BUSY).map(|number| format!("busy-{number}")).collect();
    let (mut waiting, mut first, before) = (BUSY, None, server.memory()?.coordinator);
    for (round, count) in RESTING.into_iter().enumerate() {
        // The agents of earlier rounds are still connected.
        let more = count - if round == 0 { 0 } else { RESTING[round - 1] };
        crowd.gather(&format!("resting-{round}"), more);
        waiting += more;
        let gathered = crowd.gathered(waiting, GATHERING).await?;
        if round == RESTING.len() - 1 {
            let name = format!("{more} agents connect at once, until all wait");
            report.figure(
                &name,
                gathered.as_secs_f64(),
                "s",
                None,
                Some(Goal::Below(30.0)),
            );
        }
        let cost = cost(&crowd, &server, &busy, report).await?;
        flat(
            report,
            &format!("beside {count} agents that rest"),
            cost,
            *first.get_or_insert(cost),
        );
        if round == RESTING.len() - 1 {
            let held =
                server.memory()?.coordinator.saturating_sub(before) as f64 / 1024.0 / count as f64;
            report.figure(
                &format!("memory of an agent that waits, {count} of them"),
                held,
                "kB",
                None,
                Some(Goal::Below(8.0)),
            );
            let name = format!("send to the end of a wait, {count} wait");
            report.figure(&format!("{name}, p50"), cost.p50, "ms", None, None);
            report.figure(
                &format!("{name}, p99"),
                cost.p99,
                "ms",
                None,
                Some(Goal::Below(20.0)),
            );
        }
    }
    crowd.end().await;
    scripts::judge(&server, "beside 10,000 agents", report).await
}

async fn by_depth(report: &mut Report) -> Result<()> {
    let work = TempDir::new()?;
    let server = Loaded::on_redis(work.path()).await?;
    let mut first = None;
    for depth in DEPTHS {
        let crowd = Crowd::new(server.address);
        let name = format!("deep-{depth}");
        crowd.gather(&name, BUSY);
        crowd.gathered(BUSY, GATHERING).await?;
        let targets: Vec<_> = (0..BUSY).map(|number| format!("{name}-{number}")).collect();
        for target in &targets {
            fill(server.address, target, depth, 50).await?;
        }
        let cost = cost(&crowd, &server, &targets, report).await?;
        flat(
            report,
            &format!("into inboxes of {depth}"),
            cost,
            *first.get_or_insert(cost),
        );
        crowd.end().await;
    }
    Ok(())
}

fn flat(report: &mut Report, where_: &str, cost: Cost, first: Cost) {
    let base = |floor: f64| (floor > 0.0).then_some(floor);
    let goal = Some(Goal::Times(FLAT));
    report.figure(
        &format!("processor time of a message {where_}"),
        cost.processor,
        "us",
        base(first.processor),
        goal,
    );
    report.figure(
        &format!("delivery {where_}, p50"),
        cost.p50,
        "ms",
        base(first.p50),
        None,
    );
}

/// Sends at the one rate, and subtracts the cost of resting.
async fn cost(crowd: &Crowd, server: &Loaded, targets: &[String], report: &Report) -> Result<Cost> {
    let senders = crowd.join("sender", SENDERS).await?;
    sleep(Duration::from_secs(1)).await;
    let before = server.used()?;
    let rest = report.span(REST);
    sleep(rest).await;
    let resting = total(server.used()?.since(&before)) / rest.as_secs_f64();
    crowd.tally().take();
    let sending = Sending {
        targets: targets.to_vec(),
        pace: Pace::PerSecond(RATE),
        span: report.span(SENDING),
        body: 50,
    };
    let before = server.used()?;
    let began = std::time::Instant::now();
    let senders = crowd.send(senders, &sending).await?;
    let used = total(server.used()?.since(&before)) - resting * began.elapsed().as_secs_f64();
    let Counted { sent, arrived, .. } = crowd.tally().take();
    for sender in senders {
        sender.goodbye().await;
    }
    let milliseconds = |share| arrived.percentile(share).as_secs_f64() * 1e3;
    Ok(Cost {
        processor: used * 1e6 / sent.count().max(1) as f64,
        p50: milliseconds(0.5),
        p99: milliseconds(0.99),
    })
}

fn total(used: Used) -> f64 {
    (used.coordinator + used.redis).as_secs_f64()
}
