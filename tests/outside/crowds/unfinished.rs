//! Hundreds of clients send most of a long input and stop: the coordinator holds little of it, and other clients continue.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use c3po_shared::limits::TEXT_MAX;
use futures_util::future::join_all;
use harness::coordinator::Coordinator;
use harness::entry::Entry;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::mcp::McpClient;
use harness::proxy::{proxy_command, session};
use harness::redis::Redis;
use harness::unfinished::Half;
use harness::vitals::{Vitals, raise_descriptor_limit};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;

/// The number of connections of each kind.
const EACH: u32 = 80;
/// The number of handshakes.
const HANDSHAKES: u32 = 1_000;
/// Far less than the 60 kB that each of them sends.
const HANDSHAKES_GROWTH_MAX: u64 = 30 << 20;
/// The number of requests whose bodies of 400 kB are read and wait for the store.
const WAITING: u32 = 600;
/// Less than the bodies for which there is room.
const HELD_LEAST: u64 = 16 << 20;
/// The number of requests with a long head …
const HEADS: u32 = 1_000;
/// … and the memory for which the limit of connections counts each of them.
const HEAD_MAX: u64 = 80 << 10;
/// How long a connection tries to send its megabyte.
const WITHIN: Duration = Duration::from_secs(3);
/// More than the budget for input without a key plus the connections themselves, and far less than the total input.
const GROWTH_MAX: u64 = 80 << 20;
/// More than closed connections leave behind, and far less than the budget.
const LEFT_MAX: u64 = 24 << 20;
/// The recipients of a broadcast of the longest text, which takes 60 MB once for each of them.
const RECIPIENTS: u32 = 300;
/// More than the text and the few copies that are written at a time.
const BROADCAST_GROWTH_MAX: u64 = 20 << 20;
/// How long the well-behaved session may take for a few calls, on a machine that builds at the same time.
const IN_TIME: Duration = Duration::from_secs(5);

#[tokio::test]
async fn unfinished_input_is_held_up_to_a_budget_and_others_continue() -> Result<()> {
    raise_descriptor_limit()?;
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let (process, entry) = (
        coordinator.process()?.id()?,
        Entry::clear(coordinator.address()),
    );
    let good = session(work.path(), "good", &coordinator.url()).await?;
    good.reply("ping", json!({})).await?;
    let before = Vitals::of(process)?.resident;

    let kinds = [
        Half::Body("/mcp"),
        Half::Body("/api/agents/remove"),
        Half::FirstFrame,
        Half::LaterFrame,
    ];
    let halves =
        (0..EACH).flat_map(|number| kinds.map(|half| half.send(&entry, None, number, WITHIN)));
    let held: Vec<_> = join_all(halves).await.into_iter().flatten().collect();
    ensure!(
        held.len() > EACH as usize,
        "only {} connections are held",
        held.len()
    );
    let grown = Vitals::of(process)?.resident.saturating_sub(before);
    ensure!(grown < GROWTH_MAX, "it grew by {} kB", grown >> 10);

    let began = Instant::now();
    good.reply(
        "send_message",
        json!({"target": "good", "message": "hello"}),
    )
    .await?;
    ensure!(
        good.reply("wait_for_message", json!({"timeout": 5}))
            .await?["message"]
            == "hello"
    );
    let newcomer = session(work.path(), "newcomer", &coordinator.url()).await?;
    newcomer.reply("ping", json!({})).await?;
    ensure!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());

    drop(held);
    let given_back =
        async || (Vitals::of(process).ok()?.resident < before + LEFT_MAX).then_some(());
    eventually("what was held is given back", IN_TIME, given_back).await?;
    // There is room for a long message again.
    let long = "x".repeat(40_000);
    newcomer
        .reply("send_message", json!({"target": "good", "message": long}))
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_request_takes_no_more_memory_than_the_limit_of_connections_allows() -> Result<()> {
    raise_descriptor_limit()?;
    for path in ["/api/join", "/mcp"] {
        let work = TempDir::new()?;
        let mut coordinator = Coordinator::start(work.path()).await?;
        let process = coordinator.process()?.id()?;
        let entry = Entry::clear(coordinator.address());
        let before = Vitals::of(process)?.resident;
        let halves = (0..HEADS).map(|number| Half::Head(path).send(&entry, None, number, WITHIN));
        let held: Vec<_> = join_all(halves).await.into_iter().flatten().collect();
        ensure!(
            held.len() == HEADS as usize,
            "{path}: {} are held",
            held.len()
        );
        let port = coordinator.address().port();
        eventually("all is read", IN_TIME, async || {
            (unread(port).ok()? == 0).then_some(())
        })
        .await?;
        let each = Vitals::of(process)?.resident.saturating_sub(before) / u64::from(HEADS);
        ensure!(each < HEAD_MAX, "{path}: {each} bytes each");
    }
    Ok(())
}

