//! Every refusal that a caller can cause, by its code.

use anyhow::Result;
use harness::link::{Link, Who};
use inside::served::Served;
use serde_json::{Value, json};

use super::{ask, two_agents};

#[tokio::test]
async fn an_unknown_target_is_an_error_with_the_nearest_names() -> Result<()> {
    let (_served, mut homeassistant, _meshtastic) = two_agents().await?;
    let refused = homeassistant
        .try_call(
            "send_message",
            json!({"target": "meshtastik", "message": "hi"}),
        )
        .await?;
    assert_eq!(
        refused,
        Err(json!({
            "error": "no agent named meshtastik", "code": "AGENT_NOT_FOUND",
            "suggestion": "Did you mean meshtastic? list_agents lists all agents.", "advice": "list_agents",
            "details": {"nearest": ["meshtastic"]},
        }))
    );
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "MESHTASTIC", "message": "hi"}),
        )
        .await?;
    assert_eq!(
        sent["to_agent"], "meshtastic",
        "case alone makes no stranger"
    );
    assert_eq!(
        homeassistant
            .refusal("get_agent_status", json!({"agent_id": "nobody"}))
            .await?,
        "AGENT_NOT_FOUND"
    );
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_away_takes_only_urgent_messages() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    meshtastic
        .call("set_status", json!({"status": "away"}))
        .await?;
    let send =
        |priority: &str| json!({"target": "meshtastic", "message": "hi", "priority": priority});
    assert_eq!(
        homeassistant.refusal("send_message", send("high")).await?,
        "AGENT_UNAVAILABLE"
    );
    homeassistant.call("send_message", send("urgent")).await?;
    Ok(())
}

#[tokio::test]
async fn the_first_answer_wins() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "who first?").await?;
    let reply = meshtastic
        .call("reply", json!({"message_id": question, "response": "me"}))
        .await?;
    let again = meshtastic
        .try_call(
            "reply",
            json!({"message_id": question, "response": "me too"}),
        )
        .await?;
    let refusal = again.expect_err("answered already");
    assert_eq!(
        (&refusal["code"], &refusal["details"]["reply_id"]),
        (&json!("ALREADY_ANSWERED"), &reply["id"])
    );
    Ok(())
}

#[tokio::test]
async fn answers_and_waits_need_a_message_of_ones_own() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "mine?").await?;
    let unknown = "homeassistant::meshtastic::00000000";
    for (tool, arguments) in [
        ("reply", json!({"message_id": unknown, "response": "x"})),
        (
            "reply",
            json!({"message_id": "meshtastic::homeassistant::00000000", "response": "x"}),
        ),
        ("get_thread", json!({"message_id": unknown})),
        ("message_status", json!({"message_id": unknown})),
        (
            "wait_for_message",
            json!({"message_id": unknown, "timeout": 1}),
        ),
    ] {
        assert_eq!(
            meshtastic.refusal(tool, arguments).await?,
            "MESSAGE_NOT_FOUND",
            "{tool}"
        );
    }
    assert_eq!(
        homeassistant
            .refusal(
                "reply",
                json!({"message_id": question, "response": "to myself"})
            )
            .await?,
        "MESSAGE_NOT_FOUND"
    );
    let wrong_way = meshtastic
        .refusal(
            "wait_for_message",
            json!({"message_id": question, "timeout": 1}),
        )
        .await?;
    assert_eq!(wrong_way, "INVALID_REQUEST");
    Ok(())
}

fn frame_with_many_values() -> String {
    let values = "0,".repeat(10_000);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":[{values}0]}}"#)
}

