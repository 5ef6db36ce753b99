//! Events: every change once and in order, whatever happens to the reader, and only to those who may see it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_shared::audit::{Entry, Event};
use c3po_shared::limits::{AUDIT_ENTRIES, EVENT_READERS_PER_KEY};
use c3po_shared::time::Timestamp;
use futures_util::StreamExt;
use harness::dice::Dice;
use harness::eventually::eventually;
use harness::http;
use harness::link::{Link, Who};
use harness::redis::Redis;
use harness::sse::EventSource;
use inside::gate::Gate;
use inside::served::Served;
use serde_json::{Value, json};
use tokio::time::timeout;

/// How long an operation may take that should be quick, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(20);
const PATH: &str = "/api/v1/events";

async fn served(redis: Option<&Redis>) -> Result<Served> {
    let address = redis.map(|redis| redis.url().parse()).transpose()?;
    Served::start_with(|config| {
        config.store = address.unwrap_or_else(|| config.store.clone());
        // As by default: a reader that comes back late misses nothing.
        config.audit_entries = Some(AUDIT_ENTRIES);
    })
    .await
}

fn numbered(number: u64) -> Entry {
    Entry::new(Event::Accepted).verb(number.to_string())
}

/// Appends entries in batches of any size, with pauses.
async fn produce(served: &Served, count: u64, mut dice: Dice) -> Result<()> {
    let mut next = 0;
    while next < count {
        let size = 1 + dice.below(60) as u64;
        let batch: Vec<Entry> = (next..(next + size).min(count)).map(numbered).collect();
        next += size;
        served.store.note(&batch).await?;
        tokio::time::sleep(dice.millis(0, 12)).await;
    }
    Ok(())
}

async fn check_cuts(served: &Served, seed: u64) -> Result<()> {
    const COUNT: u64 = 10_000;
    const CUTS: u64 = 50;
    let address: SocketAddr = served.address.parse()?;
    let mut dice = Dice::new(seed);
    let mut source = EventSource::open(address, &format!("{PATH}?after=0"), "").await?;
    let read = async {
        let (mut verbs, mut cuts) = (Vec::new(), 0);
        let mut until_cut = dice.below(2 * (COUNT / CUTS) as usize);
        while (verbs.len() as u64) < COUNT {
            let event = source.next().await?;
            assert_eq!(event.event, "accepted", "{event:?}");
            let data: Value = serde_json::from_str(&event.data)?;
            assert_eq!(data["position"], json!(event.id));
            verbs.push(data["verb"].as_str().unwrap_or_default().parse::<u64>()?);
            if until_cut == 0 {
                cuts += 1;
                until_cut = dice.below(2 * (COUNT / CUTS) as usize);
                let header = format!("Last-Event-ID: {}\r\n", event.id);
                source = EventSource::open(address, PATH, &header).await?;
            }
            until_cut -= usize::from(until_cut > 0);
        }
        anyhow::Ok((verbs, cuts))
    };
    let (produced, read) = tokio::join!(produce(served, COUNT, Dice::of(seed, 1)), read);
    produced?;
    let (verbs, cuts) = read?;
    assert!(verbs.iter().copied().eq(0..COUNT), "seed {seed}: {verbs:?}");
    assert!(cuts >= CUTS / 2, "{cuts} cuts");
    Ok(())
}

#[tokio::test]
async fn a_reader_that_is_cut_off_50_times_gets_10_000_events_once_and_in_order_with_sqlite()
-> Result<()> {
    check_cuts(&served(None).await?, 7).await
}

#[tokio::test]
async fn a_reader_that_is_cut_off_50_times_gets_10_000_events_once_and_in_order_with_redis()
-> Result<()> {
    let redis = Redis::start().await?;
    check_cuts(&served(Some(&redis)).await?, 8).await
}

#[tokio::test]
async fn a_slow_reader_costs_others_nothing() -> Result<()> {
    let served = served(None).await?;
    let address: SocketAddr = served.address.parse()?;
    // It reads nothing but the head.
    let _slow = EventSource::open(address, &format!("{PATH}?after=0"), "").await?;
    let mut quick = EventSource::open(address, &format!("{PATH}?after=0"), "").await?;
    let (produced, read) = tokio::join!(produce(&served, 20_000, Dice::new(3)), async {
        for _ in 0..20_000 {
            quick.next().await?;
        }
        anyhow::Ok(())
    });
    produced?;
    read
}

