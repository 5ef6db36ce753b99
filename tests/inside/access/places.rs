//! The places of a key: with few calls in the store at a time, no key keeps the others waiting.

use std::time::{Duration, Instant};

use anyhow::Result;
use c3po_coordinator::config::Config;
use c3po_shared::limits::{CALLS_PER_KEY, CALLS_PER_SECOND, IDS_MAX, READS_PER_KEY};
use futures_util::future::{join_all, try_join_all};
use harness::breaker::Breaker;
use harness::http;
use harness::link::{Link, Who};
use harness::redis::Redis;
use inside::gate::Gate;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{ask, code};

async fn linked(gate: &Gate, key: &str, name: &str) -> Result<Link> {
    let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
    link.hello(&Who::new(name))
        .await?
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(link)
}

/// Reads the inbox. Returns the code of the refusal, if it is refused.
async fn read(link: &mut Link) -> Result<String> {
    let read = link.try_call("get_messages", json!({})).await?;
    let code = |refusal: Value| refusal["code"].as_str().unwrap_or_default().to_owned();
    Ok(read.map_or_else(code, |_| "ok".to_owned()))
}

#[tokio::test]
async fn a_key_has_few_reads_in_the_store_and_others_have_their_own() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    let gate = Gate::start_with(|config| config.store = store).await?;
    let many = gate.key("agent", "web", &[]).await?;
    let mut other = linked(&gate, &gate.key("agent", "api", &[]).await?, "api").await?;
    let mut links = Vec::new();
    // Each read of a Redis that hangs fails after a second, and the next one gets its place.
    for _ in 0..=2 * READS_PER_KEY {
        let mut link = linked(&gate, &many, "web").await?;
        // The page for its session is read by then.
        for _ in 0..2 {
            assert_eq!(read(&mut link).await?, "ok");
        }
        links.push(link);
    }
    redis.pause()?;
    let (codes, of_other) =
        tokio::try_join!(try_join_all(links.iter_mut().map(read)), read(&mut other))?;
    let without_place = codes.iter().filter(|code| *code == "RATE_LIMITED").count();
    assert_eq!(
        (without_place, of_other.as_str()),
        (1, "STORE_UNAVAILABLE"),
        "{codes:?}"
    );
    redis.resume()?;
    Ok(())
}

/// Else a few calls about many messages would keep the others waiting.
#[tokio::test]
async fn a_change_costs_its_key_a_call_for_each_message() -> Result<()> {
    const CHANGES: u32 = 20;
    let gate = Gate::start().await?;
    let mut link = linked(&gate, &gate.key("agent", "web", &[]).await?, "web").await?;
    let unknown: Vec<_> = (0..IDS_MAX)
        .map(|number| format!("api::web::{number:08x}"))
        .collect();
    let began = Instant::now();
    for _ in 0..CHANGES {
        link.call("ack_messages", json!({"message_ids": unknown}))
            .await?;
    }
    // The calls before the last one are paid, except for a second of burst.
    let paid = (CHANGES - 1) * u32::try_from(IDS_MAX)? / CALLS_PER_SECOND - 1;
    assert!(began.elapsed() >= Duration::from_secs(paid.into()));
    Ok(())
}

/// Checks that another read without a key finds its place beside a flood of these, of which each read fails after a second.
async fn leaves_room(flood: &str, other: &str) -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    let open = |config: &mut Config| (config.store, config.is_open) = (store, true);
    let gate = Gate::start_with(open).await?;
    redis.pause()?;
    let floods = (0..60).map(|_| ask(&gate, "GET", flood, None, None, ""));
    let others = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        ask(&gate, "GET", other, None, None, "").await
    };
    let (_, others) = tokio::join!(join_all(floods), others);
    let others = others?;
    assert_eq!(
        code(&others).as_deref(),
        Some("REDIS_UNAVAILABLE"),
        "{other} beside {flood}: {}",
        others.body
    );
    redis.resume()?;
    Ok(())
}

#[tokio::test]
async fn pages_and_lists_leave_room_for_other_answers() -> Result<()> {
    const LIST: &str = "/api/v1/questions";
    const ONE: &str = "/api/v1/questions/human::web::0000000a";
    const WAITING: &str = "/api/v1/questions/waiting";
    tokio::try_join!(
        leaves_room("/api/v1/events?agent=none&limit=1", LIST),
        leaves_room(LIST, ONE),
        leaves_room(LIST, WAITING),
        leaves_room(WAITING, ONE),
        leaves_room("/api/agents", ONE),
    )?;
    Ok(())
}

#[tokio::test]
async fn changes_of_sessions_take_the_places_of_their_key() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    let gate = Gate::start_with(|config| config.store = store).await?;
    let key = gate.key("agent", "web", &[]).await?;
    let mut calls = linked(&gate, &key, "web").await?;
    let mut sessions = Vec::new();
    for _ in 0..CALLS_PER_KEY {
        sessions.push(linked(&gate, &key, "web").await?);
    }
    redis.pause()?;
    for session in &mut sessions {
        session.notify("session", json!({"state": "busy"})).await?;
    }
    for session in &mut sessions {
        session.ping(1).await?;
    }
    let begun = Instant::now();
    let message = json!({"target": "web", "message": "still there?"});
    let sent = calls.try_call("send_message", message).await?;
    // The store fails after a second, and so do the changes before it.
    assert!(
        sent.is_err() && begun.elapsed() > Duration::from_millis(1_500),
        "{sent:?} after {:?}",
        begun.elapsed()
    );
    redis.resume()?;
    Ok(())
}

