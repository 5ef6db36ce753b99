//! Threads of many megabytes on a real Redis: each page costs a page, and the others do not notice who reads them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::{CallId, MessageId};
use harness::link::Link;
use harness::redis::Redis;
use harness::served::Served;
use serde_json::{Value, json};

use super::each;
use crate::store::fixture::{message, send};

/// How many messages the thread has, of as many characters each.
const MESSAGES: usize = 600;
const CHARACTERS: usize = 50_000;
/// What Redis may say for one page of such messages: the one that is shown, the next one of each side, and a list of
/// places. The whole thread has 30 MB.
const PAGE_BYTES: u64 = 250_000;
/// How long a call may take, on a machine that builds meanwhile.
const QUICK: Duration = Duration::from_millis(750);
/// How many pages are asked for at once while somebody else works.
const AT_ONCE: usize = 40;

/// A coordinator on a Redis of its own, and two agents with a long thread. Returns its messages too.
async fn start() -> Result<(Redis, Served, [Link; 2], Vec<MessageId>)> {
    let redis = Redis::start().await?;
    let address = redis.url().parse()?;
    let served = Served::start_with(|config| config.store = address).await?;
    let links = [served.join("homeassistant").await?, served.join("meshtastic").await?];
    let text = "x".repeat(CHARACTERS);
    let mut ids: Vec<MessageId> = Vec::new();
    let first = message("homeassistant", "meshtastic", &text);
    for number in 0..MESSAGES {
        let (from, to) =
            if number % 2 == 0 { ("homeassistant", "meshtastic") } else { ("meshtastic", "homeassistant") };
        let mut next = if number == 0 { first.clone() } else { message(from, to, &text) };
        next.thread_id = first.id.clone();
        next.timestamp = first.timestamp + Duration::from_millis(u64::try_from(number)?);
        served.store.send(&send(next.clone())).await?;
        served.store.acknowledge(&next.to_agent, None, std::slice::from_ref(&next.id)).await?;
        ids.push(next.id);
    }
    Ok((redis, served, links, ids))
}

/// Returns how many bytes the server has sent so far.
async fn said(redis: &Redis) -> Result<u64> {
    let info = redis.tell(&["INFO", "stats"]).await?;
    let line = info.lines().find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    Ok(line.context("it counts what it sends")?.trim().parse()?)
}

/// Returns one page, how long it took, and how much Redis said for it.
async fn page(redis: &Redis, link: &mut Link, message: &MessageId, cursor: &Value) -> Result<(Value, Duration, u64)> {
    let mut arguments = json!({"message_id": message});
    if !cursor.is_null() {
        arguments["cursor"] = cursor.clone();
    }
    let (before, began) = (said(redis).await?, Instant::now());
    let page = link.call("get_thread", arguments).await?;
    let took = began.elapsed();
    Ok((page, took, said(redis).await? - before))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_of_thirty_megabytes_is_quick_and_reads_a_page() -> Result<()> {
    let (redis, _served, [mut link, _], ids) = start().await?;
    let (mut read, mut cursor) = (Vec::new(), json!(null));
    loop {
        let (page, took, bytes) = page(&redis, &mut link, &ids[0], &cursor).await?;
        let number = read.len();
        if [0, MESSAGES / 2, MESSAGES - 1].contains(&number) {
            eprintln!("page {number} took {took:?} and {bytes} bytes of Redis");
            ensure!(took < QUICK, "page {number} took {took:?}");
        }
        ensure!(bytes < PAGE_BYTES, "page {number} took {bytes} bytes of Redis");
        read.extend(each(&page["messages"], "id"));
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!(read.iter().eq(ids.iter().map(MessageId::as_str)), "{} of {MESSAGES}", read.len());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_are_served_at_once_beside_many_who_read_a_long_thread() -> Result<()> {
    let (_redis, served, mut links, ids) = start().await?;
    let mut other = served.join("media").await?;
    let mut begun = Vec::new();
    for _ in 0..AT_ONCE {
        for (number, link) in links.iter_mut().enumerate() {
            begun.push((number, link.begin(CallId::fresh(), "get_thread", json!({"message_id": ids[0]})).await?));
        }
    }
    let mut slowest = Duration::ZERO;
    for _ in 0..50 {
        for tool in ["ping", "get_messages"] {
            let began = Instant::now();
            other.call(tool, json!({})).await?;
            slowest = slowest.max(began.elapsed());
        }
    }
    for (number, call) in begun {
        let page = links[number].end(call).await?.map_err(anyhow::Error::msg)?;
        assert_eq!(each(&page["messages"], "id"), [ids[0].as_str()]);
    }
    eprintln!("the slowest call of another agent took {slowest:?}");
    ensure!(slowest < QUICK, "the slowest call of another agent took {slowest:?}");
    Ok(())
}
