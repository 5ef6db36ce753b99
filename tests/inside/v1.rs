//! REST v1: envelopes, request ids, rate headers, idempotency and the calls of the tools.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::eventually::eventually;
use harness::http::{self, Answer};
use inside::served::Served;
use serde_json::{Value, json};

/// How long an operation may take that should be quick, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(10);
/// The id of a request.
const REQUEST: &str = "0f0e0d0c-0b0a-4908-8706-050403020100";

async fn post(
    served: &Served,
    path: &str,
    headers: &[(&str, &str)],
    body: Value,
) -> Result<(Answer, Value)> {
    let address: SocketAddr = served.address.parse()?;
    let answer = http::post(address, path, headers, &body.to_string()).await?;
    let read = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    Ok((answer, read))
}

async fn get(served: &Served, path: &str, headers: &str) -> Result<(Answer, Value)> {
    let address: SocketAddr = served.address.parse()?;
    let text =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    let answer = http::request(address, &text).await?;
    let read = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    Ok((answer, read))
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let lines = answer.head.lines().filter_map(|line| line.split_once(": "));
    lines
        .into_iter()
        .find(|(found, _)| found.eq_ignore_ascii_case(name))
        .map(|(_, value)| value)
}

#[tokio::test]
async fn a_question_is_sent_answered_and_read_over_rest() -> Result<()> {
    let served = Served::start_with(|config| config.rate_limit = Some(200)).await?;
    let mut b = served.join("b").await?;
    let question = json!({"target": "b", "message": "how?"});
    let (answer, sent) = post(&served, "/api/v1/messages", &[], question).await?;
    assert_eq!(answer.status, 201, "{sent}");
    assert_eq!(sent["data"]["from_agent"], "human");
    assert_eq!(sent["data"]["receipt"]["stage"], "stored");
    assert_eq!(header(&answer, "x-ratelimit-limit"), Some("200"));
    assert_eq!(header(&answer, "x-ratelimit-remaining"), Some("199"));
    assert!(header(&answer, "x-ratelimit-reset").is_some_and(|at| at.len() == 10));
    let id = sent["data"]["id"].as_str().unwrap_or_default().to_owned();
    b.call(
        "reply",
        json!({"message_id": id, "response": "so", "requires_response": true}),
    )
    .await?;
    let person = "X-Agent-ID: human\r\n";
    let (_, receipt) = get(&served, &format!("/api/v1/messages/{id}/receipt"), person).await?;
    assert_eq!(receipt["data"]["stage"], "answered", "{receipt}");
    let (_, inbox) = get(&served, "/api/v1/messages?kind=reply", person).await?;
    assert_eq!(inbox["data"]["messages"][0]["response"], "so", "{inbox}");
    let reply = inbox["data"]["messages"][0]["id"]
        .as_str()
        .unwrap_or_default();
    let path = format!("/api/v1/messages/{reply}/reply");
    let (answer, again) = post(&served, &path, &[], json!({"response": "thanks"})).await?;
    assert_eq!(
        (answer.status, &again["data"]["reply_to"]),
        (201, &json!(reply)),
        "{again}"
    );
    let (_, thread) = get(&served, &format!("/api/v1/threads/{id}"), person).await?;
    assert_eq!(thread["data"]["messages"].as_array().map(Vec::len), Some(3));
    Ok(())
}

#[tokio::test]
async fn agents_and_their_mail_are_read_and_acknowledged_over_rest() -> Result<()> {
    let served = Served::start().await?;
    let mut b = served.join("b").await?;
    post(
        &served,
        "/api/v1/messages",
        &[],
        json!({"target": "b", "message": "news", "requires_response": false}),
    )
    .await?;
    // A session that holds its name does not hinder a monitor that only reads.
    let (_, of_b) = get(&served, "/api/v1/messages", "X-Agent-ID: b\r\n").await?;
    assert_eq!(of_b["data"]["count"], 1, "{of_b}");
    let (answer, refused) = post(
        &served,
        "/api/v1/messages",
        &[("X-Agent-ID", "b")],
        json!({"target": "b", "message": "x"}),
    )
    .await?;
    assert_eq!((answer.status, &refused["code"]), (409, &json!("CONFLICT")));
    let news = of_b["data"]["messages"][0]["id"].clone();
    let (_, all) = get(&served, "/api/v1/agents?status=online", "").await?;
    assert_eq!(all["data"]["agents"][0]["id"], "b", "{all}");
    let (_, one) = get(&served, "/api/v1/agents/b", "").await?;
    assert_eq!(one["data"]["pending"], 1, "{one}");
    b.notify("goodbye", json!({})).await?;
    let ids = json!({"message_ids": [news]});
    let acked = eventually("the session has ended", SOON, async || {
        let path = "/api/v1/messages/acknowledge";
        let headers = [("X-Agent-ID", "b"), ("X-Agent-Host", "testhost")];
        let (answer, acked) = post(&served, path, &headers, ids.clone()).await.ok()?;
        (answer.status == 200).then_some(acked)
    })
    .await?;
    assert_eq!(acked["data"]["acked"][0], news, "{acked}");
    let (answer, copies) = post(
        &served,
        "/api/v1/broadcasts",
        &[],
        json!({"message": "all"}),
    )
    .await?;
    assert_eq!(
        (answer.status, &copies["data"]["recipients"]),
        (201, &json!(["b"])),
        "{copies}"
    );
    Ok(())
}

