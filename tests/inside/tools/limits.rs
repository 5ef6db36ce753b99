//! Every limit, reached and exceeded; each refusal names the limit and the count, and nothing is lost.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::limits::{INBOX_MAX, PAGE_BYTES, TEXT_MAX, TITLE_MAX};
use c3po_shared::time::Timestamp;
use harness::http;
use harness::link::{Link, Who};
use inside::served::Served;
use serde_json::{Value, json};

use super::parts::Parts;
use super::{ask, each, two_agents};

async fn refused(link: &mut Link, tool: &str, arguments: Value) -> Result<Value> {
    match link.try_call(tool, arguments).await? {
        Ok(reply) => anyhow::bail!("{tool} was not refused: {reply}"),
        Err(refusal) => Ok(refusal),
    }
}

#[tokio::test]
async fn the_longest_texts_arrive_to_their_end_and_longer_ones_are_refused() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    // Control characters are the worst case: six bytes each on the wire.
    let longest = "\u{1}".repeat(TEXT_MAX);
    let title = "é".repeat(TITLE_MAX);
    let sent =
        json!({"target": "meshtastic", "message": longest, "context": longest, "title": title});
    homeassistant.call("send_message", sent).await?;
    let first = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    let mut parts = Parts::default();
    let mut rest = parts.add(&first)?;
    while let Some((tool, arguments)) = rest {
        let next = meshtastic.call(tool, arguments).await?;
        assert_eq!(next["messages"][0]["title"], title);
        rest = parts.add(&next)?;
    }
    assert!(
        parts.text == longest && parts.context == longest && first["title"] == title,
        "{} parts",
        parts.count
    );

    for (field, text, limit) in [
        ("message", "x".repeat(TEXT_MAX + 1), TEXT_MAX),
        ("title", "x".repeat(TITLE_MAX + 1), TITLE_MAX),
    ] {
        let mut arguments = json!({"target": "meshtastic", "message": "hi"});
        arguments[field] = json!(text);
        let refusal = refused(&mut homeassistant, "send_message", arguments).await?;
        assert_eq!(refusal["code"], "PAYLOAD_TOO_LARGE");
        assert_eq!(
            (&refusal["details"]["count"], &refusal["details"]["limit"]),
            (&json!(limit + 1), &json!(limit))
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_long_inbox_is_read_in_pages_of_twenty_four_thousand_bytes() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    for _ in 0..3 {
        homeassistant
            .call(
                "send_message",
                json!({"target": "meshtastic", "message": "x".repeat(11_000)}),
            )
            .await?;
    }
    let page = meshtastic.call("get_messages", json!({})).await?;
    assert_eq!(
        (each(&page["messages"], "id").len(), page["count"].as_u64()),
        (2, Some(3))
    );
    assert!(
        page.to_string().len() <= PAGE_BYTES,
        "{}",
        page.to_string().len()
    );
    let rest = meshtastic
        .call("get_messages", json!({"cursor": page["next_cursor"]}))
        .await?;
    assert_eq!(
        (each(&rest["messages"], "id").len(), rest.get("next_cursor")),
        (1, None)
    );
    Ok(())
}

#[tokio::test]
async fn a_long_thread_is_read_in_pages_of_twenty_four_thousand_bytes() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let mut last = homeassistant
        .call(
            "send_message",
            json!({"target": "meshtastic", "message": "x".repeat(11_000)}),
        )
        .await?;
    for number in 0..3 {
        let link = if number % 2 == 0 {
            &mut meshtastic
        } else {
            &mut homeassistant
        };
        last = link
            .call(
                "reply",
                json!({"message_id": last["id"], "response": "x".repeat(11_000)}),
            )
            .await?;
    }
    let (mut read, mut cursor) = (0, json!(null));
    loop {
        let mut arguments = json!({"message_id": last["id"]});
        if !cursor.is_null() {
            arguments["cursor"] = cursor;
        }
        let page = meshtastic.call("get_thread", arguments).await?;
        assert!(
            page.to_string().len() <= PAGE_BYTES,
            "{}",
            page.to_string().len()
        );
        read += each(&page["messages"], "id").len();
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(read, 4);
    for cursor in ["x", "3", "1768473000000.meshtastic"] {
        let refusal = refused(
            &mut meshtastic,
            "get_thread",
            json!({"message_id": last["id"], "cursor": cursor}),
        )
        .await?;
        assert_eq!(refusal["code"], "INVALID_REQUEST");
        assert!(refusal["error"].to_string().contains(cursor), "{refusal}");
    }
    Ok(())
}

#[tokio::test]
async fn a_full_inbox_refuses_the_sender_and_drops_nothing() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let mut begun = Vec::new();
    for number in 0..INBOX_MAX {
        let call = c3po_shared::ids::CallId::fresh();
        begun.push(
            homeassistant
                .begin(
                    call,
                    "send_message",
                    json!({"target": "meshtastic", "message": number.to_string()}),
                )
                .await?,
        );
        if begun.len() == 100 {
            for id in begun.drain(..) {
                homeassistant.end(id).await?.map_err(anyhow::Error::msg)?;
            }
        }
    }
    let refusal = refused(
        &mut homeassistant,
        "send_message",
        json!({"target": "meshtastic", "message": "one more"}),
    )
    .await?;
    assert_eq!(refusal["code"], "INBOX_FULL");
    assert_eq!(
        (&refusal["details"]["count"], &refusal["details"]["limit"]),
        (&json!(INBOX_MAX), &json!(INBOX_MAX))
    );
    let inbox = meshtastic.call("get_messages", json!({"limit": 1})).await?;
    assert_eq!(
        (
            inbox["count"].as_u64(),
            inbox["messages"][0]["message"].as_str()
        ),
        (Some(1_000), Some("0"))
    );
    meshtastic
        .call(
            "ack_messages",
            json!({"message_ids": [inbox["messages"][0]["id"]]}),
        )
        .await?;
    homeassistant
        .call(
            "send_message",
            json!({"target": "meshtastic", "message": "one more"}),
        )
        .await?;
    Ok(())
}