#[tokio::test]
async fn an_event_is_read_soon_after_its_commit_whichever_coordinator_committed_it() -> Result<()> {
    let redis = Redis::start().await?;
    let (one, other) = (served(Some(&redis)).await?, served(Some(&redis)).await?);
    let mut source = EventSource::open(other.address.parse()?, PATH, "").await?;
    let (mut a, _b) = (one.join("a").await?, one.join("b").await?);
    a.call("send_message", json!({"target": "b", "message": "hi"}))
        .await?;
    let seen = async {
        loop {
            let event = source.next().await?;
            if event.event == "accepted" {
                return anyhow::Ok(event);
            }
        }
    };
    let event = timeout(Duration::from_secs(5), seen).await??;
    let entry: Entry = serde_json::from_str(&event.data)?;
    assert!(Timestamp::now().since(entry.at) < Duration::from_secs(5));
    Ok(())
}

#[tokio::test]
async fn a_stream_begins_with_the_state_if_asked_and_then_has_the_changes_after_it() -> Result<()> {
    let served = served(None).await?;
    let mut links = Vec::new();
    for number in 0..120 {
        links.push(served.join(&format!("agent-{number:03}")).await?);
    }
    let mut source =
        EventSource::open(served.address.parse()?, &format!("{PATH}?state=1"), "").await?;
    let mut agents = Vec::new();
    loop {
        let part = source.next().await?;
        assert_eq!(part.event, "state");
        let part: Value = serde_json::from_str(&part.data)?;
        agents.extend(part["agents"].as_array().cloned().unwrap_or_default());
        if part["more"] == false {
            break;
        }
    }
    assert_eq!(agents.len(), 120);
    links[3].notify("goodbye", json!({})).await?;
    let end = loop {
        let event = source.next().await?;
        if event.event == "session_ended" {
            break event;
        }
    };
    assert!(end.data.contains("agent-003"), "{end:?}");
    Ok(())
}

#[tokio::test]
async fn a_reader_behind_the_log_is_reset_and_continues() -> Result<()> {
    let served = Served::start_with(|config| config.audit_entries = Some(100)).await?;
    let address: SocketAddr = served.address.parse()?;
    // The log is begun before anything is served.
    http::get(address, "/api/health").await?;
    let entries: Vec<Entry> = (0..1_000).map(numbered).collect();
    served.store.note(&entries).await?;
    served.store.keep_log(Some(100)).await?;
    let mut behind = EventSource::open(address, PATH, "Last-Event-ID: 5\r\n").await?;
    let reset = behind.next().await?;
    assert_eq!((reset.event.as_str(), reset.id), ("reset", 900));
    assert_eq!(behind.next().await?.id, 901);
    // Behind the end of a log that was replaced by an older one.
    let mut beyond = EventSource::open(address, PATH, "Last-Event-ID: 5000\r\n").await?;
    assert_eq!(beyond.next().await?.event, "reset");
    served.store.note(&entries[..1]).await?;
    assert_eq!(beyond.next().await?.id, 1_001);
    let refused = EventSource::open(address, PATH, "Last-Event-ID: x\r\n").await;
    assert!(refused.is_err_and(|error| error.to_string().contains("400")));
    Ok(())
}

#[tokio::test]
async fn a_key_reads_the_events_of_its_agents_and_its_stream_ends_with_it() -> Result<()> {
    let gate = Gate::start().await?;
    let web = gate.key("agent", "web", &[]).await?;
    let api = gate.key("agent", "api,cam", &[]).await?;
    let operator = gate.key("operator", "*", &[]).await?;
    let address: SocketAddr = gate.served.address.parse()?;
    let open = async |key: &str| {
        EventSource::open(address, PATH, &format!("Authorization: Bearer {key}\r\n")).await
    };
    assert!(EventSource::open(address, PATH, "").await.is_err());
    let (mut of_web, mut of_all) = (open(&web).await?, open(&operator).await?);
    let (mut one, mut two) = (
        super::access::linked(&gate, &api, "api").await?,
        super::access::linked(&gate, &api, "cam").await?,
    );
    one.call(
        "send_message",
        json!({"target": "cam", "message": "a secret"}),
    )
    .await?;
    let mut own = super::access::linked(&gate, &web, "web").await?;
    two.call(
        "send_message",
        json!({"target": "web", "message": "for web"}),
    )
    .await?;
    own.call("ping", json!({})).await?;
    let to_web = |data: &str| data.contains("\"to\":\"web\"");
    let sent = async |source: &mut EventSource| -> Result<Vec<String>> {
        let mut found = Vec::new();
        loop {
            let event = source.next().await?;
            if event.event == "accepted" {
                found.push(event.data);
                if found.last().is_some_and(|data| to_web(data)) {
                    return Ok(found);
                }
            }
        }
    };
    let (few, all) = (sent(&mut of_web).await?, sent(&mut of_all).await?);
    assert_eq!((few.len(), all.len()), (1, 2), "{few:?} {all:?}");
    assert!(!few.concat().contains("secret") && !all.concat().contains("secret"));
    gate.revoke(&web).await?;
    of_web.ends().await?;
    assert!(open(&web).await.is_err());
    Ok(())
}

