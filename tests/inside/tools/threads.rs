//! Threads of many megabytes on a real Redis: the cost of a page does not depend on the thread's length, and reading does not
//! block others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_coordinator::store::{Actor, Quota, Send};
use c3po_shared::ids::{CallId, MessageId};
use c3po_shared::limits::{ARCHIVE_LIFE, INBOX_MAX};
use c3po_shared::message::Message;
use harness::link::Link;
use harness::message::message;
use harness::redis::Redis;
use inside::served::Served;
use serde_json::{Value, json};
use tokio::try_join;

use super::{each, id, two_agents};

/// The number of messages in the thread, and the characters of each.
const MESSAGES: usize = 600;
const CHARACTERS: usize = 50_000;
/// The limit of Redis's output for one page of such messages. It covers the message that identifies the thread, the one of
/// which a part is shown, the next one, and the positions of the others. The whole thread has 30 MB.
const PAGE_BYTES: u64 = 3 * CHARACTERS as u64 + 30_000;
/// The number of pages requested at once while another agent works.
const AT_ONCE: usize = 80;
/// The allowed slowdown of other calls meanwhile. If each page read the whole thread, it would be a factor of five or more.
const SLOWER: u32 = 3;
/// The number of measured calls.
const CALLS: usize = 60;
/// More messages than one page skips.
const OTHERS: usize = 4_200;

fn send(message: Message) -> Send {
    Send {
        message,
        call: CallId::fresh(),
        bound: INBOX_MAX,
        kept: ARCHIVE_LIFE,
        spares_away: false,
        one_shot: false,
        quota: Quota::default(),
        key: None,
        login: None,
        speaker: None,
    }
}

/// Starts a coordinator on its own Redis, and two agents with a long thread. Returns the ids of its messages too.
async fn start() -> Result<(Redis, Served, [Link; 2], Vec<MessageId>)> {
    let redis = Redis::start().await?;
    let address = redis.url().parse()?;
    let served = Served::start_with(|config| config.store = address).await?;
    let links = [
        served.join("homeassistant").await?,
        served.join("meshtastic").await?,
    ];
    let text = "x".repeat(CHARACTERS);
    let mut ids: Vec<MessageId> = Vec::new();
    let first = message("homeassistant", "meshtastic", &text);
    for number in 0..MESSAGES {
        let (from, to) = if number % 2 == 0 {
            ("homeassistant", "meshtastic")
        } else {
            ("meshtastic", "homeassistant")
        };
        let mut next = if number == 0 {
            first.clone()
        } else {
            message(from, to, &text)
        };
        next.thread_id = first.id.clone();
        next.timestamp = first.timestamp + Duration::from_millis(u64::try_from(number)?);
        served.store.send(&send(next.clone())).await?;
        served
            .store
            .acknowledge(
                &next.to_agent,
                &Actor::default(),
                std::slice::from_ref(&next.id),
            )
            .await?;
        ids.push(next.id);
    }
    Ok((redis, served, links, ids))
}

/// Returns how many bytes the server has sent so far.
async fn said(redis: &Redis) -> Result<u64> {
    let info = redis.tell(&["INFO", "stats"]).await?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("total_net_output_bytes:"));
    Ok(line.context("it counts what it sends")?.trim().parse()?)
}