#[tokio::test]
async fn sends_are_limited_per_minute_and_agent() -> Result<()> {
    let served = Served::start_with(|config| config.rate_limit = Some(3)).await?;
    let (mut homeassistant, mut meshtastic) = (
        served.join("homeassistant").await?,
        served.join("meshtastic").await?,
    );
    let send = json!({"target": "meshtastic", "message": "hi"});
    for _ in 0..3 {
        homeassistant.call("send_message", send.clone()).await?;
    }
    let refusal = refused(&mut homeassistant, "send_message", send).await?;
    assert_eq!(refusal["code"], "RATE_LIMITED");
    assert_eq!(
        (&refusal["details"]["count"], &refusal["details"]["limit"]),
        (&json!(3), &json!(3))
    );
    let refusal = refused(&mut homeassistant, "broadcast", json!({"message": "hi"})).await?;
    assert_eq!(refusal["code"], "RATE_LIMITED");
    meshtastic
        .call(
            "send_message",
            json!({"target": "homeassistant", "message": "another's limit"}),
        )
        .await?;
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        3
    );
    Ok(())
}

#[tokio::test]
async fn replies_and_copies_count_against_the_limit_and_answers_to_people_do_not() -> Result<()> {
    let served = Served::start_with(|config| config.rate_limit = Some(4)).await?;
    let (mut a, mut b, _c) = (
        served.join("a").await?,
        served.join("b").await?,
        served.join("c").await?,
    );
    let (mut person, _) = Link::join_as(&served.address, &Who::person("human")).await?;
    let ask = json!({"target": "b", "message": "hi"});
    let (asked, asked_by_a_person) = (
        a.call("send_message", ask.clone()).await?,
        person.call("send_message", ask.clone()).await?,
    );
    let reply = |asked: &Value| json!({"message_id": asked["id"], "response": "hi"});
    let copies = b
        .call("broadcast", json!({"message": "three copies"}))
        .await?;
    assert_eq!(copies["recipients"], json!(["a", "c", "human"]));
    let asked_again = a.call("send_message", ask.clone()).await?;
    b.call("reply", reply(&asked)).await?;
    let refusal = refused(&mut b, "reply", reply(&asked_again)).await?;
    assert_eq!(
        (&refusal["code"], &refusal["details"]["count"]),
        (&json!("RATE_LIMITED"), &json!(4))
    );
    b.call("reply", reply(&asked_by_a_person)).await?;

    a.call("send_message", ask.clone()).await?;
    let copies = a
        .call("broadcast", json!({"message": "one is left, and all go"}))
        .await?;
    assert_eq!(copies["recipients"], json!(["b", "c", "human"]));
    let refusal = refused(&mut a, "send_message", ask).await?;
    assert_eq!(
        (&refusal["code"], &refusal["details"]["count"]),
        (&json!("RATE_LIMITED"), &json!(6))
    );
    Ok(())
}

