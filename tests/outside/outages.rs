//! The effect of a coordinator's or a store's outage on sessions: as small as possible, and never a false report.

use std::time::{Duration, Instant};

use anyhow::Result;
use harness::breaker::{Breaker, Way};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::link::Link;
use harness::mcp::McpClient;
use harness::proxy::session;
use harness::redis::Redis;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long delayed calls may take after the coordinator returns, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

async fn keep_their_names(homeassistant: &McpClient, meshtastic: &McpClient) -> Result<()> {
    for (proxy, name) in [(homeassistant, "homeassistant"), (meshtastic, "meshtastic")] {
        assert_eq!(
            proxy.reply("ping", json!({})).await?["agent_id"],
            name,
            "no agent changes its name"
        );
    }
    let agents = homeassistant.reply("list_agents", json!({})).await?;
    assert_eq!(
        agents["agents"].as_array().map(Vec::len),
        Some(2),
        "{agents}"
    );
    Ok(())
}

/// Waits until a session has a link again: its first call waits until that is redialled.
async fn is_back(session: &McpClient) -> Result<()> {
    eventually("the link is back", SOON, async || {
        let pong = session.call("ping", json!({})).await.ok()?;
        (!pong.is_error).then_some(())
    })
    .await
}

/// Kills a coordinator, on any store, under two agents with real proxies.
async fn killed_under_two_proxies(mut coordinator: Coordinator, work: &TempDir) -> Result<()> {
    let url = coordinator.url();
    let homeassistant = session(work.path(), "homeassistant", &url).await?;
    let meshtastic = session(work.path(), "meshtastic", &url).await?;
    meshtastic.reply("ping", json!({})).await?;
    let before = homeassistant
        .reply(
            "send_message",
            json!({"target": "meshtastic", "message": "before"}),
        )
        .await?;
    let answered = homeassistant
        .begin_call(
            "wait_for_message",
            json!({"message_id": before["id"], "timeout": 300}),
        )
        .await?;
    let in_vain = homeassistant
        .begin_call("wait_for_message", json!({"kind": "message", "timeout": 8}))
        .await?;
    let began = Instant::now();

    coordinator.kill().await?;
    coordinator.restart().await?;

    is_back(&meshtastic).await?;
    let received = meshtastic
        .reply("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(
        (&received["id"], received["message"].as_str()),
        (&before["id"], Some("before"))
    );
    meshtastic
        .reply(
            "reply",
            json!({"message_id": before["id"], "response": "after"}),
        )
        .await?;
    let answer = homeassistant.call_result(answered, SOON).await?.json()?;
    assert_eq!(
        (answer["response"].as_str(), &answer["message_id"]),
        (Some("after"), &before["id"])
    );
    let timed_out = homeassistant.call_result(in_vain, SOON).await?.json()?;
    assert_eq!(timed_out["timeout"], true, "{timed_out}");
    assert!(
        began.elapsed() >= Duration::from_secs(7),
        "a wait keeps its own time through a restart: {:?}",
        began.elapsed()
    );

    keep_their_names(&homeassistant, &meshtastic).await?;
    let status = homeassistant
        .reply("message_status", json!({"message_id": before["id"]}))
        .await?;
    assert_eq!(status["stage"], "answered");
    Ok(())
}

#[tokio::test]
async fn a_call_in_a_long_outage_has_the_link_dialled_again_at_once() -> Result<()> {
    /// After this time, a link without calls may wait eight seconds until the next dial.
    const LONG: Duration = Duration::from_secs(8);
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?;
    let session = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let began = Instant::now();
    eventually("a long outage", SOON, async || {
        let pong = session.call("ping", json!({})).await.ok()?;
        (pong.is_error && began.elapsed() > LONG).then_some(())
    })
    .await?;
    coordinator.restart().await?;
    let back = Instant::now();
    eventually("the link", SOON, async || {
        let pong = session.call("ping", json!({})).await.ok()?;
        (!pong.is_error).then_some(())
    })
    .await?;
    assert!(
        back.elapsed() < Duration::from_secs(3),
        "{:?}",
        back.elapsed()
    );
    Ok(())
}

#[tokio::test]
async fn a_session_after_one_that_was_killed_with_its_coordinator_has_its_name() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let mut killed = session(work.path(), "homeassistant", &coordinator.url()).await?;
    killed.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    // No coordinator notices its end, and its lease would last for most of a minute.
    killed.process().kill().await?;
    coordinator.restart().await?;

    let next = session(work.path(), "homeassistant", &coordinator.url()).await?;
    assert_eq!(
        next.reply("ping", json!({})).await?["agent_id"],
        "homeassistant"
    );
    // It is alive, and so is the other session that starts beside it.
    let beside = session(work.path(), "homeassistant", &coordinator.url()).await?;
    assert_eq!(
        beside.reply("ping", json!({})).await?["agent_id"],
        "homeassistant-2"
    );
    assert_eq!(
        next.reply("ping", json!({})).await?["agent_id"],
        "homeassistant"
    );
    Ok(())
}

