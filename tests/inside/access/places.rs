//! The places of a key: with few calls in the store at a time, no key keeps the others waiting.

use std::time::{Duration, Instant};

use anyhow::Result;
use c3po_shared::limits::{CALLS_PER_KEY, READS_PER_KEY};
use futures_util::future::try_join_all;
use harness::link::{Link, Who};
use harness::redis::Redis;
use inside::gate::Gate;
use serde_json::{Value, json};

async fn linked(gate: &Gate, key: &str, name: &str) -> Result<Link> {
    let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
    link.hello(&Who::new(name))
        .await?
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(link)
}

/// Reads the inbox. Returns the code of the refusal, if it is refused.
async fn read(link: &mut Link) -> Result<String> {
    let read = link.try_call("get_messages", json!({})).await?;
    let code = |refusal: Value| refusal["code"].as_str().unwrap_or_default().to_owned();
    Ok(read.map_or_else(code, |_| "ok".to_owned()))
}

#[tokio::test]
async fn a_key_has_few_reads_in_the_store_and_others_have_their_own() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    let gate = Gate::start_with(|config| config.store = store).await?;
    let many = gate.key("agent", "web", &[]).await?;
    let mut other = linked(&gate, &gate.key("agent", "api", &[]).await?, "api").await?;
    let mut links = Vec::new();
    // Each read of a Redis that hangs fails after a second, and the next one gets its place.
    for _ in 0..=2 * READS_PER_KEY {
        links.push(linked(&gate, &many, "web").await?);
    }
    redis.pause()?;
    let (codes, of_other) =
        tokio::try_join!(try_join_all(links.iter_mut().map(read)), read(&mut other))?;
    let without_place = codes.iter().filter(|code| *code == "RATE_LIMITED").count();
    assert_eq!(
        (without_place, of_other.as_str()),
        (1, "STORE_UNAVAILABLE"),
        "{codes:?}"
    );
    redis.resume()?;
    Ok(())
}

#[tokio::test]
async fn changes_of_sessions_take_the_places_of_their_key() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    let gate = Gate::start_with(|config| config.store = store).await?;
    let key = gate.key("agent", "web", &[]).await?;
    let mut calls = linked(&gate, &key, "web").await?;
    let mut sessions = Vec::new();
    for _ in 0..CALLS_PER_KEY {
        sessions.push(linked(&gate, &key, "web").await?);
    }
    redis.pause()?;
    for session in &mut sessions {
        session.notify("session", json!({"state": "busy"})).await?;
    }
    for session in &mut sessions {
        session.ping(1).await?;
    }
    let begun = Instant::now();
    let message = json!({"target": "web", "message": "still there?"});
    let sent = calls.try_call("send_message", message).await?;
    // The store fails after a second, and so do the changes before it.
    assert!(
        sent.is_err() && begun.elapsed() > Duration::from_millis(1_500),
        "{sent:?} after {:?}",
        begun.elapsed()
    );
    redis.resume()?;
    Ok(())
}

#[tokio::test]
async fn ends_of_sessions_take_the_places_of_their_key() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    let gate = Gate::start_with(|config| config.store = store).await?;
    let key = gate.key("agent", "web", &[]).await?;
    let mut sessions = Vec::new();
    for _ in 0..=CALLS_PER_KEY {
        sessions.push(linked(&gate, &key, "web").await?);
    }
    redis.pause()?;
    let begun = Instant::now();
    let ends = sessions.iter_mut().map(async |session| {
        session.notify("goodbye", json!({})).await?;
        // The coordinator drops the link of a session that left, once its hold has ended.
        let _ = session.hear_close().await;
        Ok::<_, anyhow::Error>(())
    });
    try_join_all(ends).await?;
    // The store fails after a second. The last one waits for that, and then as long.
    assert!(
        begun.elapsed() > Duration::from_millis(1_500),
        "{:?}",
        begun.elapsed()
    );
    redis.resume()?;
    Ok(())
}
