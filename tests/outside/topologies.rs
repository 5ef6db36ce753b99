//! A coordinator on each kind of Redis, from the view of its users: its start, and the effect of a lost server.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use harness::certificates::Certificates;
use harness::cluster::Cluster;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::proxy::session;
use harness::redis::Redis;
use harness::watched::Watched;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a failover or the return of a server may take until all agents can continue.
const SOON: Duration = Duration::from_secs(30);
/// The command that requires this password from unnamed users.
const LOCK: [&str; 4] = ["ACL", "SETUSER", "default", ">open-sesame"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_serves_from_every_kind_of_redis_and_never_shows_its_password() -> Result<()>
{
    let certificates = Certificates::make()?;
    let (redis, secret) = Redis::start_with_tls(&certificates).await?;
    let cluster = Cluster::start().await?;
    let watched = Watched::start(0, 1).await?;
    redis
        .tell(&["ACL", "SETUSER", "default", "resetpass", ">open-sesame"])
        .await?;
    watched.servers[0].tell(&LOCK).await?;
    let with_login = |url: &str| url.replacen("://", "://:open-sesame@", 1);
    // The second variable names the system's certificate authorities if they are not in the usual place.
    for (url, trusted) in [
        (with_login(&secret), Some("C3PO_REDIS_CA")),
        (with_login(&secret), Some("SSL_CERT_FILE")),
        (cluster.url(), None),
        (with_login(&watched.url()), None),
    ] {
        let work = TempDir::new()?;
        let mut coordinator = Coordinator::absent(work.path(), &url)?;
        if let Some(variable) = trusted {
            coordinator = coordinator.with(variable, &certificates.authority());
        }
        coordinator.restart().await?;
        let (mut link, welcome) =
            Link::join(&coordinator.address().to_string(), "homeassistant").await?;
        link.call(
            "send_message",
            json!({"target": welcome["agent_id"], "message": "to myself"}),
        )
        .await?;
        assert_eq!(link.call("get_messages", json!({})).await?["count"], 1);
        let log = coordinator.process()?.log();
        let shown = url.replace(":open-sesame@", "");
        assert!(
            log.contains(&format!("with {shown}")) && !log.contains("sesame"),
            "{log}"
        );
        assert!(coordinator.stop().await?.success());
    }
    Ok(())
}

async fn health(coordinator: &Coordinator) -> Result<u16> {
    Ok(http::get(coordinator.address(), "/api/health")
        .await?
        .status)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_whose_server_is_lost_is_refused_and_the_other_notices_nothing() -> Result<()> {
    let work = TempDir::new()?;
    let mut cluster = Cluster::start_with(&["--appendfsync", "always"]).await?;
    for folder in ["one", "other"] {
        std::fs::create_dir(work.path().join(folder))?;
    }
    let coordinator = Coordinator::start_on(&work.path().join("one"), &cluster.url()).await?;
    let mut other = Coordinator::absent(&work.path().join("other"), &cluster.url())?
        .with("C3PO_FLEET", Path::new("other"));
    other.restart().await?;
    // The two fleets are on different servers.
    let lost = cluster.master_of("{c3po}:-").await?;
    assert_ne!(lost, cluster.master_of("{other}:-").await?);
    let address = coordinator.address().to_string();
    let (mut a, _) = Link::join(&address, "a").await?;
    let (mut b, _) = Link::join(&address, "b").await?;
    let (mut c, _) = Link::join(&other.address().to_string(), "c").await?;
    let kept = b
        .call("send_message", json!({"target": "a", "message": "kept"}))
        .await?;
    a.hear(|frame| frame["method"] == "deliver").await?;

    cluster.masters[lost].kill()?;
    assert_eq!(
        a.refusal("get_messages", json!({})).await?,
        "STORE_UNAVAILABLE"
    );
    assert_eq!(
        b.refusal("send_message", json!({"target": "a", "message": "lost"}))
            .await?,
        "STORE_UNAVAILABLE"
    );
    for n in 0..20 {
        let began = Instant::now();
        c.call(
            "send_message",
            json!({"target": "c", "message": n.to_string()}),
        )
        .await?;
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?} in round {n}",
            began.elapsed()
        );
    }
    // A check counts for a moment, and the start of a fast machine is not longer ago.
    eventually("its loss is noticed", SOON, async || {
        (health(&coordinator).await.ok()? == 500).then_some(())
    })
    .await?;
    assert_eq!(health(&other).await?, 200);

    cluster.masters[lost].restart().await?;
    let found = eventually("its server is back", SOON, async || {
        a.call("get_messages", json!({})).await.ok()
    })
    .await?;
    assert_eq!(
        (&found["count"], &found["messages"][0]["id"]),
        (&json!(1), &kept["id"])
    );
    assert_eq!(health(&coordinator).await?, 200);
    Ok(())
}

