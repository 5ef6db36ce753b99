//! The effect of a store's outage on sessions: reported at once, recovered from, and never a false report.

use std::fs;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::process::{Process, command, program};
use harness::redis::Redis;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a coordinator may take until it serves its store again, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

/// Asserts that the health check fails and the metrics are served.
async fn reports_its_store(address: SocketAddr) -> Result<()> {
    let health = http::get(address, "/api/health").await?;
    assert_eq!(
        (health.status, health.body.contains("\"error\"")),
        (500, true),
        "{}",
        health.body
    );
    assert_eq!(http::get(address, "/metrics").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_hanging_store_is_reported_within_two_seconds_and_recovered_from() -> Result<()> {
    let work = TempDir::new()?;
    let redis = Redis::start().await?;
    let coordinator = Coordinator::start_on(work.path(), &redis.url()).await?;
    let address = coordinator.address();
    let (mut homeassistant, _) = Link::join(&address.to_string(), "homeassistant").await?;
    let (mut meshtastic, _) = Link::join(&address.to_string(), "meshtastic").await?;
    let waiting = meshtastic
        .begin(
            c3po_shared::ids::CallId::fresh(),
            "wait_for_message",
            json!({"timeout": 120}),
        )
        .await?;

    // The first call of a session makes the coordinator record that it is ready; the second is answered after that.
    homeassistant.call("ping", json!({})).await?;
    homeassistant.call("ping", json!({})).await?;
    redis.pause()?;
    let call = c3po_shared::ids::CallId::fresh();
    let send = json!({"target": "meshtastic", "message": "through the outage"});
    let began = Instant::now();
    let begun = homeassistant
        .begin(call, "send_message", send.clone())
        .await?;
    // While the store hangs, the coordinator answers calls that need no store.
    assert_eq!(homeassistant.call("ping", json!({})).await?["pong"], true);
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "ping took {:?}",
        began.elapsed()
    );
    let refused = homeassistant
        .end(begun)
        .await?
        .expect_err("the store hangs");
    assert_eq!(refused["data"]["code"], "STORE_UNAVAILABLE", "{refused}");
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    reports_its_store(address).await?;

    redis.resume()?;
    // The same call, repeated until it is answered, is applied once.
    let sent = eventually("the store is back", SOON, async || {
        let begun = homeassistant
            .begin(call, "send_message", send.clone())
            .await
            .ok()?;
        homeassistant.end(begun).await.ok()?.ok()
    })
    .await?;
    let received = meshtastic
        .end_within(waiting, SOON)
        .await?
        .context("the wait goes on")?
        .map_err(anyhow::Error::msg)?;
    assert_eq!(received["id"], sent["id"]);
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        1
    );
    Ok(())
}

/// Starts a coordinator on its own Redis, and two hand-written links to it.
async fn two_links_on_redis(work: &TempDir) -> Result<(Redis, Coordinator, Link, Link)> {
    let redis = Redis::start().await?;
    let coordinator = Coordinator::start_on(work.path(), &redis.url()).await?;
    let address = coordinator.address().to_string();
    let (homeassistant, _) = Link::join(&address, "homeassistant").await?;
    let (meshtastic, _) = Link::join(&address, "meshtastic").await?;
    Ok((redis, coordinator, homeassistant, meshtastic))
}

#[tokio::test]
async fn changes_of_a_session_are_recorded_after_an_outage_of_the_store() -> Result<()> {
    let work = TempDir::new()?;
    let (mut redis, _coordinator, mut homeassistant, mut meshtastic) =
        two_links_on_redis(&work).await?;
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "meshtastic", "message": "before"}),
        )
        .await?;
    meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    let id = sent["id"].as_str().context("a message without an id")?;
    meshtastic.receipt(&[id], "in_session", "stop").await?;

    redis.kill()?;
    meshtastic
        .notify("session", json!({"context": 1, "state": "blocked"}))
        .await?;
    meshtastic
        .notify("session", json!({"state": "busy", "reach": ["stop"]}))
        .await?;
    assert_eq!(
        meshtastic.refusal("get_messages", json!({})).await?,
        "STORE_UNAVAILABLE"
    );
    redis.restart().await?;
    eventually("the store is back", SOON, async || {
        meshtastic.call("get_messages", json!({})).await.ok()
    })
    .await?;
    // The change is retried before each call, but the retry before the first successful call may have come too early.
    meshtastic.call("ping", json!({})).await?;

    let deliver = meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    let message = &deliver["params"]["messages"][0];
    assert_eq!(
        (&message["id"], &message["repeated"]),
        (&sent["id"], &json!(true))
    );
    let status = homeassistant
        .call("get_agent_status", json!({"agent_id": "meshtastic"}))
        .await?;
    assert_eq!(
        (&status["state"], &status["reach"]),
        (&json!("busy"), &json!(["stop"]))
    );
    Ok(())
}

#[tokio::test]
async fn messages_are_delivered_after_redis_has_lost_the_latest_one() -> Result<()> {
    is_delivered_after_a_loss_of(1).await
}

#[tokio::test]
async fn messages_are_delivered_after_redis_has_lost_the_latest_ones() -> Result<()> {
    is_delivered_after_a_loss_of(3).await
}

