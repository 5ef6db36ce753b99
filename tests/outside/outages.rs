//! The effect of a coordinator's or a store's outage on sessions: as small as possible, and never a false report.

use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::breaker::{Breaker, Way};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::process::{Process, command, program};
use harness::proxy::session;
use harness::redis::Redis;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long delayed calls may take after the coordinator returns, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

/// Kills a coordinator, on any store, under two agents with real proxies.
async fn killed_under_two_proxies(mut coordinator: Coordinator, work: &TempDir) -> Result<()> {
    let url = coordinator.url();
    let homeassistant = session(work.path(), "homeassistant", &url).await?;
    let meshtastic = session(work.path(), "meshtastic", &url).await?;
    meshtastic.reply("ping", json!({})).await?;
    let before = homeassistant.reply("send_message", json!({"target": "meshtastic", "message": "before"})).await?;
    let answered =
        homeassistant.begin_call("wait_for_message", json!({"message_id": before["id"], "timeout": 300})).await?;
    let in_vain = homeassistant.begin_call("wait_for_message", json!({"kind": "message", "timeout": 8})).await?;
    let began = Instant::now();

    coordinator.kill().await?;
    coordinator.restart().await?;

    // The first call waits for the link until it is redialled.
    eventually("the link is back", SOON, async || {
        let pong = meshtastic.call("ping", json!({})).await.ok()?;
        (!pong.is_error).then_some(())
    })
    .await?;
    let received = meshtastic.reply("wait_for_message", json!({"timeout": 20})).await?;
    assert_eq!((&received["id"], received["message"].as_str()), (&before["id"], Some("before")));
    meshtastic.reply("reply", json!({"message_id": before["id"], "response": "after"})).await?;
    let answer = homeassistant.call_result(answered, SOON).await?.json()?;
    assert_eq!((answer["response"].as_str(), &answer["message_id"]), (Some("after"), &before["id"]));
    let timed_out = homeassistant.call_result(in_vain, SOON).await?.json()?;
    assert_eq!(timed_out["timeout"], true, "{timed_out}");
    assert!(
        began.elapsed() >= Duration::from_secs(7),
        "a wait keeps its own time through a restart: {:?}",
        began.elapsed()
    );

    for (proxy, name) in [(&homeassistant, "homeassistant"), (&meshtastic, "meshtastic")] {
        assert_eq!(proxy.reply("ping", json!({})).await?["agent_id"], name, "no agent changes its name");
    }
    let agents = homeassistant.reply("list_agents", json!({})).await?;
    assert_eq!(agents["agents"].as_array().map(Vec::len), Some(2), "{agents}");
    let status = homeassistant.reply("message_status", json!({"message_id": before["id"]})).await?;
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
    assert!(back.elapsed() < Duration::from_secs(3), "{:?}", back.elapsed());
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
    assert_eq!(next.reply("ping", json!({})).await?["agent_id"], "homeassistant");
    // It is alive, and so is the other session that starts beside it.
    let beside = session(work.path(), "homeassistant", &coordinator.url()).await?;
    assert_eq!(beside.reply("ping", json!({})).await?["agent_id"], "homeassistant-2");
    assert_eq!(next.reply("ping", json!({})).await?["agent_id"], "homeassistant");
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
    let waiting = killed.begin_call("wait_for_message", json!({"timeout": 60})).await?;
    killed.reply("ping", json!({})).await?;
    // The message reaches it, but its reports are lost.
    breaker.forget(Way::There);
    let sent = meshtastic.reply("send_message", json!({"target": "homeassistant", "message": "hello"})).await?;
    assert_eq!(killed.call_result(waiting, SOON).await?.json()?["repeated"], Value::Null);
    killed.process().kill().await?;

    let next = session(work.path(), "homeassistant", &url).await?;
    let received = next.reply("wait_for_message", json!({"timeout": 10})).await?;
    assert_eq!((&received["id"], &received["repeated"]), (&sent["id"], &json!(true)));
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
async fn a_coordinator_that_appears_is_found_and_one_that_is_absent_costs_two_seconds_once() -> Result<()> {
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?;
    let homeassistant = session(work.path(), "homeassistant", &coordinator.url()).await?;
    assert_eq!(homeassistant.tools().await?.len(), 13);

    let began = Instant::now();
    let refused = homeassistant.call("list_agents", json!({})).await?;
    let waited = began.elapsed();
    assert!(refused.is_error && refused.json()?["code"] == "COORD_DOWN", "{refused:?}");
    assert!(waited >= Duration::from_millis(1_800) && waited < Duration::from_secs(4), "{waited:?}");
    let began = Instant::now();
    let refused = homeassistant.call("ping", json!({})).await?;
    assert!(refused.is_error && began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());

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
            .reply("send_message", json!({"target": "meshtastic", "message": text, "queue_if_down": true}))
            .await?;
        assert_eq!(queued["receipt"]["stage"], "queued_on_host", "{queued}");
    }
    coordinator.restart().await?;
    let mut received = Vec::new();
    eventually("both have arrived", SOON, async || {
        let next = meshtastic.call("wait_for_message", json!({"timeout": 5})).await.ok()?.json().ok()?;
        received.extend(next["message"].as_str().filter(|_| next["id"].is_string()).map(str::to_owned));
        (received.len() == 2).then_some(())
    })
    .await?;
    assert_eq!(received, ["first", "second"]);
    assert_eq!(meshtastic.reply("get_messages", json!({})).await?["count"], 2);
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
    let waiting =
        meshtastic.begin(c3po_shared::ids::CallId::fresh(), "wait_for_message", json!({"timeout": 120})).await?;

    // The first call of a session makes the coordinator record that it is ready; the second is answered after that.
    homeassistant.call("ping", json!({})).await?;
    homeassistant.call("ping", json!({})).await?;
    redis.pause()?;
    let call = c3po_shared::ids::CallId::fresh();
    let send = json!({"target": "meshtastic", "message": "through the outage"});
    let began = Instant::now();
    let begun = homeassistant.begin(call, "send_message", send.clone()).await?;
    // While the store hangs, the coordinator answers calls that need no store.
    assert_eq!(homeassistant.call("ping", json!({})).await?["pong"], true);
    assert!(began.elapsed() < Duration::from_secs(1), "ping took {:?}", began.elapsed());
    let refused = homeassistant.end(begun).await?.expect_err("the store hangs");
    assert_eq!(refused["data"]["code"], "STORE_UNAVAILABLE", "{refused}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let health = http::get(address, "/api/health").await?;
    assert_eq!((health.status, health.body.contains("\"error\"")), (500, true), "{}", health.body);
    assert_eq!(http::get(address, "/metrics").await?.status, 200);

    redis.resume()?;
    // The same call, repeated until it is answered, is applied once.
    let sent = eventually("the store is back", SOON, async || {
        let begun = homeassistant.begin(call, "send_message", send.clone()).await.ok()?;
        homeassistant.end(begun).await.ok()?.ok()
    })
    .await?;
    let received =
        meshtastic.end_within(waiting, SOON).await?.context("the wait goes on")?.map_err(anyhow::Error::msg)?;
    assert_eq!(received["id"], sent["id"]);
    assert_eq!(meshtastic.call("get_messages", json!({})).await?["count"], 1);
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
    let (mut redis, _coordinator, mut homeassistant, mut meshtastic) = two_links_on_redis(&work).await?;
    let sent = homeassistant.call("send_message", json!({"target": "meshtastic", "message": "before"})).await?;
    meshtastic.hear(|frame| frame["method"] == "deliver").await?;
    let id = sent["id"].as_str().context("a message without an id")?;
    meshtastic.receipt(&[id], "in_session", "stop").await?;

    redis.kill()?;
    meshtastic.notify("session", json!({"context": 1, "state": "blocked"})).await?;
    meshtastic.notify("session", json!({"state": "busy", "reach": ["stop"]})).await?;
    assert_eq!(meshtastic.refusal("get_messages", json!({})).await?, "STORE_UNAVAILABLE");
    redis.restart().await?;
    eventually("the store is back", SOON, async || meshtastic.call("get_messages", json!({})).await.ok()).await?;
    // The change is retried before each call, but the retry before the first successful call may have come too early.
    meshtastic.call("ping", json!({})).await?;

    let deliver = meshtastic.hear(|frame| frame["method"] == "deliver").await?;
    let message = &deliver["params"]["messages"][0];
    assert_eq!((&message["id"], &message["repeated"]), (&sent["id"], &json!(true)));
    let status = homeassistant.call("get_agent_status", json!({"agent_id": "meshtastic"})).await?;
    assert_eq!((&status["state"], &status["reach"]), (&json!("busy"), &json!(["stop"])));
    Ok(())
}

/// Sends a receipt with that request id, or repeats it, and returns the answer.
async fn receipt(link: &mut Link, number: i64, id: &str, stage: &str) -> Result<Result<Value, Value>> {
    let params = json!({"message_ids": [id], "stage": stage, "via": "hook"});
    link.send_text(&json!({"jsonrpc": "2.0", "id": number, "method": "receipt", "params": params}).to_string()).await?;
    link.end(number).await
}

#[tokio::test]
async fn nothing_is_recorded_ahead_of_a_receipt_that_the_store_could_not_take() -> Result<()> {
    let work = TempDir::new()?;
    let (mut redis, _coordinator, mut homeassistant, mut meshtastic) = two_links_on_redis(&work).await?;
    let news = json!({"target": "meshtastic", "message": "lights are on", "requires_response": false});
    let sent = homeassistant.call("send_message", news).await?;
    let id = sent["id"].as_str().context("a message without an id")?;
    meshtastic.hear(|frame| frame["method"] == "deliver").await?;

    redis.kill()?;
    let refused = |answer: Result<Value, Value>| answer.err().map(|error| error["data"]["code"].clone());
    let away = Some(json!("STORE_UNAVAILABLE"));
    assert_eq!(refused(receipt(&mut meshtastic, 1_001, id, "in_session").await?), away);
    redis.restart().await?;
    eventually("the store is back", SOON, async || homeassistant.call("list_agents", json!({})).await.ok()).await?;
    // It was in flight when the first one was refused, so the receipt that it depends on is not recorded.
    assert_eq!(refused(receipt(&mut meshtastic, 1_002, id, "seen").await?), away);
    for (number, stage) in [(1_001, "in_session"), (1_002, "seen")] {
        assert_eq!(receipt(&mut meshtastic, number, id, stage).await?, Ok(json!({})), "{stage}");
        let status = homeassistant.call("message_status", json!({"message_id": id})).await?;
        assert_eq!(status["stage"], stage, "{status}");
    }
    Ok(())
}

#[tokio::test]
async fn sigterm_drains_within_five_seconds_and_waits_go_on_elsewhere() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let (mut link, _) = Link::join(&coordinator.address().to_string(), "homeassistant").await?;
    let proxy = session(work.path(), "meshtastic", &coordinator.url()).await?;
    proxy.reply("ping", json!({})).await?;
    let waiting = proxy.begin_call("wait_for_message", json!({"timeout": 120})).await?;
    let began = Instant::now();
    let status = coordinator.stop().await?;
    assert!(status.success() && began.elapsed() < Duration::from_secs(5), "{status} after {:?}", began.elapsed());
    link.hear(|frame| frame["method"] == "draining").await?;
    assert_eq!(link.hear_close().await?, 1001);

    coordinator.restart().await?;
    let (mut link, welcome) = Link::join(&coordinator.address().to_string(), "sender").await?;
    assert_eq!(welcome["agent_id"], "sender");
    let sent = link.call("send_message", json!({"target": "meshtastic", "message": "you still wait"})).await?;
    let received = proxy.call_result(waiting, SOON).await?.json()?;
    assert_eq!(received["id"], sent["id"]);
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
    server.args(["--listen", "127.0.0.1:0", "--store", &redis.url()]).stdin(Stdio::null());
    let mut coordinator = Process::start(server, &work.path().join("log"))?;
    let report = format!("no Redis answers at {}", redis.url());
    eventually("a report", REPORTED, async || coordinator.log().contains(&report).then_some(())).await?;
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
        let waits = async || fs::read_to_string(&log).ok()?.contains("no Redis answers").then_some(());
        eventually("the coordinator waits", SOON, waits).await?;
        redis.restart().await?;
        anyhow::Ok(Instant::now())
    };
    let (serves, came) = tokio::join!(coordinator.restart(), late);
    serves?;
    let took = came?.elapsed();
    assert!(took < Duration::from_secs(3), "it served {took:?} after its Redis came");
    Ok(())
}
