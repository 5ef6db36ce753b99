//! The tool wait_for_message, in the three forms of the first API reference.

use anyhow::Result;
use serde_json::{Value, json};

use super::{has_the_members_of, two_clients};

/// Returns the documented result of a wait without `message_id` that timed out after `seconds`.
fn any_timeout(seconds: u64) -> Value {
    json!({
        "status": "timeout", "code": "TIMEOUT", "message": format!("No message received within {seconds} seconds"),
        "suggestion": "No messages are pending. You can continue with other work.",
    })
}

/// Asserts that a time-out has the exact texts of its example; additional members are ignored.
fn says(example: &Value, answer: &Value) {
    has_the_members_of(example, answer);
    for (member, value) in example.as_object().into_iter().flatten() {
        assert_eq!(answer[member], *value, "{member}");
    }
}

#[tokio::test]
async fn a_wait_for_anything_returns_the_message() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let example = json!({
        "id": "homeassistant::meshtastic::abc12345", "from_agent": "meshtastic",
        "message": "What MQTT topics are available?", "context": "Building a sensor dashboard",
        "timestamp": "2024-01-15T10:30:00Z",
    });
    let arguments = json!({
        "target": "meshtastic", "message": "What MQTT topics are available?", "context": "Building a sensor dashboard",
    });
    let (received, sent) = tokio::try_join!(
        meshtastic.call("wait_for_message", json!({"timeout": 8})),
        homeassistant.call("send_message", arguments),
    )?;
    has_the_members_of(&example, &received);
    assert_eq!(received["id"], sent["id"]);
    // The example has the recipient's name in `from_agent`; ours has the sender, as in the id.
    assert_eq!(received["from_agent"], "homeassistant");
    Ok(())
}

#[tokio::test]
async fn a_wait_for_anything_also_returns_replies() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let question = homeassistant.send("meshtastic", "topics?").await?;
    meshtastic
        .call(
            "reply",
            json!({"message_id": question, "response": "mesh/#"}),
        )
        .await?;
    let received = homeassistant
        .call("wait_for_message", json!({"timeout": 8}))
        .await?;
    assert_eq!(
        (&received["kind"], &received["message_id"]),
        (&json!("reply"), &json!(question))
    );
    Ok(())
}

#[tokio::test]
async fn a_wait_for_anything_reports_its_timeout() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    let answer = homeassistant
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    says(&any_timeout(1), &answer);
    assert_eq!(
        (&answer["timeout"], &answer["waited_seconds"]),
        (&json!(true), &json!(1))
    );
    Ok(())
}

#[tokio::test]
async fn a_wait_for_one_answer_returns_the_reply() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let question = homeassistant
        .send("meshtastic", "What MQTT topics are available?")
        .await?;
    let example = json!({
        "message_id": "homeassistant::meshtastic::abc12345", "from_agent": "meshtastic",
        "response": "Available topics: mesh/node/#, mesh/stat/#", "status": "success",
        "timestamp": "2024-01-15T10:30:15Z",
    });
    let arguments =
        json!({"message_id": question, "response": "Available topics: mesh/node/#, mesh/stat/#"});
    let (received, _) = tokio::try_join!(
        homeassistant.call(
            "wait_for_message",
            json!({"message_id": question, "timeout": 8})
        ),
        meshtastic.call("reply", arguments),
    )?;
    has_the_members_of(&example, &received);
    for member in ["from_agent", "response", "status"] {
        assert_eq!(received[member], example[member], "{member}");
    }
    assert_eq!(received["message_id"], question.as_str());
    Ok(())
}

#[tokio::test]
async fn a_wait_for_one_answer_reports_its_timeout() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    let question = homeassistant.send("meshtastic", "anybody?").await?;
    let answer = homeassistant
        .call(
            "wait_for_message",
            json!({"message_id": question, "timeout": 1}),
        )
        .await?;
    let example = json!({
        "status": "timeout", "code": "TIMEOUT", "message_id": question,
        "message": "No response received within 1 seconds",
        "suggestion": "The target agent may be offline or busy. Check agent status with list_agents.",
    });
    says(&example, &answer);
    Ok(())
}

#[tokio::test]
async fn a_wait_for_one_answer_needs_a_message_that_was_sent() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    for (id, code) in [
        ("malformed", "INVALID_REQUEST"),
        ("homeassistant::meshtastic::00000000", "MESSAGE_NOT_FOUND"),
    ] {
        let refusal = homeassistant
            .refused("wait_for_message", json!({"message_id": id, "timeout": 1}))
            .await?;
        assert_eq!(refusal["code"], code, "{id}");
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_for_incoming_messages_returns_the_message() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    let example = json!({
        "id": "meshtastic::homeassistant::0f199999", "from_agent": "meshtastic",
        "message": "What's the current temperature?", "context": "Sensor data request",
        "timestamp": "2024-01-15T10:31:00Z",
    });
    let arguments = json!({
        "target": "homeassistant", "message": "What's the current temperature?", "context": "Sensor data request",
    });
    let (received, sent) = tokio::try_join!(
        homeassistant.call("wait_for_message", json!({"kind": "message", "timeout": 8})),
        meshtastic.call("send_message", arguments),
    )?;
    has_the_members_of(&example, &received);
    for member in ["from_agent", "message", "context"] {
        assert_eq!(received[member], example[member], "{member}");
    }
    assert_eq!(received["id"], sent["id"]);
    Ok(())
}

#[tokio::test]
async fn a_wait_for_incoming_messages_reports_its_timeout() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    let answer = homeassistant
        .call("wait_for_message", json!({"kind": "message", "timeout": 1}))
        .await?;
    says(&any_timeout(1), &answer);
    Ok(())
}

#[tokio::test]
async fn a_wait_lasts_from_one_second_to_an_hour() -> Result<()> {
    let (_served, homeassistant, meshtastic) = two_clients().await?;
    for timeout in [0, 3_601] {
        let refusal = homeassistant
            .refused("wait_for_message", json!({"timeout": timeout}))
            .await?;
        assert_eq!(refusal["code"], "INVALID_REQUEST", "{timeout}");
    }
    meshtastic.send("homeassistant", "here already").await?;
    homeassistant
        .call("wait_for_message", json!({"timeout": 3_600}))
        .await?;
    Ok(())
}