/// Returns how many connections of a server have input that it has not read.
fn unread(port: u16) -> Result<usize> {
    let table = fs::read_to_string("/proc/net/tcp")?;
    let local = format!(":{port:04X}");
    let has_unread = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        words[1].ends_with(&local) && words[3] == "01" && !words[4].ends_with(":00000000")
    };
    Ok(table.lines().skip(1).filter(has_unread).count())
}

#[tokio::test]
async fn links_release_the_memory_of_long_messages() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let (process, address) = (
        coordinator.process()?.id()?,
        coordinator.address().to_string(),
    );
    let mut links = Vec::new();
    for number in 0..EACH {
        links.push(Link::join(&address, &format!("long-{number}")).await?.0);
    }
    let before = Vitals::of(process)?.resident;
    let text = "x".repeat(900_000);
    for link in &mut links {
        let refused = link
            .refusal("send_message", json!({"target": "nobody", "message": text}))
            .await?;
        ensure!(refused == "PAYLOAD_TOO_LARGE", "{refused}");
        // A long answer too, in both directions of the link.
        link.call(
            "send_message",
            json!({"target": "long-0", "message": "y".repeat(TEXT_MAX)}),
        )
        .await?;
    }
    let released = async || (Vitals::of(process).ok()?.resident < before + LEFT_MAX).then_some(());
    eventually("the memory is released", IN_TIME, released).await?;
    // The links go on.
    for link in &mut links {
        link.call("ping", json!({})).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_broadcast_to_many_holds_its_text_once() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let (process, address) = (
        coordinator.process()?.id()?,
        coordinator.address().to_string(),
    );
    for number in 0..RECIPIENTS {
        Link::join(&address, &format!("reader-{number}")).await?;
    }
    let (mut link, _) = Link::join(&address, "caster").await?;
    let before = Vitals::of(process)?.peak;
    let text = "\u{1f4e2}".repeat(TEXT_MAX);
    // Also where the deadline of the call ends it.
    let _ = link.try_call("broadcast", json!({"message": text})).await?;
    let grown = Vitals::of(process)?.peak - before;
    ensure!(
        grown < BROADCAST_GROWTH_MAX,
        "it grew by {} kB",
        grown >> 10
    );
    Ok(())
}

#[tokio::test]
async fn bodies_that_wait_for_the_store_are_held_up_to_the_budget() -> Result<()> {
    raise_descriptor_limit()?;
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let mut coordinator = Coordinator::absent(work.path(), &redis.url())?;
    coordinator.restart().await?;
    let (process, address) = (coordinator.process()?.id()?, coordinator.address());
    let text = "\u{1f4e2}".repeat(TEXT_MAX / 4);
    let body = json!({"target": "nobody", "message": text, "context": text}).to_string();
    let before = Vitals::of(process)?.peak;
    redis.pause()?;
    let headers = [("X-Agent-ID", "human")];
    let posts = (0..WAITING).map(|_| http::post(address, "/api/v1/messages", &headers, &body));
    let posts = timeout(WITHIN, join_all(posts)).await;
    let grown = Vitals::of(process)?.peak - before;
    redis.resume()?;
    // They wait for room or for the store, which does not answer.
    let refused = |post: &Result<http::Answer>| matches!(post, Ok(post) if post.status != 503);
    let refused = posts.into_iter().flatten().find(refused);
    ensure!(refused.is_none(), "for another reason: {refused:?}");
    let held = HELD_LEAST..GROWTH_MAX;
    ensure!(held.contains(&grown), "it grew by {} kB", grown >> 10);
    Ok(())
}

#[tokio::test]
async fn unfinished_handshakes_are_cut_and_do_not_keep_newcomers_out() -> Result<()> {
    raise_descriptor_limit()?;
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.over_tls("auto");
    coordinator.restart().await?;
    let (process, entry) = (
        coordinator.process()?.id()?,
        Entry::clear(coordinator.address()),
    );
    let before = Vitals::of(process)?.resident;
    let halves = (0..HANDSHAKES).map(|number| Half::Handshake.send(&entry, None, number, WITHIN));
    let held: Vec<_> = join_all(halves).await;
    let grown = Vitals::of(process)?.resident.saturating_sub(before);
    ensure!(
        grown < HANDSHAKES_GROWTH_MAX,
        "it grew by {} kB",
        grown >> 10
    );

    let (began, fingerprint) = (Instant::now(), coordinator.fingerprint()?);
    let mut newcomer = proxy_command(work.path(), "newcomer", &coordinator.url())?;
    newcomer.env("C3PO_FINGERPRINT", fingerprint);
    let newcomer = McpClient::start(newcomer, &work.path().join("newcomer.log"))?;
    newcomer.initialize().await?;
    newcomer.reply("ping", json!({})).await?;
    ensure!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    drop(held);
    Ok(())
}
