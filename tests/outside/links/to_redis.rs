//! Silent breaks of the link between a coordinator and Redis, while agents wait and send through it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use harness::breaker::{Breaker, Way};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::proxy::session;
use harness::redis::Redis;
use serde_json::json;
use tempfile::TempDir;

/// The time within which a coordinator must have found its store again, and delayed calls must continue.
const NOTICED: Duration = Duration::from_secs(45);
/// The time within which a call must be refused if the store does not respond, on a machine that builds at the same time.
const REFUSED: Duration = Duration::from_secs(4);
/// How long a route is lost.
const HELD: Duration = Duration::from_secs(30);

/// A kind of break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    HalfOpen(&'static [Way]),
    Held,
    Cut(Way),
}

/// All of them, with the names of the agents behind them.
const BREAKS: [(&str, Break); 5] = [
    ("both", Break::HalfOpen(&[Way::There, Way::Back])),
    ("back", Break::HalfOpen(&[Way::Back])),
    ("held", Break::Held),
    ("cut-there", Break::Cut(Way::There)),
    ("cut-back", Break::Cut(Way::Back)),
];

/// Sends until a message is accepted. Returns the text of that message.
async fn send_until_accepted(
    sender: &McpClient,
    target: &str,
    breaker: &Breaker,
    how: Break,
) -> Result<String> {
    let (broken, mut attempt) = (Instant::now(), 0);
    eventually("a send is accepted", NOTICED, async || {
        if how == Break::Held && broken.elapsed() > HELD {
            breaker.heal();
        }
        if let Break::Cut(way) = how
            && attempt < 5
        {
            // In the middle of the next frames in that direction.
            breaker.cut_after(way, 100 + 37 * attempt);
        }
        attempt += 1;
        let text = format!("attempt {attempt}");
        let began = Instant::now();
        let answer = sender
            .call("send_message", json!({"target": target, "message": text}))
            .await;
        let answer = answer.and_then(|answer| {
            ensure!(
                began.elapsed() < REFUSED,
                "a call took {:?}",
                began.elapsed()
            );
            ensure!(
                !answer.is_error || answer.text.contains("STORE_UNAVAILABLE"),
                "{}",
                answer.text
            );
            Ok(answer)
        });
        match answer {
            // The last cut happens after about 300 bytes, and Redis's answer to a send has 27.
            Ok(answer) if answer.is_error || (matches!(how, Break::Cut(_)) && attempt < 20) => None,
            Ok(_) => Some(Ok(text)),
            Err(error) => Some(Err(error)),
        }
    })
    .await?
}

/// Breaks a coordinator's link to Redis under two agents. A third agent is at a coordinator with an intact link.
async fn behind(
    name: &str,
    how: Break,
    work: &TempDir,
    redis: &Redis,
    whole: &McpClient,
) -> Result<()> {
    let folder = work.path().join(format!("coordinator-{name}"));
    std::fs::create_dir(&folder)?;
    let breaker = Breaker::before(redis.address()).await?;
    let mut coordinator =
        Coordinator::absent(&folder, &format!("redis://{}", breaker.address()))?.unlimited();
    coordinator.restart().await?;
    let sender = session(work.path(), &format!("{name}-sender"), &coordinator.url()).await?;
    let receiver = session(work.path(), name, &coordinator.url()).await?;
    sender.reply("ping", json!({})).await?;
    receiver.reply("ping", json!({})).await?;
    let waiting = receiver
        .begin_call("wait_for_message", json!({"timeout": 300}))
        .await?;
    receiver.reply("list_agents", json!({})).await?;

    let broken = Instant::now();
    match how {
        Break::HalfOpen(ways) => ways.iter().for_each(|way| breaker.forget(*way)),
        Break::Held => breaker.hold(),
        Break::Cut(_) => {}
    }
    let sent = whole
        .reply(
            "send_message",
            json!({"target": name, "message": "from outside"}),
        )
        .await?;
    let accepted = send_until_accepted(&sender, name, &breaker, how).await?;
    let mut received = BTreeMap::<String, usize>::new();
    let first = receiver.call_result(waiting, NOTICED).await?.json()?;
    ensure!(first["id"] == sent["id"], "{how:?}: {first}");
    ensure!(
        broken.elapsed() < NOTICED,
        "{how:?}: {:?}",
        broken.elapsed()
    );
    loop {
        let next = receiver
            .reply("wait_for_message", json!({"timeout": 2}))
            .await?;
        if next["timeout"] == true {
            break;
        }
        ensure!(next["repeated"].is_null(), "{how:?}: {next}");
        *received
            .entry(next["message"].as_str().context("a message")?.to_owned())
            .or_default() += 1;
    }
    ensure!(
        received.values().all(|times| *times == 1),
        "{how:?}: {received:?}"
    );
    ensure!(
        received.contains_key(&accepted),
        "{how:?}: {accepted} is not among {received:?}"
    );
    Ok(())
}

/// Asserts that the coordinator recovers within 45 s, and that no message arrives twice.
pub(super) async fn breaks_without_a_word() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let coordinator = Coordinator::start_on(work.path(), &redis.url()).await?;
    let whole = session(work.path(), "whole", &coordinator.url()).await?;
    whole.reply("ping", json!({})).await?;
    try_join_all(BREAKS.map(|(name, how)| behind(name, how, &work, &redis, &whole))).await?;
    Ok(())
}
