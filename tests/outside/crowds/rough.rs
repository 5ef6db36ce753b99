//! A misbehaving agent: the messages of all others arrive in time, and the coordinator's memory stays bounded.

use std::time::Duration;

use anyhow::Result;
use harness::crowd::{Crowd, Pace, Rough, RoughOnes, Sending};
use harness::eventually::eventually;
use harness::loaded::Loaded;
use tempfile::TempDir;

/// How long the other agents may take to start, and how long their last message may take to arrive.
const SOON: Duration = Duration::from_secs(30);
/// How many of the other agents wait, and how many send.
const WAITING: usize = 20;
const SENDERS: usize = 4;
/// Far more than a message takes normally, and far less than if an agent were blocked: a write has a deadline of 10 s.
const IN_TIME: Duration = Duration::from_secs(1);
/// Far more than the coordinator needs, and far less than it is sent or asked for.
const MEMORY: u64 = 150 << 20;

async fn others_go_on_beside(rough: Rough) -> Result<()> {
    let work = TempDir::new()?;
    let server = Loaded::on_redis(work.path()).await?;
    let crowd = Crowd::new(server.address);
    crowd.gather("other", WAITING);
    crowd.gathered(WAITING, SOON).await?;
    let senders = crowd.join("sender", SENDERS).await?;

    let rough_ones = RoughOnes::start(server.address, rough).await?;
    let targets = (0..WAITING)
        .map(|number| format!("other-{number}"))
        .collect();
    let sending = Sending {
        targets,
        pace: Pace::PerSecond(50.0),
        span: Duration::from_secs(3),
        body: 50,
    };
    crowd.send(senders, &sending).await?;
    eventually("everything arrives", SOON, async || {
        let (sent, arrived) = crowd.tally().progress();
        (arrived >= sent).then_some(())
    })
    .await?;
    let memory = server.memory()?.coordinator;
    let did = rough_ones.tally().take();
    rough_ones.end().await;

    let counted = crowd.tally().take();
    assert!(
        counted.troubles.is_empty() && counted.sent.count() > 100,
        "{:?}",
        counted.troubles
    );
    let p99 = counted.arrived.percentile(0.99);
    assert!(p99 < IN_TIME, "{p99:?} beside {}", rough.name());
    assert!(memory < MEMORY, "{memory} bytes beside {}", rough.name());
    assert!(
        rough == Rough::StopsReading || did.sent.count() + did.troubles.len() > 0,
        "nobody behaved badly: {did:?}"
    );
    Ok(())
}

#[tokio::test]
async fn others_do_not_wait_for_a_reader_that_stops_reading() -> Result<()> {
    others_go_on_beside(Rough::StopsReading).await
}

#[tokio::test]
async fn others_do_not_wait_for_a_sender_that_floods() -> Result<()> {
    others_go_on_beside(Rough::Floods).await
}

#[tokio::test]
async fn others_do_not_wait_for_an_inbox_at_its_bound() -> Result<()> {
    others_go_on_beside(Rough::Hoards).await
}

#[tokio::test]
async fn others_do_not_wait_for_the_longest_bodies() -> Result<()> {
    others_go_on_beside(Rough::SendsLongBodies).await
}