#[tokio::test]
async fn a_session_has_so_many_calls_under_way_and_no_more() -> Result<()> {
    let (_served, _homeassistant, mut meshtastic) = two_agents().await?;
    let mut begun = Vec::new();
    for _ in 0..=c3po_shared::limits::CALLS_IN_FLIGHT {
        begun.push(
            meshtastic
                .begin(
                    c3po_shared::ids::CallId::fresh(),
                    "wait_for_message",
                    json!({"timeout": 600}),
                )
                .await?,
        );
    }
    let last = begun.pop().unwrap_or_default();
    let error = meshtastic
        .end(last)
        .await?
        .expect_err("one more than allowed");
    assert_eq!(error["data"]["code"], "RATE_LIMITED");
    assert_eq!(
        (
            &error["data"]["details"]["count"],
            &error["data"]["details"]["limit"]
        ),
        (&json!(256), &json!(256))
    );
    Ok(())
}

#[tokio::test]
async fn a_frame_that_is_too_large_ends_its_own_link_only() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let frame = "x".repeat(c3po_shared::limits::FRAME_MAX + 1);
    // The coordinator may cut the link while the frame is still being written.
    homeassistant.send_text(&frame).await.ok();
    assert!(
        homeassistant.try_call("ping", json!({})).await.is_err(),
        "the link is still there"
    );
    assert_eq!(meshtastic.call("ping", json!({})).await?["pong"], true);
    Ok(())
}

#[tokio::test]
async fn a_hello_with_control_characters_is_refused() -> Result<()> {
    let served = Served::start().await?;
    for hostile in [
        "nas\u{1b}]0;owned\u{7}",
        "nas\u{9b}31m",
        "nas\u{202e}",
        "nas\nb::a::00000001  from human",
    ] {
        for more in [
            json!({"host": hostile}),
            json!({"session_id": hostile}),
            json!({"client": {"name": hostile}}),
            json!({"client": {"name": "test", "version": hostile}}),
        ] {
            let mut link = Link::open(&served.address).await?;
            let who = Who {
                more,
                ..Who::new("homeassistant")
            };
            let refused = link
                .hello(&who)
                .await?
                .err()
                .context("it was not refused")?;
            assert_eq!(refused["data"]["code"], "INVALID_REQUEST", "{:?}", who.more);
        }
    }
    Ok(())
}

#[tokio::test]
async fn receipts_under_way_take_no_place_of_a_call() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "how many?").await?;
    for number in 0..2_000 {
        let params =
            json!({"message_ids": [question], "stage": "in_session", "via": "get_messages"});
        let receipt =
            json!({"jsonrpc": "2.0", "id": 10_000 + number, "method": "receipt", "params": params});
        meshtastic.send_text(&receipt.to_string()).await?;
    }
    assert_eq!(meshtastic.call("ping", json!({})).await?["pong"], true);
    Ok(())
}

