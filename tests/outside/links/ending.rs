//! Links that break repeatedly or silently leave nothing behind, neither in the coordinator nor in the proxy.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use futures_util::future::try_join_all;
use harness::breaker::{Breaker, Way};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::proxy::session;
use harness::vitals::Vitals;
use serde_json::json;
use tempfile::TempDir;

/// The number of links that break at once.
const LINKS: usize = 100;
/// The number of links that fall silent instead.
const SILENT: usize = 300;
/// How often they break: the first rounds fill buffers that are kept.
const ROUNDS: [usize; 2] = [8, 25];
/// How often the link of a proxy breaks.
const CUTS: [u64; 2] = [8, 30];
/// The time limit of any operation, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(60);
/// The silence after which a link counts as broken.
const SILENCE: Duration = Duration::from_secs(45);
/// The growth of memory that is not a leak: a few pages of the allocator.
const GROWTH: u64 = 2 << 20;

/// Waits until a coordinator has that many listeners.
async fn listeners(coordinator: &Coordinator, count: usize, within: Duration) -> Result<()> {
    let line = format!("c3po_listeners {count}");
    eventually("everybody who left is forgotten", within, async || {
        let metrics = http::get(coordinator.address(), "/metrics").await.ok()?;
        metrics.body.lines().any(|said| said == line).then_some(())
    })
    .await
}

/// Connects that many agents, each of which waits for messages.
async fn waiting(breaker: &Breaker, prefix: &str, count: usize) -> Result<Vec<Link>> {
    let address = breaker.address().to_string();
    let links = (0..count).map(async |number| {
        let (mut link, _) = Link::join(&address, &format!("{prefix}{number}")).await?;
        link.begin(
            CallId::fresh(),
            "wait_for_message",
            json!({"timeout": 3_600}),
        )
        .await?;
        anyhow::Ok(link)
    });
    try_join_all(links).await
}

#[tokio::test]
async fn links_that_break_leave_nothing_behind_in_a_coordinator() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let process = coordinator.process()?.id()?;
    let breaker = Breaker::before(coordinator.address()).await?;
    let mut held = Vec::new();
    for rounds in ROUNDS {
        for _ in 0..rounds {
            let links = waiting(&breaker, "loud", LINKS).await?;
            // Each agent has two listeners: its session and its wait.
            listeners(&coordinator, 2 * LINKS, SOON).await?;
            breaker.drop_all();
            drop(links);
            listeners(&coordinator, 0, SOON).await?;
        }
        held.push(Vitals::of(process)?);
    }
    let [before, after] = held[..] else {
        anyhow::bail!("two looks")
    };
    ensure!(
        after.resident < before.resident + GROWTH,
        "{before:?} {after:?}"
    );
    Ok(())
}

/// Silent links must be given up by the coordinator itself.
pub(super) async fn hundreds_fall_silent() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let process = coordinator.process()?.id()?;
    let breaker = Breaker::before(coordinator.address()).await?;
    let before = Vitals::of(process)?;
    let silent = waiting(&breaker, "silent", SILENT).await?;
    listeners(&coordinator, 2 * SILENT, SOON).await?;
    let broken = Instant::now();
    breaker.forget(Way::There);
    breaker.forget(Way::Back);
    listeners(&coordinator, 0, SILENCE + SILENCE / 3).await?;
    ensure!(broken.elapsed() >= SILENCE / 2, "{:?}", broken.elapsed());
    let end = Vitals::of(process)?;
    ensure!(
        end.descriptors <= before.descriptors + 2,
        "{before:?} {end:?}"
    );
    drop(silent);
    Ok(())
}

#[tokio::test]
async fn links_that_break_leave_nothing_behind_in_a_proxy() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let breaker = Breaker::before(coordinator.address()).await?;
    let mut proxy = session(
        work.path(),
        "homeassistant",
        &format!("http://{}", breaker.address()),
    )
    .await?;
    proxy.reply("ping", json!({})).await?;
    let process = proxy.process().id()?;
    let waiting = proxy
        .begin_call("wait_for_message", json!({"timeout": 3_600}))
        .await?;
    let mut held = Vec::new();
    for cuts in CUTS {
        for cut in 0..cuts {
            let before = breaker.taken();
            let way = if cut % 2 == 0 { Way::There } else { Way::Back };
            // In the middle of the frames of this call.
            breaker.cut_after(way, 40 + 7 * cut);
            eventually("a call over a new link", SOON, async || {
                let pong = proxy.call("ping", json!({})).await.ok()?;
                (!pong.is_error && breaker.taken() > before).then_some(())
            })
            .await?;
        }
        held.push(Vitals::of(process)?);
    }
    let [before, after] = held[..] else {
        anyhow::bail!("two looks")
    };
    ensure!(
        after.resident < before.resident + GROWTH,
        "{before:?} {after:?}"
    );
    ensure!(
        after.descriptors <= before.descriptors + 1,
        "{before:?} {after:?}"
    );

    let other = session(work.path(), "other", &coordinator.url()).await?;
    other
        .reply(
            "send_message",
            json!({"target": "homeassistant", "message": "still there?"}),
        )
        .await?;
    let received = proxy
        .call_result(waiting, SOON)
        .await
        .context("one wait, through every cut")?
        .json()?;
    ensure!(received["message"] == "still there?", "{received}");
    Ok(())
}
