//! Questions to people over REST: how far they got, and answers that are sent again.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use c3po_coordinator::config::StoreAddress;
use harness::http;
use harness::redis::Redis;
use inside::served::Served;
use serde_json::{Value, json};

/// Sends a request with JSON. Returns the status and the body.
async fn post(
    served: &Served,
    path: &str,
    key: Option<&str>,
    body: &Value,
) -> Result<(u16, Value)> {
    let address: SocketAddr = served.address.parse()?;
    let headers: Vec<_> = key
        .map(|key| ("Idempotency-Key", key))
        .into_iter()
        .collect();
    let answer = http::post(address, path, &headers, &body.to_string()).await?;
    Ok((answer.status, serde_json::from_str(&answer.body)?))
}

/// Starts a coordinator whose agent `web` asks people something. Returns the path of the question.
async fn asked(store: Option<&Redis>) -> Result<(Served, harness::link::Link, String)> {
    let address: Option<StoreAddress> = store.map(|redis| redis.url().parse()).transpose()?;
    let change = |config: &mut c3po_coordinator::config::Config| {
        config.store = address.unwrap_or_else(|| config.store.clone());
    };
    let served = Served::start_with(change).await?;
    let mut web = served.join("web").await?;
    let question = json!({"target": "human", "message": "Which port?", "requires_response": true});
    let sent = web.call("send_message", question).await?;
    let id = sent["id"].as_str().context("an id")?;
    let path = format!("/api/v1/questions/{id}");
    Ok((served, web, path))
}

/// A page reports each stage, and an action proves that the question was displayed.
async fn a_page_reports_stages(store: Option<&Redis>) -> Result<()> {
    for (reports, expected) in [
        (
            &["in_session"][..],
            &["stored", "on_host", "in_session"][..],
        ),
        (&["seen"], &["stored", "on_host", "in_session", "seen"]),
        (
            &["in_session", "seen", "in_session"],
            &["stored", "on_host", "in_session", "seen"],
        ),
    ] {
        let (served, _web, path) = asked(store).await?;
        let path = format!("{path}/receipt");
        let mut last = Value::Null;
        for stage in reports {
            let report = json!({"stage": stage, "via": "page"});
            let (status, body) = post(&served, &path, None, &report).await?;
            assert_eq!(status, 200, "{body}");
            last = body["data"].clone();
        }
        let steps = last["history"].as_array().context("a history")?;
        let stages: Vec<_> = steps.iter().map(|step| &step["stage"]).collect();
        assert_eq!(stages, expected, "{reports:?}");
        assert!(
            steps[1..].iter().all(|step| step["via"] == "page"),
            "{last}"
        );
        served.stop().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_page_reports_that_a_question_was_displayed_and_seen_on_sqlite() -> Result<()> {
    a_page_reports_stages(None).await
}

#[tokio::test]
async fn a_page_reports_that_a_question_was_displayed_and_seen_on_redis() -> Result<()> {
    a_page_reports_stages(Some(&Redis::start().await?)).await
}

#[tokio::test]
async fn a_page_reports_nothing_else() -> Result<()> {
    let (served, _web, path) = asked(None).await?;
    let receipt = format!("{path}/receipt");
    for (stage, via) in [
        ("answered", "page"),
        ("applied", "page"),
        ("on_host", "page"),
        ("seen", "terminal"),
    ] {
        let (status, body) = post(
            &served,
            &receipt,
            None,
            &json!({"stage": stage, "via": via}),
        )
        .await?;
        assert_eq!(
            (status, &body["code"]),
            (400, &json!("INVALID_REQUEST")),
            "{body}"
        );
    }
    let (status, body) = post(
        &served,
        &receipt,
        None,
        &json!({"stage": "x".repeat(2_000), "via": "page"}),
    )
    .await?;
    assert_eq!(status, 413, "{body}");
    let unknown = "/api/v1/questions/human::web::0000000a/receipt";
    let (status, body) = post(
        &served,
        unknown,
        None,
        &json!({"stage": "seen", "via": "page"}),
    )
    .await?;
    assert_eq!(
        (status, &body["code"]),
        (404, &json!("MESSAGE_NOT_FOUND")),
        "{body}"
    );
    Ok(())
}

/// An answer whose response was lost is sent again under its key, and is the same answer.
async fn an_answer_sent_again(store: Option<&Redis>) -> Result<()> {
    let (served, _web, path) = asked(store).await?;
    let path = format!("{path}/answer");
    let answer = json!({"parts": [{"text": "8081"}], "via": "page"});
    let (status, first) = post(&served, &path, Some("one"), &answer).await?;
    assert_eq!(status, 201, "{first}");
    let (status, again) = post(&served, &path, Some("one"), &answer).await?;
    assert_eq!(
        (status, &again["data"]["id"]),
        (201, &first["data"]["id"]),
        "{again}"
    );
    let (status, other) = post(&served, &path, Some("other"), &answer).await?;
    assert_eq!(
        (status, &other["code"]),
        (409, &json!("ALREADY_ANSWERED")),
        "{other}"
    );
    assert_eq!(other["details"]["via"], "page", "{other}");
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_sent_again_is_the_same_answer_on_sqlite() -> Result<()> {
    an_answer_sent_again(None).await
}

#[tokio::test]
async fn an_answer_that_is_sent_again_is_the_same_answer_on_redis() -> Result<()> {
    an_answer_sent_again(Some(&Redis::start().await?)).await
}