#[tokio::test]
async fn one_key_cannot_take_all_readers() -> Result<()> {
    let gate = Gate::start().await?;
    let address: SocketAddr = gate.served.address.parse()?;
    let (one, other) = (
        gate.key("agent", "a", &[]).await?,
        gate.login("person").await?,
    );
    let open = async |key: &str| {
        EventSource::open(address, PATH, &format!("Authorization: Bearer {key}\r\n")).await
    };
    let mut streams = Vec::new();
    for _ in 0..EVENT_READERS_PER_KEY {
        streams.push(open(&one).await?);
    }
    let refused = format!("{:#}", open(&one).await.expect_err("one more"));
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    let _of_other = open(&other).await?;
    streams.pop();
    eventually("its place is free", SOON, async || open(&one).await.ok()).await?;
    Ok(())
}

#[tokio::test]
async fn a_key_that_reads_the_log_again_and_again_waits_before_its_next_stream() -> Result<()> {
    const ROUNDS: usize = 5;
    const EACH: usize = EVENT_READERS_PER_KEY - 1;
    let gate = Gate::start().await?;
    let address: SocketAddr = gate.served.address.parse()?;
    let (one, other) = (
        gate.key("operator", "a", &[]).await?,
        gate.login("person").await?,
    );
    produce(&gate.served, 1_000, Dice::new(1)).await?;
    let path = format!("{PATH}?after=0&event=accepted");
    let open = async |key: &str| -> Result<(EventSource, Duration)> {
        let began = Instant::now();
        let headers = format!("Authorization: Bearer {key}\r\n");
        let source = EventSource::open(address, &path, &headers).await?;
        Ok((source, began.elapsed()))
    };
    let mut waited = Duration::ZERO;
    for _ in 0..ROUNDS {
        let mut streams = Vec::new();
        for _ in 0..EACH {
            let (mut source, time) = open(&one).await?;
            waited += time;
            source.next().await?;
            streams.push(source);
        }
    }
    ensure!(waited >= Duration::from_millis(500), "{waited:?}");
    let mut shortest = waited;
    for _ in 0..ROUNDS {
        shortest = shortest.min(open(&other).await?.1);
    }
    let usual = waited.div_f64((ROUNDS * EACH) as f64);
    ensure!(shortest < usual, "another one waited {shortest:?}");
    Ok(())
}

#[tokio::test]
async fn a_page_of_events_has_the_envelope_of_rest_v1() -> Result<()> {
    let served = served(None).await?;
    let address: SocketAddr = served.address.parse()?;
    let (mut a, _b) = (served.join("a").await?, served.join("b").await?);
    a.call("send_message", json!({"target": "b", "message": "hi"}))
        .await?;
    let page = async |query: &str| -> Result<Value> {
        let answer = http::get(address, &format!("{PATH}?{query}")).await?;
        Ok(serde_json::from_str(&answer.body)?)
    };
    let first = page("event=accepted&agent=b").await?;
    assert_eq!(first["data"]["entries"][0]["to"], "b", "{first}");
    assert_eq!(first["data"]["complete"], true);
    assert_eq!(first["meta"]["request_id"].as_str().map(str::len), Some(36));
    assert!(first["meta"]["timestamp"].is_string());
    assert_eq!(page("event=denied").await?["data"]["entries"], json!([]));
    assert_eq!(page("colour=red").await?["code"], "INVALID_REQUEST");
    Ok(())
}

