//! Error codes, limits, formats of ids, and the effect of a session id.

use anyhow::Result;
use c3po_shared::limits::{MESSAGE_LIFE, SENDS_PER_MINUTE, TEXT_MAX};
use c3po_shared::time::Timestamp;
use inside::served::Served;
use serde_json::{Value, json};

use super::{Client, two_clients};

/// Asserts that a refusal has all its members.
fn is_whole(refusal: &Value) {
    for member in ["error", "code", "suggestion"] {
        assert!(
            refusal[member]
                .as_str()
                .is_some_and(|text| !text.is_empty()),
            "{member} in {refusal}"
        );
    }
}

#[tokio::test]
async fn every_documented_error_code_is_met_with_its_suggestion() -> Result<()> {
    let served = Served::start_with(|config| config.rate_limit = Some(1)).await?;
    let homeassistant = Client::of(&served, "homeassistant")?;
    let unknown = homeassistant
        .refused("send_message", json!({"target": "nobody", "message": "hi"}))
        .await?;
    assert_eq!(unknown["code"], "AGENT_NOT_FOUND");
    assert!(
        unknown["suggestion"]
            .as_str()
            .is_some_and(|text| text.contains("list_agents")),
        "{unknown}"
    );

    // The refused send was counted: the rate limit also slows a client that guesses names.
    let limited = homeassistant
        .refused("send_message", json!({"target": "human", "message": "hi"}))
        .await?;
    assert_eq!(limited["code"], "RATE_LIMITED");
    assert!(
        limited["suggestion"]
            .as_str()
            .is_some_and(|text| text.starts_with("Wait ")),
        "{limited}"
    );

    let invalid = homeassistant
        .refused("send_message", json!({"target": "human", "message": ""}))
        .await?;
    assert_eq!(invalid["code"], "INVALID_REQUEST");

    // TIMEOUT is not an error: the call succeeds, and its reply reports that no message arrived.
    let timed_out = homeassistant
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    assert_eq!(timed_out["code"], "TIMEOUT");

    served.store.close().await;
    let (_, away) = homeassistant.rest("GET", "/api/pending").await?;
    assert_eq!(away["code"], "REDIS_UNAVAILABLE");
    [unknown, limited, invalid, away].iter().for_each(is_whole);
    assert!(timed_out["suggestion"].is_string(), "{timed_out}");
    Ok(())
}

#[tokio::test]
async fn a_rate_limit_error_names_the_count_and_the_limit() -> Result<()> {
    assert_eq!(SENDS_PER_MINUTE, 200, "the first reference had 10");
    let served = Served::start_with(|config| config.rate_limit = Some(2)).await?;
    let homeassistant = Client::of(&served, "homeassistant")?;
    for _ in 0..2 {
        homeassistant.send("human", "hi").await?;
    }
    let refusal = homeassistant
        .refused("send_message", json!({"target": "human", "message": "hi"}))
        .await?;
    assert_eq!(
        refusal["error"],
        "rate limit: 2 sends in the last 60 seconds, at most 2 are allowed; nothing was sent"
    );
    assert_eq!(
        (&refusal["details"]["count"], &refusal["details"]["limit"]),
        (&json!(2), &json!(2))
    );
    for tool in ["ping", "list_agents", "get_messages"] {
        homeassistant.call(tool, json!({})).await?;
    }
    Ok(())
}

