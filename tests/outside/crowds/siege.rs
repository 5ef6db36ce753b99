//! A few seconds of invalid input to every endpoint: no panic, no growth, and other clients are not affected.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::entry::Entry;
use harness::http;
use harness::process::{command, program};
use harness::proxy::session;
use harness::siege::Siege;
use harness::vitals::{Vitals, raise_descriptor_limit};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The attack rate per second and the duration: moderate, for a machine that builds at the same time. `make siege` is the
/// long run.
const RATE: f64 = 150.0;
const SPAN: Duration = Duration::from_secs(6);
/// Joins with an invalid code, each as long as its limit: far more than there is room for, and far more than have a place.
const JOINS: usize = 1_500;
const JOIN_LENGTH: usize = 8_000;
/// The longest time of a newcomer beside them: a third of the time after which it would be refused.
const NEWCOMER: Duration = Duration::from_secs(3);
/// The allowed growth of the coordinator's memory: frames of a megabyte are in flight.
const GROWTH_MAX: u64 = 100 << 20;

/// Returns a coordinator, and a key for the attackers if it requires one.
async fn besieged(work: &TempDir, is_closed: bool) -> Result<(Coordinator, Option<String>)> {
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?;
    if is_closed {
        coordinator = coordinator
            .with("C3PO_CLOSED", Path::new("true"))
            .with("C3PO_TLS", Path::new("off"));
    }
    coordinator.restart().await?;
    if !is_closed {
        return Ok((coordinator, None));
    }
    let mut create = command(program("c3po-coordinator")?, work.path());
    create.args([
        "keys",
        "create",
        "siege",
        "--listen",
        &coordinator.address().to_string(),
    ]);
    let said = String::from_utf8(create.output().await?.stdout)?;
    let key = said.lines().next().context("no key")?.to_owned();
    Ok((coordinator, Some(key)))
}

async fn survives(is_closed: bool) -> Result<()> {
    raise_descriptor_limit()?;
    let work = TempDir::new()?;
    let (mut coordinator, key) = besieged(&work, is_closed).await?;
    let process = coordinator.process()?.id()?;
    let before = Vitals::of(process)?.resident;
    let siege = Siege {
        entry: Entry::clear(coordinator.address()),
        key: key.clone(),
        rate: RATE,
        span: SPAN,
        seed: 7,
    };
    let good = async {
        if is_closed {
            return anyhow::Ok(());
        }
        let session = session(work.path(), "good", &coordinator.url()).await?;
        for _ in 0..20 {
            session.reply("ping", json!({})).await?;
        }
        Ok(())
    };
    let (done, good) = tokio::join!(siege.run(), good);
    good?;
    ensure!(
        done.begun.load(std::sync::atomic::Ordering::Relaxed) > 100,
        "{done:?}"
    );
    let after = Vitals::of(process)?.resident;
    ensure!(
        after < before + GROWTH_MAX,
        "it grew from {before} to {after}"
    );
    let log = coordinator.process()?.log();
    ensure!(!log.contains("panicked"), "{log}");
    http::get(coordinator.address(), "/api/health").await?;
    Ok(())
}

#[tokio::test]
async fn an_open_coordinator_survives_everything_that_should_not_be_sent() -> Result<()> {
    survives(false).await
}

#[tokio::test]
async fn a_closed_coordinator_survives_the_same_from_clients_with_a_key() -> Result<()> {
    survives(true).await
}

#[tokio::test]
async fn newcomers_are_answered_beside_many_long_joins() -> Result<()> {
    raise_descriptor_limit()?;
    let work = TempDir::new()?;
    let (coordinator, _) = besieged(&work, true).await?;
    let address = coordinator.address();
    let body = json!({"code": "x", "host": "x".repeat(JOIN_LENGTH)}).to_string();
    let (mut joins, began) = (JoinSet::new(), Instant::now());
    for _ in 0..JOINS {
        let body = body.clone();
        joins.spawn(async move {
            while began.elapsed() < SPAN {
                // It may be refused, or its connection.
                let _ = http::post(address, "/api/join", &[], &body).await;
            }
        });
    }
    sleep(SPAN / 6).await;
    while began.elapsed() < SPAN {
        let asked = Instant::now();
        let health = http::get(address, "/api/health").await?;
        let took = asked.elapsed();
        ensure!(
            health.status == 200 && took < NEWCOMER,
            "{took:?} {health:?}"
        );
    }
    Ok(())
}