/// Returns one page, and how many bytes Redis sent for it.
async fn page(
    redis: &Redis,
    link: &mut Link,
    message: &MessageId,
    cursor: &Value,
) -> Result<(Value, u64)> {
    let mut arguments = json!({"message_id": message});
    if !cursor.is_null() {
        arguments["cursor"] = cursor.clone();
    }
    let before = said(redis).await?;
    let page = link.call("get_thread", arguments).await?;
    Ok((page, said(redis).await? - before))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_page_of_thirty_megabytes_reads_a_page() -> Result<()> {
    let (redis, _served, [mut link, _], ids) = start().await?;
    let (mut read, mut cursor) = (Vec::new(), json!(null));
    loop {
        let (page, bytes) = page(&redis, &mut link, &ids[0], &cursor).await?;
        ensure!(
            bytes < PAGE_BYTES,
            "page {} took {bytes} bytes of Redis",
            read.len()
        );
        let ended = page["messages"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|message| message["rest"].is_null());
        read.extend(ended.map(id));
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert!(
        read.iter().eq(ids.iter().map(MessageId::as_str)),
        "{} of {MESSAGES}",
        read.len()
    );
    Ok(())
}

#[tokio::test]
async fn the_id_of_a_broadcast_that_never_was_leads_nowhere() -> Result<()> {
    let (_served, mut homeassistant, _meshtastic) = two_agents().await?;
    let copies = homeassistant
        .call("broadcast", json!({"message": "hi"}))
        .await?;
    let thread = homeassistant
        .call("get_thread", json!({"message_id": copies["id"]}))
        .await?;
    assert_eq!(each(&thread["messages"], "message"), ["hi"]);
    let made_up = json!({"message_id": "homeassistant::all::00000001"});
    assert_eq!(
        homeassistant.refusal("get_thread", made_up).await?,
        "MESSAGE_NOT_FOUND"
    );
    Ok(())
}

/// Requests the first page on two links, many at once, repeatedly until `done`.
async fn read_on(links: &mut [Link; 2], thread: &MessageId, done: &AtomicBool) -> Result<()> {
    while !done.load(Ordering::Relaxed) {
        let mut begun = Vec::new();
        for number in 0..AT_ONCE {
            let call = links[number % 2].begin(
                CallId::fresh(),
                "get_thread",
                json!({"message_id": thread}),
            );
            begun.push((number % 2, call.await?));
        }
        for (link, call) in begun {
            let page = links[link].end(call).await?.map_err(anyhow::Error::msg)?;
            assert_eq!(each(&page["messages"], "id"), [thread.as_str()]);
        }
    }
    Ok(())
}

/// Returns the time within which 75% of the calls are answered while others read that thread.
async fn usual_beside(
    readers: &mut [Link; 2],
    thread: &MessageId,
    other: &mut Link,
) -> Result<Duration> {
    let (done, mut took) = (AtomicBool::new(false), Vec::new());
    let measured = async {
        for tool in ["ping", "get_messages"].into_iter().cycle().take(CALLS) {
            let began = Instant::now();
            other.call(tool, json!({})).await?;
            took.push(began.elapsed());
        }
        done.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    try_join!(read_on(readers, thread, &done), measured)?;
    took.sort();
    Ok(took[took.len() * 3 / 4])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_a_long_thread_does_not_block_others() -> Result<()> {
    let (_redis, served, mut readers, ids) = start().await?;
    let alone = message("homeassistant", "meshtastic", &"x".repeat(CHARACTERS));
    served.store.send(&send(alone.clone())).await?;
    let mut other = served.join("media").await?;
    // In turns, comparing the worst of the one with the best of the other, because a busy machine delays either.
    let (mut short, mut long) = (Duration::ZERO, Duration::MAX);
    for _ in 0..3 {
        short = short.max(usual_beside(&mut readers, &alone.id, &mut other).await?);
        long = long.min(usual_beside(&mut readers, &ids[0], &mut other).await?);
    }
    eprintln!(
        "another agent's call took {short:?} beside readers of one message, {long:?} of {MESSAGES}"
    );
    ensure!(
        long < SLOWER * short,
        "{long:?} beside readers of {MESSAGES} messages, {short:?} beside those of one"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_stops_early_when_most_messages_are_invisible() -> Result<()> {
    let redis = Redis::start().await?;
    let address = redis.url().parse()?;
    let served = Served::start_with(|config| config.store = address).await?;
    for name in ["sender", "talker"] {
        served.join(name).await?;
    }
    let mut reader = served.join("reader").await?;
    let copy = message("sender", "reader", "everybody?");
    let kept = async |number: usize, next: Message| -> Result<MessageId> {
        let timestamp = copy.timestamp + Duration::from_millis(u64::try_from(number)?);
        let next = Message {
            thread_id: copy.id.clone(),
            timestamp,
            ..next
        };
        served.store.send(&send(next.clone())).await?;
        served
            .store
            .acknowledge(
                &next.to_agent,
                &Actor::default(),
                std::slice::from_ref(&next.id),
            )
            .await?;
        Ok(next.id)
    };
    kept(0, copy.clone()).await?;
    for number in 1..OTHERS {
        kept(number, message("talker", "sender", "me!")).await?;
    }
    let last = kept(OTHERS, message("reader", "sender", "me too")).await?;

    let first = reader
        .call("get_thread", json!({"message_id": copy.id}))
        .await?;
    assert_eq!(each(&first["messages"], "id"), [copy.id.as_str()]);
    let rest = reader
        .call(
            "get_thread",
            json!({"message_id": copy.id, "cursor": first["next_cursor"]}),
        )
        .await?;
    assert_eq!(
        (each(&rest["messages"], "id"), &rest["next_cursor"]),
        (vec![last.as_str().to_owned()], &Value::Null)
    );
    Ok(())
}
