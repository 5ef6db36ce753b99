//! Short kill tests of messages, on each store, and of questions to people; `make chaos` is the long one.

use std::time::Duration;

use anyhow::{Context, Result};
use harness::inquiry::{self, Inquiry};
use harness::ntfy::Ntfy;
use harness::skip::skipped;
use harness::storm::{Store, Storm, run};

/// The default seed.
const SEED: u64 = 1_977;

fn seed() -> Result<u64> {
    match std::env::var("C3PO_CHAOS_SEED") {
        Ok(seed) => seed.parse().context("C3PO_CHAOS_SEED"),
        Err(_) => Ok(SEED),
    }
}

/// Asserts that no message is lost, shown twice or out of order, and that no receipt is without evidence.
async fn nothing_is_lost(store: Store) -> Result<()> {
    let seed = seed()?;
    let storm = Storm {
        messages: 300,
        agents: 8,
        seed,
        store,
        pace: Duration::from_millis(400),
    };
    let aftermath = run(storm, |line| eprintln!("{line}")).await?;
    let again = format!(
        "again with C3PO_CHAOS_SEED={seed}; logs: {:?}",
        aftermath.logs
    );
    assert!(
        aftermath.report.findings.is_empty(),
        "{again}\n{}",
        aftermath.report
    );
    eprintln!(
        "seed {seed}, {:?}, kills {:?}: {}",
        aftermath.took, aftermath.kills, aftermath.report
    );
    Ok(())
}

#[tokio::test]
async fn nothing_is_lost_while_coordinators_redis_and_proxies_are_killed() -> Result<()> {
    nothing_is_lost(Store::Redis).await
}

#[tokio::test]
async fn nothing_is_lost_while_the_coordinator_and_proxies_are_killed_on_sqlite() -> Result<()> {
    nothing_is_lost(Store::Sqlite).await
}

#[tokio::test]
async fn every_question_is_answered_once_while_everything_is_killed_and_no_push_is_left()
-> Result<()> {
    let ntfy = match Ntfy::start().await {
        Ok(ntfy) => ntfy,
        Err(why) => return skipped("questions in chaos", &why.to_string()),
    };
    let inquiry = Inquiry {
        questions: 32,
        agents: 4,
        seed: seed()?,
    };
    let answers = inquiry::run(inquiry, ntfy).await?;
    assert!(answers.findings.is_empty(), "{answers:#?}");
    eprintln!("{answers:?}");
    Ok(())
}