/// Begins a context on each link, and returns how long it takes until all have their messages again.
async fn again(links: &mut [Link], context: u64) -> Result<Duration> {
    let begun = Instant::now();
    let delivered = links.iter_mut().map(async |link| {
        link.heard.clear();
        link.notify("session", json!({ "context": context }))
            .await?;
        link.hear(|frame| frame["method"] == "deliver").await
    });
    try_join_all(delivered).await?;
    Ok(begun.elapsed())
}

/// Else links that begin contexts without end would read long messages again and again.
#[tokio::test]
async fn pages_for_sessions_take_the_places_for_reads_of_their_key() -> Result<()> {
    let redis = Redis::start().await?;
    let breaker = Breaker::before(redis.address()).await?;
    let store = format!("redis://{}", breaker.address()).parse()?;
    let gate = Gate::start_with(|config| config.store = store).await?;
    let key = gate.key("agent", "web*", &[]).await?;
    let mut links = Vec::new();
    for number in 0..4 * READS_PER_KEY {
        let mut link = linked(&gate, &key, &format!("web-{number}")).await?;
        let news = json!({"target": format!("web-{number}"), "message": "news"});
        link.call("send_message", news).await?;
        link.hear(|frame| frame["method"] == "deliver").await?;
        links.push(link);
    }
    breaker.delay(Duration::from_millis(100));
    let one = again(&mut links[..1], 1).await?;
    let all = again(&mut links, 2).await?;
    assert!(all > 2 * one, "one {one:?}, all {all:?}");
    breaker.heal();
    Ok(())
}

#[tokio::test]
async fn ends_of_sessions_take_the_places_of_their_key() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    let gate = Gate::start_with(|config| config.store = store).await?;
    let key = gate.key("agent", "web", &[]).await?;
    let mut sessions = Vec::new();
    for _ in 0..=CALLS_PER_KEY {
        sessions.push(linked(&gate, &key, "web").await?);
    }
    redis.pause()?;
    let begun = Instant::now();
    let ends = sessions.iter_mut().map(async |session| {
        session.notify("goodbye", json!({})).await?;
        // The coordinator drops the link of a session that left, once its hold has ended.
        let _ = session.hear_close().await;
        Ok::<_, anyhow::Error>(())
    });
    try_join_all(ends).await?;
    // The store fails after a second. The last one waits for that, and then as long.
    assert!(
        begun.elapsed() > Duration::from_millis(1_500),
        "{:?}",
        begun.elapsed()
    );
    redis.resume()?;
    Ok(())
}

/// Sends that many requests whose bodies do not end.
async fn half_sent(
    gate: &Gate,
    count: usize,
    path: &str,
    credential: &str,
) -> Result<Vec<TcpStream>> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\n{credential}X-Agent-ID: web\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{"
    );
    let halves = (0..count).map(async |_| {
        let mut half = TcpStream::connect(gate.address()?).await?;
        half.write_all(head.as_bytes()).await?;
        Ok::<_, anyhow::Error>(half)
    });
    try_join_all(halves).await
}

#[tokio::test]
async fn every_request_takes_a_place_of_its_key_and_others_have_their_own() -> Result<()> {
    let gate = Gate::start().await?;
    let busy = gate.key("agent", "web", &[]).await?;
    let other = gate.key("agent", "api", &[]).await?;
    let credential = format!("Authorization: Bearer {busy}\r\n");
    let _halves = half_sent(&gate, CALLS_PER_KEY, "/api/v1/messages", &credential).await?;
    ask(&gate, "GET", "/api/v1/me", Some(&other), None, "").await?;
    let status = async |method: &'static str, path: &'static str, key: &str| {
        let answer = ask(&gate, method, path, Some(key), None, "").await;
        answer.map_or(0, |answer| answer.status)
    };
    for (method, path, expected) in [
        ("GET", "/q", 200),
        ("GET", "/nowhere", 404),
        ("DELETE", "/api/v1/me", 405),
        ("GET", "/api/openapi.json", 200),
        ("GET", "/api/v1/me", 200),
        ("POST", "/mcp", 415),
    ] {
        let answered = tokio::join!(status(method, path, &busy), status(method, path, &other));
        assert_eq!(answered, (429, expected), "{method} {path}");
    }
    // Upgrades have places of their own, which no body holds.
    assert_eq!(status("GET", "/acp", &busy).await, 400);
    linked(&gate, &busy, "web").await?;
    Ok(())
}

#[tokio::test]
async fn a_request_that_is_refused_before_its_place_takes_one() -> Result<()> {
    let gate = Gate::start_with(|config| config.is_open = true).await?;
    let key = gate.key("agent", "web", &[]).await?;
    let credential = format!("Authorization: Bearer {key}\r\n");
    let refused = format!(
        "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n{credential}\r\n"
    );
    let status = async || {
        http::request(gate.address()?, &refused)
            .await
            .map(|a| a.status)
    };
    assert_eq!(status().await?, 403);
    let _halves = half_sent(&gate, CALLS_PER_KEY, "/api/v1/messages", &credential).await?;
    ask(&gate, "GET", "/api/v1/me", None, None, "").await?;
    assert_eq!(status().await?, 429);
    Ok(())
}

#[tokio::test]
async fn codes_that_come_slowly_keep_no_stranger_waiting() -> Result<()> {
    let gate = Gate::start().await?;
    let _halves = half_sent(&gate, 40, "/api/join", "").await?;
    let begun = Instant::now();
    let pages = (0..20).map(|_| ask(&gate, "GET", "/q", None, None, ""));
    for page in join_all(pages).await {
        assert_eq!(page?.status, 200);
    }
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    Ok(())
}