#[tokio::test]
async fn messages_shown_by_a_killed_session_are_marked_without_its_report() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let breaker = Breaker::before(coordinator.address()).await?;
    let url = format!("http://{}", breaker.address());
    let mut killed = session(work.path(), "homeassistant", &url).await?;
    killed.reply("ping", json!({})).await?;
    let meshtastic = session(work.path(), "meshtastic", &coordinator.url()).await?;
    let waiting = killed
        .begin_call("wait_for_message", json!({"timeout": 60}))
        .await?;
    killed.reply("ping", json!({})).await?;
    // The message reaches it, but its reports are lost.
    breaker.forget(Way::There);
    let sent = meshtastic
        .reply(
            "send_message",
            json!({"target": "homeassistant", "message": "hello"}),
        )
        .await?;
    assert_eq!(
        killed.call_result(waiting, SOON).await?.json()?["repeated"],
        Value::Null
    );
    killed.process().kill().await?;

    let next = session(work.path(), "homeassistant", &url).await?;
    let received = next
        .reply("wait_for_message", json!({"timeout": 10}))
        .await?;
    assert_eq!(
        (&received["id"], &received["repeated"]),
        (&sent["id"], &json!(true))
    );
    let page = next.reply("get_messages", json!({})).await?;
    assert_eq!(page["messages"][0]["repeated"], true, "{page}");
    Ok(())
}

#[tokio::test]
async fn a_killed_coordinator_is_hardly_noticed_with_sqlite() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    killed_under_two_proxies(coordinator, &work).await
}

#[tokio::test]
async fn a_killed_coordinator_is_hardly_noticed_with_redis() -> Result<()> {
    let work = TempDir::new()?;
    let redis = Redis::start().await?;
    let coordinator = Coordinator::start_on(work.path(), &redis.url()).await?;
    killed_under_two_proxies(coordinator, &work).await
}

#[tokio::test]
async fn a_coordinator_that_appears_is_found_and_one_that_is_absent_costs_two_seconds_once()
-> Result<()> {
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?;
    let homeassistant = session(work.path(), "homeassistant", &coordinator.url()).await?;
    assert_eq!(homeassistant.tools().await?.len(), 16);

    let began = Instant::now();
    let refused = homeassistant.call("list_agents", json!({})).await?;
    let waited = began.elapsed();
    assert!(
        refused.is_error && refused.json()?["code"] == "COORD_DOWN",
        "{refused:?}"
    );
    assert!(
        waited >= Duration::from_millis(1_800) && waited < Duration::from_secs(4),
        "{waited:?}"
    );
    let began = Instant::now();
    let refused = homeassistant.call("ping", json!({})).await?;
    assert!(
        refused.is_error && began.elapsed() < Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );

    coordinator.restart().await?;
    eventually("it connects by itself", SOON, async || {
        let pong = homeassistant.call("ping", json!({})).await.ok()?;
        (!pong.is_error).then_some(())
    })
    .await
}

#[tokio::test]
async fn queued_messages_are_sent_once_when_the_coordinator_appears() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let homeassistant = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let meshtastic = session(work.path(), "meshtastic", &coordinator.url()).await?;
    homeassistant.reply("ping", json!({})).await?;
    meshtastic.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    for text in ["first", "second"] {
        let queued = homeassistant
            .reply(
                "send_message",
                json!({"target": "meshtastic", "message": text, "queue_if_down": true}),
            )
            .await?;
        assert_eq!(queued["receipt"]["stage"], "queued_on_host", "{queued}");
    }
    coordinator.restart().await?;
    let mut received = Vec::new();
    eventually("both have arrived", SOON, async || {
        let next = meshtastic
            .call("wait_for_message", json!({"timeout": 5}))
            .await
            .ok()?
            .json()
            .ok()?;
        received.extend(
            next["message"]
                .as_str()
                .filter(|_| next["id"].is_string())
                .map(str::to_owned),
        );
        (received.len() == 2).then_some(())
    })
    .await?;
    assert_eq!(received, ["first", "second"]);
    assert_eq!(
        meshtastic.reply("get_messages", json!({})).await?["count"],
        2
    );
    Ok(())
}

#[tokio::test]
async fn sigterm_drains_within_five_seconds_and_waits_go_on_elsewhere() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let (mut link, _) = Link::join(&coordinator.address().to_string(), "homeassistant").await?;
    let proxy = session(work.path(), "meshtastic", &coordinator.url()).await?;
    proxy.reply("ping", json!({})).await?;
    let waiting = proxy
        .begin_call("wait_for_message", json!({"timeout": 120}))
        .await?;
    let began = Instant::now();
    let status = coordinator.stop().await?;
    assert!(
        status.success() && began.elapsed() < Duration::from_secs(5),
        "{status} after {:?}",
        began.elapsed()
    );
    link.hear(|frame| frame["method"] == "draining").await?;
    assert_eq!(link.hear_close().await?, 1001);

    coordinator.restart().await?;
    let (mut link, welcome) = Link::join(&coordinator.address().to_string(), "sender").await?;
    assert_eq!(welcome["agent_id"], "sender");
    let sent = link
        .call(
            "send_message",
            json!({"target": "meshtastic", "message": "you still wait"}),
        )
        .await?;
    let received = proxy.call_result(waiting, SOON).await?.json()?;
    assert_eq!(received["id"], sent["id"]);
    Ok(())
}