#[tokio::test]
async fn malformed_frames_are_answered_and_the_link_goes_on() -> Result<()> {
    let (served, mut link, _meshtastic) = two_agents().await?;
    for (text, code) in [
        ("{", -32700),
        ("[]", -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#, -32600),
        (&*frame_with_many_values(), -32600),
    ] {
        link.send_text(text).await?;
        let error = link.hear(|frame| frame["error"].is_object()).await?;
        assert_eq!(
            (error["error"]["code"].as_i64(), &error["id"]),
            (Some(code), &Value::Null),
            "{text}"
        );
    }
    let unknown = link
        .request("fly", json!({}))
        .await?
        .expect_err("no such method");
    assert_eq!(
        (unknown["code"].as_i64(), unknown["data"]["code"].as_str()),
        (Some(-32601), Some("NOT_SUPPORTED"))
    );
    let wrong = link
        .request("call", json!({"tool": "ping"}))
        .await?
        .expect_err("no call id");
    assert_eq!(
        (wrong["code"].as_i64(), wrong["data"]["code"].as_str()),
        (Some(-32602), Some("INVALID_REQUEST"))
    );
    assert_eq!(link.refusal("fly", json!({})).await?, "NOT_SUPPORTED");
    assert_eq!(
        link.refusal("send_message", json!({"target": "a b", "message": "x"}))
            .await?,
        "INVALID_REQUEST"
    );
    link.send_text(
        r#"{"jsonrpc":"2.0","id":"a text","method":"heartbeat","params":{"timestamp":"2026-01-15T10:30:00Z"}}"#,
    )
    .await?;
    let beat = link.hear(|frame| frame["id"] == "a text").await?;
    assert_eq!(beat["result"]["timestamp"], "2026-01-15T10:30:00.000Z");
    let far = json!({"timestamp": "9999-12-31T23:59:59-23:59"});
    assert!(
        link.request("heartbeat", far).await?.is_ok(),
        "the end of the calendar is no reason to stop"
    );
    assert_eq!(link.call("ping", json!({})).await?["pong"], true);
    let mut who = Who::new("talkative");
    who.more = json!({"host": "x".repeat(501)});
    let error = Link::open(&served.address)
        .await?
        .hello(&who)
        .await?
        .expect_err("a host is a name");
    assert_eq!(error["data"]["code"], "PAYLOAD_TOO_LARGE");
    Ok(())
}

#[tokio::test]
async fn a_host_can_report_neither_an_answer_nor_two_ways_of_being_seen() -> Result<()> {
    let (_served, mut link, _meshtastic) = two_agents().await?;
    let answered = link
        .request(
            "receipt",
            json!({"message_ids": [], "stage": "answered", "via": "reply"}),
        )
        .await?;
    assert_eq!(
        answered.expect_err("no host can say that")["data"]["code"],
        "INVALID_REQUEST"
    );
    let twice = json!({"message_ids": [], "stage": "seen", "via": "hook", "seen_via": "hook"});
    let twice = link
        .request("receipt", twice)
        .await?
        .expect_err("it says seen twice");
    assert_eq!(twice["data"]["code"], "INVALID_REQUEST");
    Ok(())
}

#[tokio::test]
async fn another_protocol_is_refused_with_which_side_to_update() -> Result<()> {
    let served = Served::start().await?;
    let mut link = Link::open(&served.address).await?;
    let early = link
        .request("heartbeat", json!({"timestamp": "2026-01-15T10:30:00Z"}))
        .await?;
    assert_eq!(
        early.expect_err("before hello")["data"]["code"],
        "INVALID_REQUEST"
    );
    let mut who = Who::new("homeassistant");
    who.more = json!({"protocol_version": "2.0"});
    let error = link.hello(&who).await?.expect_err("another protocol");
    assert_eq!(error["data"]["code"], "VERSION_MISMATCH");
    assert_eq!(error["data"]["suggestion"], "Update the coordinator.");
    assert_eq!(link.hear_close().await?, 4002);
    Ok(())
}

#[tokio::test]
async fn a_link_that_sends_many_frames_before_hello_is_closed() -> Result<()> {
    let served = Served::start().await?;
    let mut link = Link::open(&served.address).await?;
    // Unread frames would break the connection before its close frame arrives.
    for _ in 0..16 {
        link.send_text("").await?;
    }
    assert_eq!(link.hear_close().await?, 4002);
    Ok(())
}

#[tokio::test]
async fn clients_without_the_token_are_refused() -> Result<()> {
    let token = "a-token-of-sixteen-or-more";
    let secret = token.parse().map_err(anyhow::Error::msg)?;
    let served = Served::start_with(|config| config.token = Some(secret)).await?;
    let refused = Link::open(&served.address)
        .await
        .expect_err("no token")
        .to_string();
    assert!(refused.contains("401"), "{refused}");
    for path in ["/api/pending", "/api/agents", "/metrics", "/mcp"] {
        let answer = harness::http::get(served.address.parse()?, path).await?;
        assert_eq!(answer.status, 401, "{path}");
    }
    assert_eq!(
        harness::http::get(served.address.parse()?, "/api/health")
            .await?
            .status,
        200
    );
    Ok(())
}