#[tokio::test]
async fn messages_and_contexts_have_fifty_thousand_characters_and_live_a_week() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    assert_eq!(
        (TEXT_MAX, MESSAGE_LIFE.as_secs()),
        (50_000, 7 * 24 * 60 * 60),
        "the first reference had a day"
    );
    let longest = "x".repeat(TEXT_MAX);
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "meshtastic", "message": longest, "context": longest}),
        )
        .await?;
    let time = |member: &str| {
        sent[member]
            .as_str()
            .unwrap_or_default()
            .parse::<Timestamp>()
    };
    assert_eq!(time("expires_at")?.since(time("timestamp")?), MESSAGE_LIFE);
    let longer = "x".repeat(TEXT_MAX + 1);
    for arguments in [
        json!({"target": "meshtastic", "message": longer}),
        json!({"target": "meshtastic", "message": "hi", "context": longer}),
    ] {
        assert_eq!(
            homeassistant.refused("send_message", arguments).await?["code"],
            "PAYLOAD_TOO_LARGE"
        );
    }
    Ok(())
}

#[tokio::test]
async fn agent_ids_are_taken_and_refused_as_documented() -> Result<()> {
    let served = Served::start().await?;
    let longest = "a".repeat(64);
    for name in [
        "homeassistant",
        "web-frontend",
        "sensor.temp1",
        "agent_2",
        &longest,
    ] {
        let pong = Client::of(&served, name)?.call("ping", json!({})).await?;
        assert_eq!(pong["agent_id"], name);
    }
    let too_long = "a".repeat(65);
    for name in [
        "-agent",
        "_test",
        "agent with spaces",
        "agent@home",
        &too_long,
    ] {
        let refusal = Client::of(&served, name)?
            .refused("ping", json!({}))
            .await?;
        assert_eq!(refusal["code"], "INVALID_REQUEST", "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn message_ids_name_sender_and_recipient_and_end_in_eight_hexadecimal_digits() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let question = homeassistant.send("meshtastic", "hi").await?;
    let reply = meshtastic
        .call(
            "reply",
            json!({"message_id": question, "response": "hello"}),
        )
        .await?;
    for (id, stem) in [
        (question.as_str(), "homeassistant::meshtastic::"),
        (
            reply["id"].as_str().unwrap_or_default(),
            "meshtastic::homeassistant::",
        ),
    ] {
        let digits = id.strip_prefix(stem).unwrap_or_default();
        assert!(
            digits.len() == 8 && digits.chars().all(|c| c.is_ascii_hexdigit()),
            "{id}"
        );
    }
    for malformed in [
        "homeassistant::meshtastic",
        "a::b::123",
        "a::b::123456789",
        "a::b::ghijklmn",
        "abc12345",
    ] {
        for (tool, mut arguments) in [
            ("reply", json!({"response": "x"})),
            ("wait_for_message", json!({"timeout": 1})),
            ("get_thread", json!({})),
        ] {
            arguments["message_id"] = json!(malformed);
            let refusal = meshtastic.refused(tool, arguments).await?;
            assert_eq!(refusal["code"], "INVALID_REQUEST", "{tool}: {malformed}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_same_session_keeps_its_name_and_another_one_gets_a_number() -> Result<()> {
    let served = Served::start().await?;
    let name = async |session: &str| -> Result<Value> {
        let client = Client::of_session(&served, "agent", session)?;
        Ok(client.call("ping", json!({})).await?["agent_id"].clone())
    };
    assert_eq!(name("first").await?, "agent");
    assert_eq!(name("second").await?, "agent-2");
    assert_eq!(name("third").await?, "agent-3");
    for (session, expected) in [
        ("first", "agent"),
        ("second", "agent-2"),
        ("third", "agent-3"),
    ] {
        assert_eq!(name(session).await?, expected, "{session} comes back");
    }
    Ok(())
}

#[tokio::test]
async fn a_session_id_is_optional_and_two_agents_may_have_the_same() -> Result<()> {
    let (served, homeassistant, _meshtastic) = two_clients().await?;
    assert_eq!(
        homeassistant.call("ping", json!({})).await?["agent_id"],
        "homeassistant"
    );
    for agent in ["media", "printer"] {
        let pong = Client::of_session(&served, agent, "the same")?
            .call("ping", json!({}))
            .await?;
        assert_eq!(pong["agent_id"], agent);
    }
    Ok(())
}
