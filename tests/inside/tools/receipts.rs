//! Delivery stages: every stage has its evidence, and none is recorded without.

use anyhow::Result;
use c3po_shared::ids::CallId;
use harness::link::Link;
use serde_json::{Value, json};

use super::{ask, each, id, two_agents};

async fn history(link: &mut Link, message: &str) -> Result<Value> {
    Ok(link
        .call("message_status", json!({"message_id": message}))
        .await?["history"]
        .clone())
}

/// Answers the question, and checks that its last stage names the reply.
async fn check_answered(sender: &mut Link, recipient: &mut Link, question: &str) -> Result<()> {
    let reply = recipient
        .call(
            "reply",
            json!({"message_id": question, "response": "this far"}),
        )
        .await?;
    let tracked = sender
        .call("message_status", json!({"message_id": question}))
        .await?;
    assert_eq!(tracked["stage"], "answered");
    let last = tracked["history"]
        .as_array()
        .and_then(|steps| steps.last())
        .cloned()
        .unwrap_or_default();
    assert_eq!(
        (last["stage"].as_str(), &last["reply_id"]),
        (Some("answered"), &reply["id"])
    );
    Ok(())
}

#[tokio::test]
async fn every_stage_is_recorded_with_its_evidence_and_none_before_it() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    meshtastic.accepts = false;
    let question = ask(&mut homeassistant, "how far?").await?;
    let deliver = meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    assert_eq!(
        each(&deliver["params"]["messages"], "id"),
        std::slice::from_ref(&question)
    );
    assert_eq!(
        each(&history(&mut homeassistant, &question).await?, "stage"),
        ["stored"],
        "delivered is not on the host"
    );

    meshtastic
        .send_text(&json!({"jsonrpc": "2.0", "id": deliver["id"], "result": {}}).to_string())
        .await?;
    meshtastic.call("ping", json!({})).await?;
    assert_eq!(
        each(&history(&mut homeassistant, &question).await?, "stage"),
        ["stored", "on_host"]
    );

    meshtastic
        .receipt(&[&question], "in_session", "wait_for_message")
        .await?;
    meshtastic.call("ping", json!({})).await?;
    assert_eq!(
        each(&history(&mut homeassistant, &question).await?, "stage"),
        ["stored", "on_host", "in_session"],
        "only the host says that something was seen"
    );
    meshtastic
        .receipt(&[&question], "seen", "tool_call")
        .await?;
    let seen = history(&mut homeassistant, &question).await?;
    assert_eq!(
        each(&seen, "stage"),
        ["stored", "on_host", "in_session", "seen"]
    );
    assert_eq!(
        each(&seen, "via"),
        ["", "deliver", "wait_for_message", "tool_call"]
    );
    assert_eq!(each(&seen, "session"), ["", "1", "1", "1"]);

    check_answered(&mut homeassistant, &mut meshtastic, &question).await
}

#[tokio::test]
async fn a_message_that_goes_by_a_wait_is_on_the_host_when_its_session_shows_it() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let waiting = meshtastic
        .begin(CallId::fresh(), "wait_for_message", json!({"timeout": 20}))
        .await?;
    let question = ask(&mut homeassistant, "quick").await?;
    meshtastic.end(waiting).await?.map_err(anyhow::Error::msg)?;
    meshtastic
        .receipt(&[&question], "in_session", "wait_for_message")
        .await?;
    let steps = history(&mut homeassistant, &question).await?;
    assert_eq!(each(&steps, "stage"), ["stored", "on_host", "in_session"]);
    Ok(())
}

#[tokio::test]
async fn news_is_settled_by_being_seen_and_a_question_is_not() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let news = id(&homeassistant
        .call(
            "send_message",
            json!({"target": "meshtastic", "message": "news", "requires_response": false}),
        )
        .await?);
    let question = ask(&mut homeassistant, "question").await?;
    meshtastic.call("get_messages", json!({})).await?;
    meshtastic
        .receipt(&[&news, &question], "in_session", "get_messages")
        .await?;
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        2,
        "shown is not seen"
    );
    meshtastic
        .receipt(&[&news, &question], "seen", "tool_call")
        .await?;
    let inbox = meshtastic.call("get_messages", json!({})).await?;
    assert_eq!(each(&inbox["messages"], "id"), [question]);
    Ok(())
}

#[tokio::test]
async fn an_offline_agents_mail_stays_stored_until_it_comes() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    meshtastic.notify("goodbye", json!({})).await?;
    meshtastic.hear_close().await.ok();
    let question = ask(&mut homeassistant, "later").await?;
    assert_eq!(
        each(&history(&mut homeassistant, &question).await?, "stage"),
        ["stored"]
    );
    let mut meshtastic = served.join("meshtastic").await?;
    meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    meshtastic.call("ping", json!({})).await?;
    let steps = history(&mut homeassistant, &question).await?;
    assert_eq!(each(&steps, "stage"), ["stored", "on_host"]);
    Ok(())
}
