//! The connection limit: connections over the limit get an error, and existing ones continue.

use std::time::Duration;

use anyhow::Result;
use harness::coordinator::Coordinator;
use harness::crowd::{Agent, Crowd, Trouble, Who};
use harness::eventually::eventually;
use harness::http;
use harness::proxy::session;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

/// The descriptor limit of the coordinator …
const DESCRIPTORS: u32 = 200;
/// … and the connection slots that follow from it.
const PLACES: usize = 136;
/// How long a free slot may take to be taken again, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

async fn small_coordinator(work: &TempDir) -> Result<Coordinator> {
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.with_descriptors(DESCRIPTORS);
    coordinator.restart().await?;
    Ok(coordinator)
}

/// Takes every free slot, and returns the agents in them.
async fn fill(coordinator: &Coordinator, name: &str) -> Result<Vec<Agent>> {
    let mut agents = Vec::new();
    loop {
        match Agent::join(
            coordinator.address(),
            &Who::new(format!("{name}-{}", agents.len())),
        )
        .await
        {
            Ok(agent) => agents.push(agent),
            Err(Trouble::Refused(503, code)) if code == "COORD_DOWN" => return Ok(agents),
            Err(other) => return Err(other.into()),
        }
    }
}

#[tokio::test]
async fn newcomers_beyond_the_connection_limit_are_refused_and_others_go_on() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = small_coordinator(&work).await?;
    let crowd = Crowd::new(coordinator.address());
    crowd.gather("waiting", 100);
    crowd.gathered(100, SOON).await?;
    // Silent connections occupy a slot too.
    let mut silent = Vec::new();
    for _ in 0..10 {
        silent.push(TcpStream::connect(coordinator.address()).await?);
    }
    let mut agents = fill(&coordinator, "more").await?;
    assert_eq!(agents.len(), PLACES - 100 - silent.len());
    let told = http::get(coordinator.address(), "/api/health").await?;
    let refusal: Value = serde_json::from_str(&told.body)?;
    assert_eq!(
        (told.status, &refusal["code"], &refusal["details"]["limit"]),
        (503, &json!("COORD_DOWN"), &json!(PLACES))
    );

    let sender = agents.last_mut().expect("some found a place");
    for number in 0..100 {
        let message = format!(
            "{{\"target\":\"waiting-{number}\",\"message\":\"t={};\"}}",
            crowd.tally().now()
        );
        sender.call("send_message", &message).await?;
    }
    let all = async || (crowd.tally().progress().1 == 100).then_some(());
    eventually("every message arrives", SOON, all).await?;
    assert!(
        crowd.tally().take().troubles.is_empty(),
        "nobody who was there lost anything"
    );

    drop(silent);
    agents.truncate(1);
    eventually("a place is free again", SOON, async || {
        Agent::join(coordinator.address(), &Who::new("late"))
            .await
            .ok()
    })
    .await?;
    let log = std::fs::read_to_string(work.path().join("coordinator.log"))?;
    assert!(
        log.contains("the limit of 200 open files") && log.contains("has reached its limit of"),
        "{log}"
    );
    Ok(())
}

#[tokio::test]
async fn silent_connections_lose_their_slot() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = small_coordinator(&work).await?;
    let mut silent = Vec::new();
    for _ in 0..PLACES {
        silent.push(TcpStream::connect(coordinator.address()).await?);
    }
    assert!(
        fill(&coordinator, "agent").await?.is_empty(),
        "every place is taken"
    );
    eventually("a place is free again", SOON, async || {
        Agent::join(coordinator.address(), &Who::new("agent"))
            .await
            .ok()
    })
    .await?;
    drop(silent);
    Ok(())
}

#[tokio::test]
async fn a_session_that_finds_no_place_takes_the_next_coordinator_and_else_waits_for_one()
-> Result<()> {
    let work = TempDir::new()?;
    let full = small_coordinator(&work).await?;
    let agents = fill(&full, "agent").await?;
    let folder = work.path().join("other");
    std::fs::create_dir(&folder)?;
    let other = Coordinator::start(&folder).await?;

    let both = session(
        work.path(),
        "both",
        &format!("{},{}", full.url(), other.url()),
    )
    .await?;
    assert_eq!(both.reply("ping", json!({})).await?["pong"], true);
    let only = session(work.path(), "only", &full.url()).await?;
    let refused = only.call("ping", json!({})).await?;
    let refusal = refused.json()?;
    assert!(
        refused.is_error && refusal["code"] == "COORD_DOWN",
        "{refusal}"
    );
    assert!(
        refusal.to_string().contains("has reached its limit of"),
        "{refusal}"
    );

    drop(agents);
    eventually("the session has a link", SOON, async || {
        let pong = only.call("ping", json!({})).await.ok()?;
        (!pong.is_error).then_some(())
    })
    .await
}
