//! A session whose lease expired while its link stayed open: another session has its name now, at another coordinator.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use c3po_shared::limits::SILENCE_MAX;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::link::Link;
use harness::redis::Redis;
use serde_json::json;
use tempfile::TempDir;

/// How long a lease lasts without renewal, with a margin.
const LEASE: Duration = Duration::from_secs(50);
/// How long the test waits to see that no message arrives.
const NEVER: Duration = Duration::from_secs(3);

/// Asserts that neither the wait nor the host of the old session receives the other session's messages.
pub(super) async fn is_given_nothing() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let folder = work.path().join("other");
    std::fs::create_dir(&folder)?;
    let here = Coordinator::start_on(work.path(), &redis.url()).await?;
    let there = Coordinator::start_on(&folder, &redis.url()).await?;
    let (here, there) = (here.address().to_string(), there.address().to_string());
    let (mut old, _) = Link::join(&here, "held").await?;
    let waiting = old
        .begin(CallId::fresh(), "wait_for_message", json!({"timeout": 300}))
        .await?;
    let (began, mut said) = (Instant::now(), 0);
    // It is alive and sends frames, but none of its heartbeats reaches the store.
    let new = eventually("another session has the name", LEASE, async || {
        if began.elapsed().as_secs() > said {
            said = began.elapsed().as_secs();
            old.notify("session", json!({"state": "busy"})).await.ok()?;
        }
        if began.elapsed() < SILENCE_MAX {
            return None;
        }
        let (link, welcome) = Link::join(&there, "held").await.ok()?;
        (welcome["agent_id"] == "held").then_some(link)
    });
    let mut new = new.await?;
    let (mut sender, _) = Link::join(&there, "sender").await?;
    let sent = sender
        .call(
            "send_message",
            json!({"target": "held", "message": "for the new one"}),
        )
        .await?;
    let received = new.call("wait_for_message", json!({"timeout": 10})).await?;
    ensure!(received["id"] == sent["id"], "{received}");
    // The wait is refused, or gets no answer at all.
    let ended = old.end_within(waiting, NEVER).await;
    let given = ended.ok().flatten().map(|answer| answer.is_ok());
    ensure!(
        given != Some(true),
        "an outdated session was given a message"
    );
    ensure!(
        old.hear(|frame| frame["method"] == "deliver")
            .await
            .is_err(),
        "nor is its host"
    );
    ensure!(old.hear_close().await.context("and it is closed")? == 4001);
    Ok(())
}