async fn is_delivered_after_a_loss_of(lost: usize) -> Result<()> {
    let work = TempDir::new()?;
    let mut redis = Redis::start_with(&["--appendonly", "no", "--save", ""]).await?;
    let coordinator = Coordinator::start_on(work.path(), &redis.url()).await?;
    let address = coordinator.address().to_string();
    let (mut homeassistant, _) = Link::join(&address, "homeassistant").await?;
    let (mut meshtastic, _) = Link::join(&address, "meshtastic").await?;
    redis.tell(&["SAVE"]).await?;
    let send = |text: &str| json!({"target": "meshtastic", "message": text});
    for number in 0..lost {
        let lost = send(&format!("lost {number}"));
        homeassistant.call("send_message", lost).await?;
        meshtastic
            .hear(|frame| frame["method"] == "deliver")
            .await?;
    }
    redis.restart().await?;
    eventually("the store is back", SOON, async || {
        meshtastic.call("get_messages", json!({})).await.ok()
    })
    .await?;
    // The coordinator looks at all inboxes after an outage, before anything new is there.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let sent = homeassistant.call("send_message", send("after")).await?;
    meshtastic
        .hear(|frame| {
            frame["method"] == "deliver" && frame["params"]["messages"][0]["id"] == sent["id"]
        })
        .await?;
    Ok(())
}

/// Sends a receipt with that request id, or repeats it, and returns the answer.
async fn receipt(
    link: &mut Link,
    number: i64,
    id: &str,
    stage: &str,
) -> Result<Result<Value, Value>> {
    let params = json!({"message_ids": [id], "stage": stage, "via": "hook"});
    link.send_text(
        &json!({"jsonrpc": "2.0", "id": number, "method": "receipt", "params": params}).to_string(),
    )
    .await?;
    link.end(number).await
}

#[tokio::test]
async fn nothing_is_recorded_ahead_of_a_receipt_that_the_store_could_not_take() -> Result<()> {
    let work = TempDir::new()?;
    let (mut redis, _coordinator, mut homeassistant, mut meshtastic) =
        two_links_on_redis(&work).await?;
    let news =
        json!({"target": "meshtastic", "message": "lights are on", "requires_response": false});
    let sent = homeassistant.call("send_message", news).await?;
    let id = sent["id"].as_str().context("a message without an id")?;
    meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;

    redis.kill()?;
    let refused =
        |answer: Result<Value, Value>| answer.err().map(|error| error["data"]["code"].clone());
    let away = Some(json!("STORE_UNAVAILABLE"));
    assert_eq!(
        refused(receipt(&mut meshtastic, 1_001, id, "in_session").await?),
        away
    );
    redis.restart().await?;
    eventually("the store is back", SOON, async || {
        homeassistant.call("list_agents", json!({})).await.ok()
    })
    .await?;
    // It was in flight when the first one was refused, so the receipt that it depends on is not recorded.
    assert_eq!(
        refused(receipt(&mut meshtastic, 1_002, id, "seen").await?),
        away
    );
    for (number, stage) in [(1_001, "in_session"), (1_002, "seen")] {
        assert_eq!(
            receipt(&mut meshtastic, number, id, stage).await?,
            Ok(json!({})),
            "{stage}"
        );
        let status = homeassistant
            .call("message_status", json!({"message_id": id}))
            .await?;
        assert_eq!(status["stage"], stage, "{status}");
    }
    Ok(())
}

/// The time within which a start without Redis must be logged.
const REPORTED: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_coordinator_reports_that_redis_is_down_and_can_be_stopped_meanwhile() -> Result<()> {
    let work = TempDir::new()?;
    let mut redis = Redis::start().await?;
    redis.kill()?;
    let mut server = command(program("c3po-coordinator")?, work.path());
    server
        .args(["--listen", "127.0.0.1:0", "--store", &redis.url()])
        .stdin(Stdio::null());
    let mut coordinator = Process::start(server, &work.path().join("log"))?;
    let report = format!("no Redis answers at {}", redis.url());
    eventually("a report", REPORTED, async || {
        coordinator.log().contains(&report).then_some(())
    })
    .await?;
    coordinator.signal("TERM").await?;
    assert!(coordinator.end(REPORTED).await?.success());
    Ok(())
}

#[tokio::test]
async fn a_coordinator_serves_once_its_redis_has_started() -> Result<()> {
    let work = TempDir::new()?;
    let mut redis = Redis::start().await?;
    redis.kill()?;
    let mut coordinator = Coordinator::absent(work.path(), &redis.url())?;
    let log = work.path().join("coordinator.log");
    let late = async {
        let waits = async || {
            fs::read_to_string(&log)
                .ok()?
                .contains("no Redis answers")
                .then_some(())
        };
        eventually("the coordinator waits", SOON, waits).await?;
        redis.restart().await?;
        anyhow::Ok(Instant::now())
    };
    let (serves, came) = tokio::join!(coordinator.restart(), late);
    serves?;
    let took = came?.elapsed();
    assert!(
        took < Duration::from_secs(3),
        "it served {took:?} after its Redis came"
    );
    Ok(())
}