#[tokio::test]
async fn a_page_of_pending_is_limited_in_bytes_and_has_the_whole_count() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    for _ in 0..12 {
        homeassistant
            .call(
                "send_message",
                json!({"target": "meshtastic", "message": "a".repeat(TEXT_MAX)}),
            )
            .await?;
    }
    let head = "Host: localhost\r\nConnection: close\r\nX-Agent-ID: meshtastic";
    let request = format!("GET /api/pending?limit=1000 HTTP/1.1\r\n{head}\r\n\r\n");
    let answer = http::request(served.address.parse()?, &request).await?;
    let page: Value = serde_json::from_str(&answer.body)?;
    let shown = page["messages"].as_array().map_or(0, Vec::len);
    assert!(
        page["count"] == 12 && (1..12).contains(&shown),
        "{shown} of {}",
        page["count"]
    );
    assert!(answer.body.len() < 400_000, "{} bytes", answer.body.len());
    Ok(())
}

#[tokio::test]
async fn messages_live_as_long_as_configured_and_no_longer() -> Result<()> {
    const HOUR: u64 = 3_600;
    let served =
        Served::start_with(|config| config.message_life = Duration::from_secs(HOUR)).await?;
    let (mut asker, mut other) = (
        served.join("homeassistant").await?,
        served.join("meshtastic").await?,
    );
    let life = |message: &Value| -> Result<Duration> {
        let time = |member: &str| {
            message[member]
                .as_str()
                .unwrap_or_default()
                .parse::<Timestamp>()
        };
        Ok(time("expires_at")?.since(time("timestamp")?))
    };
    let question = |seconds: Option<u64>| match seconds {
        Some(seconds) => json!({"target": "meshtastic", "message": "hi", "expires_in": seconds}),
        None => json!({"target": "meshtastic", "message": "hi"}),
    };
    for (wished, expected) in [(None, HOUR), (Some(HOUR), HOUR), (Some(60), 60)] {
        let sent = asker.call("send_message", question(wished)).await?;
        assert_eq!(life(&sent)?, Duration::from_secs(expected), "{wished:?}");
    }
    for wished in [HOUR + 1, 40 * 24 * HOUR] {
        let refusal = refused(&mut asker, "send_message", question(Some(wished))).await?;
        assert_eq!(
            (&refusal["code"], &refusal["details"]["count"]),
            (&json!("INVALID_REQUEST"), &json!(wished))
        );
    }
    let refusal = refused(&mut asker, "send_message", question(Some(HOUR + 1))).await?;
    assert_eq!(refusal["details"]["limit"], json!(HOUR));
    let sent = asker.call("send_message", question(None)).await?;
    let reply = other
        .call("reply", json!({"message_id": sent["id"], "response": "ho"}))
        .await?;
    assert_eq!(life(&reply)?, Duration::from_secs(HOUR));
    Ok(())
}

#[tokio::test]
async fn a_wait_over_http_keeps_only_a_small_request() -> Result<()> {
    let served = Served::start().await?;
    let address = served.address.parse()?;
    let headers = [
        ("X-Agent-ID", "web"),
        ("Accept", "application/json, text/event-stream"),
    ];
    let ask = async |id: &str, tool: &str, meta: Value| {
        let params = json!({"name": tool, "arguments": {}, "_meta": meta});
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
            .to_string();
        let answer = http::post(address, "/mcp", &headers, &body).await?;
        anyhow::Ok(
            serde_json::from_str::<Value>(&answer.body)?["result"]["structuredContent"]["code"]
                .clone(),
        )
    };
    assert_eq!(
        ask("1", "ping", json!({"values": vec![0; 400]})).await?,
        Value::Null
    );
    assert_eq!(
        ask("1", "wait_for_message", json!({"values": vec![0; 400]})).await?,
        "PAYLOAD_TOO_LARGE"
    );
    assert_eq!(
        ask(&"1".repeat(5_000), "wait_for_message", json!({})).await?,
        "PAYLOAD_TOO_LARGE"
    );
    Ok(())
}
