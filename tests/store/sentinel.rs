//! The Redis store on a master with sentinels: its behaviour when the master changes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use c3po_coordinator::store::{SendOutcome, Store, StoreError, Wake};
use c3po_shared::message::Message;
use c3po_shared::receipt::Stage;
use harness::eventually::eventually;
use harness::watched::{MASTER, Watched};
use tokio::time::timeout;

use super::fixture::{SOON, id, message, send};
use super::redis::{ANSWERED, fixture_on, open, recovered};

/// How long it may take until the store has found the new master: a second of silence, the vote, the promotion.
const FAILOVER: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_the_store_finds_the_new_master() -> Result<()> {
    let mut watched = Watched::start(1, 3).await?;
    let fixture = fixture_on(watched.url(), ()).await?;
    fixture.pair().await?;
    let question = fixture.say("a", "b", "before").await?;
    replicated(&watched, &question).await?;
    let mut wakes = fixture.store.wakes();

    let old = watched.master_port().await?;
    watched.servers[0].kill()?;
    let call = send(message("a", "b", "after"));
    let begun = Instant::now();
    let refused = fixture
        .store
        .send(&call)
        .await
        .expect_err("there is no master");
    assert!(
        matches!(refused, StoreError::Unavailable(_)) && begun.elapsed() < ANSWERED,
        "{refused}"
    );
    eventually("the new master is found", FAILOVER, async || {
        let begun = Instant::now();
        let sent = fixture.store.send(&call).await;
        assert!(begun.elapsed() < ANSWERED, "{:?}", begun.elapsed());
        matches!(sent, Ok(SendOutcome::Stored)).then_some(())
    })
    .await?;
    assert_ne!(watched.master_port().await?, old);
    assert_eq!(fixture.inbox("b").await?, ["before", "after"]);
    fixture.answer(&question, "yes").await?;
    assert_eq!(
        fixture.stages(&question.id).await?,
        [Stage::Stored, Stage::Answered]
    );

    // Listeners were woken because hints may have been lost, and they receive the next one from the new master.
    eventually("the wakes are heard again", SOON, async || {
        let other = open(&watched.url()).await.ok()?;
        other.send(&send(message("b", "a", "hello"))).await.ok()?;
        let heard = async {
            while !matches!(wakes.recv().await, Ok(Wake::Inbox(agent, None)) if agent == id("a")) {}
        };
        timeout(Duration::from_millis(200), heard).await.ok()
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_made_a_replica_on_purpose_is_left_for_the_new_one() -> Result<()> {
    let watched = Watched::start(1, 1).await?;
    let fixture = fixture_on(watched.url(), ()).await?;
    fixture.pair().await?;
    for round in 0..2 {
        let old = watched.master_port().await?;
        eventually("the sentinel changes the master", FAILOVER, async || {
            // The sentinel refuses while it is unsure about the replica, or has not finished the last failover.
            watched.sentinels[0]
                .tell(&["SENTINEL", "FAILOVER", MASTER])
                .await
                .ok()
        })
        .await?;
        let mut sent = Vec::new();
        eventually("the master has changed", FAILOVER, async || {
            let call = send(message("a", "b", &format!("{round} {}", sent.len())));
            eventually("it is stored", SOON, async || {
                matches!(
                    fixture.store.send(&call).await,
                    Ok(SendOutcome::Stored | SendOutcome::Repeated(_))
                )
                .then_some(())
            })
            .await
            .ok()?;
            sent.push(call.message);
            (watched.master_port().await.ok()? != old).then_some(())
        })
        .await?;
        // The last writes to the old master may be lost with it, but not those to the new one.
        let last = sent.last().context("something was sent")?;
        assert!(
            fixture
                .inbox("b")
                .await?
                .iter()
                .any(|text| text == last.text()),
            "{}",
            last.text()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_sentinel_is_not_waited_for() -> Result<()> {
    let watched = Watched::start(0, 3).await?;
    let fixture = fixture_on(watched.url(), ()).await?;
    watched.sentinels[0].pause()?;
    for _ in 0..3 {
        watched.servers[0]
            .tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await?;
        let begun = Instant::now();
        recovered(&*fixture.store).await?;
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
    }
    watched.sentinels[0].resume()
}

/// Waits until a replica has the message, because otherwise it is lost with its master.
async fn replicated(watched: &Watched, message: &Message) -> Result<()> {
    let number = message
        .id
        .as_str()
        .rsplit("::")
        .next()
        .context("a number")?;
    let key = format!("{{c3po}}:m:{}:{number}", message.to_agent);
    eventually("the replica has it", SOON, async || {
        let told = watched.servers[1].tell(&["EXISTS", &key]).await.ok()?;
        told.starts_with(":1").then_some(())
    })
    .await
}

#[tokio::test]
async fn a_store_without_a_master_does_not_open_and_reports_why() -> Result<()> {
    let watched = Watched::start(0, 1).await?;
    let check = async |url: &str, part: &str| {
        let begun = Instant::now();
        let refused = open(url).await.expect_err("there is no master").to_string();
        assert!(
            refused.contains(part) && begun.elapsed() < ANSWERED,
            "{refused}"
        );
    };
    check(
        &watched.url().replace("mymaster", "nobody"),
        "No such master",
    )
    .await;
    check(
        &format!(
            "redis+sentinel://127.0.0.1:{}/mymaster",
            watched.servers[0].port()
        ),
        "SENTINEL",
    )
    .await;
    watched.servers[0].pause()?;
    check(&watched.url(), "127.0.0.1").await;
    watched.servers[0].resume()?;
    Ok(())
}