/// Waits until the replica has the message.
async fn is_replicated(watched: &Watched, id: &Value) -> Result<()> {
    let id = id.as_str().context("a message without an id")?;
    let key = format!(
        "{{c3po}}:m:meshtastic:{}",
        id.rsplit("::").next().unwrap_or_default()
    );
    eventually("the replica has it", SOON, async || {
        watched.servers[1]
            .tell(&["EXISTS", &key])
            .await
            .ok()?
            .starts_with(":1")
            .then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_keep_their_names_and_their_mail_through_a_failover() -> Result<()> {
    let work = TempDir::new()?;
    let mut watched = Watched::start(1, 3).await?;
    let coordinator = Coordinator::start_on(work.path(), &watched.url()).await?;
    let homeassistant = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let meshtastic = session(work.path(), "meshtastic", &coordinator.url()).await?;
    meshtastic.reply("ping", json!({})).await?;
    let before = homeassistant
        .reply(
            "send_message",
            json!({"target": "meshtastic", "message": "before"}),
        )
        .await?;
    let waiting = homeassistant
        .begin_call(
            "wait_for_message",
            json!({"message_id": before["id"], "timeout": 300}),
        )
        .await?;
    // A wait survives an outage after its first read of the store; by the end of these calls it has read.
    for _ in 0..3 {
        homeassistant.reply("list_agents", json!({})).await?;
    }
    is_replicated(&watched, &before["id"]).await?;

    watched.servers[0].kill()?;
    let refused = homeassistant.call("list_agents", json!({})).await?;
    assert!(
        refused.is_error && refused.json()?["code"] == "STORE_UNAVAILABLE",
        "{refused:?}"
    );
    let received = eventually("the new master is found", SOON, async || {
        let received = meshtastic.call("get_messages", json!({})).await.ok()?;
        (!received.is_error).then(|| received.json().ok()).flatten()
    })
    .await?;
    assert_eq!(received["messages"][0]["id"], before["id"]);
    meshtastic
        .reply(
            "reply",
            json!({"message_id": before["id"], "response": "after"}),
        )
        .await?;
    let answer = homeassistant.call_result(waiting, SOON).await?;
    assert_eq!(answer.json()?["response"], "after", "{answer:?}");
    for (session, name) in [
        (&homeassistant, "homeassistant"),
        (&meshtastic, "meshtastic"),
    ] {
        assert_eq!(session.reply("ping", json!({})).await?["agent_id"], name);
    }
    Ok(())
}

#[tokio::test]
async fn a_full_redis_is_reported_and_stored_messages_can_be_settled() -> Result<()> {
    let work = TempDir::new()?;
    let redis = Redis::start().await?;
    let coordinator = Coordinator::start_on(work.path(), &redis.url()).await?;
    let address = coordinator.address().to_string();
    let (mut homeassistant, _) = Link::join(&address, "homeassistant").await?;
    let (mut meshtastic, _) = Link::join(&address, "meshtastic").await?;
    let send = json!({"target": "meshtastic", "message": "before"});
    let stored = homeassistant.call("send_message", send.clone()).await?;
    redis.tell(&["CONFIG", "SET", "maxmemory", "1"]).await?;

    let refused: Value = homeassistant
        .try_call("send_message", send.clone())
        .await?
        .expect_err("it is full");
    assert_eq!(refused["code"], "STORE_UNAVAILABLE", "{refused}");
    assert!(
        refused.to_string().contains("store is full") && refused.to_string().contains("maxmemory"),
        "{refused}"
    );
    let (mut third, _) = Link::join(&address, "meshtastic-two").await?;
    assert_eq!(
        third.call("list_agents", json!({})).await?["agents"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        1
    );
    let settled = meshtastic
        .call("ack_messages", json!({"message_ids": [stored["id"]]}))
        .await?;
    assert_eq!(settled["acked"], json!([stored["id"]]));
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        0
    );

    redis.tell(&["CONFIG", "SET", "maxmemory", "0"]).await?;
    homeassistant.call("send_message", send).await?;
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        1
    );
    Ok(())
}