#[tokio::test]
async fn a_repeated_request_with_the_same_key_sends_once() -> Result<()> {
    let served = Served::start().await?;
    served.join("b").await?;
    let key = [("Idempotency-Key", "one")];
    let body = || json!({"target": "b", "message": "once"});
    let (_, first) = post(&served, "/api/v1/messages", &key, body()).await?;
    let (answer, second) = post(&served, "/api/v1/messages", &key, body()).await?;
    assert_eq!(
        (answer.status, &second["data"]["id"]),
        (201, &first["data"]["id"]),
        "{second}"
    );
    let other = json!({"target": "b", "message": "another text"});
    let (answer, refused) = post(&served, "/api/v1/messages", &key, other.clone()).await?;
    assert_eq!(
        (answer.status, &refused["code"]),
        (409, &json!("CONFLICT")),
        "{refused}"
    );
    let fresh = [("Idempotency-Key", "two")];
    let (_, third) = post(&served, "/api/v1/messages", &fresh, other).await?;
    assert_ne!(third["data"]["id"], first["data"]["id"]);
    let long = "k".repeat(201);
    let (answer, _) = post(
        &served,
        "/api/v1/messages",
        &[("Idempotency-Key", &long)],
        body(),
    )
    .await?;
    assert_eq!(answer.status, 400);
    let (_, inbox) = get(&served, "/api/v1/messages", "X-Agent-ID: b\r\n").await?;
    assert_eq!(inbox["data"]["count"], 2, "{inbox}");
    Ok(())
}

#[tokio::test]
async fn results_and_errors_name_their_request() -> Result<()> {
    let served = Served::start_with(|config| config.is_open = false).await?;
    let id = format!("X-Request-Id: {REQUEST}\r\n");
    let (answer, refused) = get(&served, "/api/v1/agents", &id).await?;
    assert_eq!(
        (answer.status, &refused["code"]),
        (401, &json!("UNAUTHORIZED"))
    );
    assert_eq!(refused["meta"]["request_id"], REQUEST, "{refused}");
    assert_eq!(header(&answer, "x-request-id"), Some(REQUEST));
    let (answer, refused) =
        get(&served, "/api/v1/nowhere", "X-Request-Id: none of ours\r\n").await?;
    assert_eq!(answer.status, 404);
    assert_eq!(
        refused["meta"]["request_id"].as_str().map(str::len),
        Some(36),
        "{refused}"
    );
    let (answer, _) = get(&served, "/api/agents", "").await?;
    assert_eq!(
        header(&answer, "x-request-id"),
        None,
        "older paths stay as they are"
    );
    let open = Served::start().await?;
    let (answer, policy) = get(&open, "/api/v1/policy", &id).await?;
    assert_eq!(answer.status, 200);
    assert!(
        policy["data"]["rules"].is_number() && policy["meta"]["request_id"] == REQUEST,
        "{policy}"
    );
    let (answer, refused) = post(&open, "/api/v1/messages", &[], json!({"target": 7})).await?;
    assert_eq!(
        (answer.status, &refused["code"]),
        (400, &json!("INVALID_REQUEST"))
    );
    Ok(())
}

#[tokio::test]
async fn values_that_the_description_excludes_are_refused() -> Result<()> {
    let served = Served::start().await?;
    for path in ["/api/v1/audit", "/api/v1/events", "/api/audit"] {
        let (answer, page) = get(&served, &format!("{path}?state=1"), "").await?;
        assert_eq!(answer.status, 200, "{page}");
        let (answer, refusal) = get(&served, &format!("{path}?state=2"), "").await?;
        assert_eq!(answer.status, 400, "{refusal}");
    }
    let human = json!({"agent_id": "human"});
    let (answer, refusal) = post(&served, "/api/agents/remove", &[], human).await?;
    assert_eq!(
        (answer.status, &refusal["code"]),
        (404, &json!("AGENT_NOT_FOUND")),
        "{refusal}"
    );
    // Its values would take a hundred times as much memory as its text, and as long to parse as many short requests.
    let many = json!({"target": 7, "message": "x", "more": vec![0; 2_000]});
    let (answer, refusal) = post(&served, "/api/v1/messages", &[], many).await?;
    assert_eq!(
        (answer.status, &refusal["code"]),
        (413, &json!("PAYLOAD_TOO_LARGE")),
        "{refusal}"
    );
    Ok(())
}

#[tokio::test]
async fn the_oldest_messages_of_an_inbox_are_read_whole_and_in_order() -> Result<()> {
    let served = Served::start().await?;
    let _b = served.join("b").await?;
    // Together they are longer than one part, and one of them is so alone.
    let lengths = [9_000, 9_000, 9_000, 60_000, 100, 9_000, 9_000, 150_000, 100];
    for length in lengths {
        let message = "x".repeat(length);
        let message = json!({"target": "b", "message": message, "requires_response": false});
        post(&served, "/api/v1/messages", &[], message).await?;
    }
    let lengths_of = async |limit: usize| {
        let path = format!("/api/pending?limit={limit}");
        let (_, inbox) = get(&served, &path, "X-Agent-ID: b\r\n").await?;
        let messages = inbox["messages"].as_array().cloned().unwrap_or_default();
        let length = |one: &Value| one["message"].as_str().unwrap_or_default().len();
        anyhow::Ok(messages.iter().map(length).collect::<Vec<_>>())
    };
    assert_eq!(lengths_of(1_000).await?, lengths);
    assert_eq!(lengths_of(5).await?, lengths[..5]);
    Ok(())
}
