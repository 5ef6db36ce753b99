//! send_message, get_messages, reply.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::eventually::eventually;
use serde_json::{Value, json};

use super::{has_the_members_of, two_clients};

/// How long the record of a response may take, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn send_message_returns_the_message_and_a_receipt_instead_of_a_status() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    let mut example = json!({
        "id": "homeassistant::meshtastic::abc12345", "from_agent": "homeassistant", "to_agent": "meshtastic",
        "message": "What MQTT topics are available?", "context": "Building a sensor dashboard",
        "timestamp": "2024-01-15T10:30:00Z", "status": "pending",
    });
    let arguments = json!({
        "target": "meshtastic", "message": "What MQTT topics are available?", "context": "Building a sensor dashboard",
    });
    let sent = homeassistant.call("send_message", arguments).await?;
    let status = example
        .as_object_mut()
        .and_then(|example| example.remove("status"));
    assert_eq!(
        (status, sent.get("status")),
        (Some(json!("pending")), None),
        "`pending` would say less than it knows"
    );
    has_the_members_of(&example, &sent);
    for member in ["from_agent", "to_agent", "message", "context"] {
        assert_eq!(sent[member], example[member], "{member}");
    }
    assert_eq!(sent["receipt"]["stage"], "stored");
    Ok(())
}

#[tokio::test]
async fn send_message_refuses_unknown_targets_and_empty_messages() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    for (target, message, code) in [
        ("nobody", "hi", "AGENT_NOT_FOUND"),
        ("agent with spaces", "hi", "INVALID_REQUEST"),
        ("", "hi", "INVALID_REQUEST"),
        ("meshtastic", "", "INVALID_REQUEST"),
    ] {
        let refusal = homeassistant
            .refused(
                "send_message",
                json!({"target": target, "message": message}),
            )
            .await?;
        assert_eq!(refusal["code"], code, "{target}: {message}");
    }
    Ok(())
}

#[tokio::test]
async fn get_messages_returns_the_list_in_an_object_and_takes_nothing_out() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    assert_eq!(
        homeassistant.call("get_messages", json!({})).await?,
        json!({"messages": [], "count": 0})
    );
    let example = json!([{
        "id": "meshtastic::homeassistant::def67890", "from_agent": "meshtastic",
        "message": "Can you turn on the living room lights?", "context": "User requested via mesh network",
        "timestamp": "2024-01-15T10:29:00Z",
    }]);
    let arguments = json!({
        "target": "homeassistant", "message": "Can you turn on the living room lights?",
        "context": "User requested via mesh network",
    });
    let sent = meshtastic.call("send_message", arguments).await?;
    for _ in 0..2 {
        let inbox = homeassistant.call("get_messages", json!({})).await?;
        has_the_members_of(&example, &inbox["messages"]);
        assert_eq!(
            (&inbox["count"], &inbox["messages"][0]["id"]),
            (&json!(1), &sent["id"])
        );
        assert_eq!(inbox["messages"][0]["from_agent"], "meshtastic");
    }
    let acked = homeassistant
        .call("ack_messages", json!({"message_ids": [sent["id"]]}))
        .await?;
    assert_eq!(acked, json!({"acked": [sent["id"]], "unknown": []}));
    assert_eq!(
        homeassistant.call("get_messages", json!({})).await?["count"],
        0
    );
    Ok(())
}

#[tokio::test]
async fn reply_returns_the_reply_and_acknowledges_the_message() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let question = meshtastic
        .send("homeassistant", "Can you turn on the living room lights?")
        .await?;
    let example = json!({
        "message_id": "meshtastic::homeassistant::def67890", "from_agent": "homeassistant", "to_agent": "meshtastic",
        "response": "Done! Living room lights are now on.", "status": "success", "timestamp": "2024-01-15T10:30:15Z",
    });
    let arguments =
        json!({"message_id": question, "response": "Done! Living room lights are now on."});
    let reply = homeassistant.call("reply", arguments).await?;
    has_the_members_of(&example, &reply);
    for member in ["from_agent", "to_agent", "response", "status"] {
        assert_eq!(reply[member], example[member], "{member}");
    }
    assert_eq!(reply["message_id"], question.as_str());
    assert_eq!(
        homeassistant.call("get_messages", json!({})).await?["count"],
        0
    );
    Ok(())
}

#[tokio::test]
async fn reply_can_report_a_failure() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let question = meshtastic.send("homeassistant", "lights?").await?;
    let reply = homeassistant
        .call(
            "reply",
            json!({"message_id": question, "response": "no such light", "status": "error"}),
        )
        .await?;
    assert_eq!(reply["status"], "error");
    Ok(())
}

#[tokio::test]
async fn reply_refuses_malformed_ids_empty_responses_and_messages_that_do_not_exist() -> Result<()>
{
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let question = meshtastic.send("homeassistant", "lights?").await?;
    let check = async |id: &str, response: &str, code: &str| -> Result<Value> {
        let refusal = homeassistant
            .refused("reply", json!({"message_id": id, "response": response}))
            .await?;
        assert_eq!(refusal["code"], code, "{id}: {response}");
        Ok(refusal)
    };
    check("not an id", "yes", "INVALID_REQUEST").await?;
    check(&question, "", "INVALID_REQUEST").await?;
    // The first reference accepted any id in the right format; a reply to a missing message would have been lost.
    check(
        "meshtastic::homeassistant::00000000",
        "yes",
        "MESSAGE_NOT_FOUND",
    )
    .await?;
    Ok(())
}

#[tokio::test]
async fn messages_of_a_response_are_in_the_session_and_seen_when_a_call_names_them() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let id = homeassistant.send("meshtastic", "over HTTP").await?;
    meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    let reached = async |stages: &[&str]| {
        let tracked = homeassistant
            .call("message_status", json!({"message_id": id}))
            .await
            .ok()?;
        let history = tracked["history"].as_array()?;
        history
            .iter()
            .map(|step| step["stage"].as_str().unwrap_or_default())
            .eq(stages.iter().copied())
            .then_some(())
    };
    let shown = ["stored", "on_host", "in_session"];
    eventually("it is in the session", SOON, async || reached(&shown).await).await?;
    for other in ["ping", "list_agents", "get_messages"] {
        meshtastic.call(other, json!({})).await?;
        assert!(
            reached(&shown).await.is_some(),
            "{other} may be of the same step as the wait"
        );
    }
    meshtastic
        .call("ack_messages", json!({"message_ids": [id]}))
        .await?;
    let seen = ["stored", "on_host", "in_session", "seen"];
    ensure!(reached(&seen).await.is_some(), "the model knows its id");
    Ok(())
}