#[tokio::test]
async fn a_subscriber_of_redis_gets_the_messages_of_the_first_description_of_the_protocols()
-> Result<()> {
    let redis = Redis::start().await?;
    let served = served(Some(&redis)).await?;
    let client = redis::Client::open(redis.url())?;
    let mut subscriber = client.get_async_pubsub().await?;
    subscriber.psubscribe("c3po:*").await?;
    let mut a = served.join("a").await?;
    let known = a.call("list_agents", json!({})).await?;
    let uid = known["agents"][0]["uid"].as_str().unwrap_or_default();
    a.call("set_status", json!({"status": "ready"})).await?;
    a.call("set_status", json!({"status": "busy"})).await?;
    a.call("broadcast", json!({"message": "say \"hi\"\n"}))
        .await?;
    let (mut found, mut messages) = (Vec::new(), subscriber.on_message());
    let read = async {
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload()?;
            found.push((
                message.get_channel_name().to_owned(),
                serde_json::from_str::<Value>(&text)?,
            ));
            if message.get_channel_name() == "c3po:broadcast" {
                break;
            }
        }
        anyhow::Ok(())
    };
    timeout(SOON, read).await??;
    let busy = found
        .iter()
        .filter(|(_, message)| message["new_state"] == "busy")
        .collect::<Vec<_>>();
    let channels: Vec<&str> = busy.iter().map(|(channel, _)| channel.as_str()).collect();
    assert_eq!(channels, ["c3po:status", &format!("c3po:status:{uid}")]);
    let mut message = busy[0].1.clone();
    let stamp = message["timestamp"].take();
    assert!(
        stamp
            .as_str()
            .is_some_and(|at| at.parse::<Timestamp>().is_ok()),
        "{stamp}"
    );
    assert_eq!(
        message,
        json!({
            "type": "agent_status_change", "agent_id": uid, "agent_name": "a", "old_state": "ready",
            "new_state": "busy", "timestamp": null,
        })
    );
    let (_, mut message) = found
        .iter()
        .find(|(channel, _)| channel == "c3po:broadcast")
        .cloned()
        .unwrap_or_default();
    message["timestamp"].take();
    assert_eq!(
        message,
        json!({"type": "broadcast", "from": uid, "message": "say \"hi\"\n", "timestamp": null})
    );
    Ok(())
}

#[tokio::test]
async fn a_key_sees_the_messages_of_the_agents_of_its_own_host_alone() -> Result<()> {
    let gate = Gate::start().await?;
    let mut keys = Vec::new();
    for (host, name) in [("here", "web"), ("there", "web-2")] {
        let key = gate.key("agent", "web*", &["--host", host]).await?;
        let mut link = Link::open_with(&gate.served.address, Some(&key)).await?;
        let who = Who {
            more: json!({"host": host}),
            ..Who::new(name)
        };
        ensure!(link.hello(&who).await?.is_ok(), "{name} was refused");
        let notice = json!({"target": "human", "message": "news", "requires_response": false});
        link.call("send_message", notice).await?;
        keys.push((key, name));
    }
    for (key, name) in keys {
        let address = gate.address()?;
        let request = format!(
            "GET {PATH}?after=0&event=accepted HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n\
             Connection: close\r\n\r\n"
        );
        let answer = http::request(address, &request).await?;
        let page: Value = serde_json::from_str(&answer.body)?;
        let entries = page["data"]["entries"].as_array().context("entries")?;
        let senders: Vec<_> = entries.iter().map(|entry| &entry["agent"]).collect();
        assert_eq!(senders, [name]);
        let headers = format!("Authorization: Bearer {key}\r\n");
        let mut source = EventSource::open(address, &format!("{PATH}?after=0"), &headers).await?;
        loop {
            let event = source.next().await?;
            let entry: Entry = serde_json::from_str(&event.data)?;
            if event.event == "accepted" {
                assert_eq!(entry.agent, Some(name.parse()?));
                break;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_stream_passes_over_thousands_of_entries_that_it_may_not_see_with_sqlite() -> Result<()> {
    passes_over(Gate::start().await?).await
}

#[tokio::test]
async fn a_stream_passes_over_thousands_of_entries_that_it_may_not_see_with_redis() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    passes_over(Gate::start_with(|config| config.store = store).await?).await
}

async fn passes_over(gate: Gate) -> Result<()> {
    let key = gate.key("agent", "web", &[]).await?;
    let headers = format!("Authorization: Bearer {key}\r\n");
    let open = async |more: &str| {
        EventSource::open(gate.address()?, PATH, &format!("{headers}{more}")).await
    };
    let before = gate.served.store.audit_end().await?;
    let live = open("").await?;
    let denied: Vec<Entry> = (0..5_000).map(|_| Entry::new(Event::Denied)).collect();
    // More entries of a Redis stream than are read at once.
    for some in denied.chunks(5) {
        gate.served.store.note(some).await?;
    }
    let mut link = Link::open_with(&gate.served.address, Some(&key)).await?;
    ensure!(
        link.hello(&Who::new("web")).await?.is_ok(),
        "it was refused"
    );
    let notice = json!({"target": "human", "message": "news", "requires_response": false});
    link.call("send_message", notice).await?;
    let continued = open(&format!("Last-Event-ID: {before}\r\n")).await?;
    for mut source in [live, continued] {
        let accepted = async {
            while source.next().await?.event != "accepted" {}
            anyhow::Ok(())
        };
        timeout(Duration::from_secs(5), accepted).await??;
    }
    Ok(())
}
