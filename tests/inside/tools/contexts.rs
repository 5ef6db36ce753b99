//! Reports of a host about its session: its context, its state, the ways into it.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::ids::CallId;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use serde_json::{Value, json};

use super::{ask, each, id, two_agents};

/// Long enough for an unexpected frame to arrive.
const QUIET: Duration = Duration::from_millis(300);
/// Shorter than the time for which a message returned by one wait is withheld from others.
const AT_ONCE: Duration = Duration::from_secs(4);

/// Returns the messages of the next `deliver`, each with whether it is repeated.
async fn delivered(link: &mut Link) -> Result<Vec<(String, bool)>> {
    let deliver = link.hear(|frame| frame["method"] == "deliver").await?;
    let messages = deliver["params"]["messages"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    Ok(messages
        .iter()
        .map(|message| (id(message), message["repeated"] == true))
        .collect())
}

/// Returns whether nothing is delivered for a while.
async fn is_quiet(link: &mut Link) -> Result<bool> {
    link.call("ping", json!({})).await?;
    // Waiting for an unused id receives frames without sending a request.
    link.end_within(i64::MAX, QUIET).await?;
    Ok(!link.heard.iter().any(|frame| frame["method"] == "deliver"))
}

async fn steps(link: &mut Link, message: &str) -> Result<Vec<(String, String)>> {
    let tracked = link
        .call("message_status", json!({"message_id": message}))
        .await?;
    Ok(each(&tracked["history"], "stage")
        .into_iter()
        .zip(each(&tracked["history"], "session"))
        .collect())
}

#[tokio::test]
async fn a_new_context_gets_the_inbox_again_once_with_marks_of_repetition() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let shown = ask(&mut homeassistant, "shown").await?;
    assert_eq!(delivered(&mut meshtastic).await?, [(shown.clone(), false)]);
    let unshown = ask(&mut homeassistant, "not shown").await?;
    assert_eq!(
        delivered(&mut meshtastic).await?,
        [(unshown.clone(), false)]
    );
    meshtastic
        .receipt(&[&shown], "in_session", "post_tool_batch")
        .await?;
    assert!(is_quiet(&mut meshtastic).await?);

    meshtastic
        .notify(
            "session",
            json!({"context": 1, "session_id": "after clear"}),
        )
        .await?;
    let again = [(shown.clone(), true), (unshown.clone(), false)];
    assert_eq!(delivered(&mut meshtastic).await?, again);
    for context in [1, 0] {
        meshtastic
            .notify("session", json!({"context": context}))
            .await?;
        assert!(
            is_quiet(&mut meshtastic).await?,
            "context {context} is not new"
        );
    }
    meshtastic
        .receipt_in(1, &[&shown, &unshown], "in_session", "user_prompt_submit")
        .await?;
    meshtastic.notify("session", json!({"context": 2})).await?;
    assert_eq!(
        delivered(&mut meshtastic).await?,
        [(shown.clone(), true), (unshown, true)]
    );
    meshtastic
        .receipt_in(2, &[&shown], "in_session", "user_prompt_submit")
        .await?;
    let sessions: Vec<_> = steps(&mut homeassistant, &shown)
        .await?
        .into_iter()
        .map(|(_, session)| session)
        .collect();
    assert_eq!(sessions, ["", "1", "1", "1.1", "1.2"]);
    Ok(())
}

#[tokio::test]
async fn a_context_that_began_while_the_link_was_down_is_reported_by_hello() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let who = Who::new("media");
    let (mut before, _) = Link::join_as(&served.address, &who).await?;
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "media", "message": "play"}),
        )
        .await?;
    before.hear(|frame| frame["method"] == "deliver").await?;
    drop(before);

    // The receipt was in flight when the link broke, and is sent again after the `hello` of the next context.
    let more = json!({"context": 1, "state": "busy", "reach": ["stop"]});
    let (mut after, _) = Link::join_as(
        &served.address,
        &Who {
            more,
            ..who.clone()
        },
    )
    .await?;
    assert_eq!(delivered(&mut after).await?, [(id(&sent), false)]);
    after
        .receipt_in(0, &[&id(&sent)], "in_session", "stop")
        .await?;
    let received = after
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(
        (received["id"].clone(), received["repeated"].clone()),
        (sent["id"].clone(), json!(true))
    );
    after
        .receipt_in(1, &[&id(&sent)], "in_session", "wait_for_message")
        .await?;
    let nothing = after
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    assert_eq!(nothing["timeout"], true);

    // A repetition of the same context changes nothing.
    let more = json!({"context": 1});
    let (mut again, _) = Link::join_as(&served.address, &Who { more, ..who }).await?;
    assert!(is_quiet(&mut again).await?);
    let stages: Vec<_> = steps(&mut homeassistant, &id(&sent))
        .await?
        .into_iter()
        .map(|(stage, _)| stage)
        .collect();
    assert_eq!(stages, ["stored", "on_host", "in_session", "in_session"]);
    Ok(())
}

#[tokio::test]
async fn a_wait_that_outlasts_a_context_gets_the_repeated_messages() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "before").await?;
    let received = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(
        (id(&received), received["repeated"].clone()),
        (question.clone(), Value::Null)
    );
    meshtastic
        .receipt(&[&question], "in_session", "wait_for_message")
        .await?;
    let waiting = meshtastic
        .begin(CallId::fresh(), "wait_for_message", json!({"timeout": 20}))
        .await?;
    meshtastic.notify("session", json!({"context": 1})).await?;
    let received = meshtastic
        .end_within(waiting, AT_ONCE)
        .await?
        .context("what was handed before is held back")?;
    let received = received.map_err(anyhow::Error::msg)?;
    assert_eq!(
        (id(&received), received["repeated"].clone()),
        (question, json!(true))
    );
    Ok(())
}

#[tokio::test]
async fn a_new_session_gets_earlier_messages_marked_as_repeated() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let shown = ask(&mut homeassistant, "shown").await?;
    meshtastic
        .receipt(&[&shown], "in_session", "inbox_socket")
        .await?;
    let unshown = ask(&mut homeassistant, "not shown").await?;
    meshtastic.call("ping", json!({})).await?;
    meshtastic.notify("goodbye", json!({})).await?;
    meshtastic.hear_close().await.ok();
    let mut heir = served.join("meshtastic").await?;
    assert_eq!(
        delivered(&mut heir).await?,
        [(shown.clone(), true), (unshown.clone(), false)]
    );
    let inbox = heir.call("get_messages", json!({})).await?;
    assert_eq!(inbox["messages"][0]["repeated"], true);
    assert_eq!(inbox["messages"][1].get("repeated"), None);
    Ok(())
}

#[tokio::test]
async fn changes_of_state_and_reach_are_visible_at_once_and_in_order() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    for (state, reach) in [
        (
            "busy",
            json!([
                "wait_for_message",
                "get_messages",
                "post_tool_batch",
                "stop"
            ]),
        ),
        (
            "waiting_human",
            json!(["wait_for_message", "get_messages", "stop", "inbox_socket"]),
        ),
        ("ready", json!(["wait_for_message", "get_messages"])),
    ] {
        for passing in ["blocked", "busy", state] {
            meshtastic
                .notify("session", json!({"state": passing, "reach": reach}))
                .await?;
        }
        eventually("the change is seen", Duration::from_secs(1), async || {
            let list = homeassistant.call("list_agents", json!({})).await.ok()?;
            let record = list["agents"]
                .as_array()?
                .iter()
                .find(|agent| agent["id"] == "meshtastic")?
                .clone();
            (record["state"] == state && record["reach"] == reach).then_some(())
        })
        .await?;
        let status = homeassistant
            .call("get_agent_status", json!({"agent_id": "meshtastic"}))
            .await?;
        assert_eq!(
            (&status["state"], &status["reach"]),
            (&json!(state), &reach)
        );
    }
    // The first call does not make a session ready that reported another state, and a reconnect does not make it `starting`
    // again.
    for state in ["starting", "blocked"] {
        let who = Who {
            more: json!({"state": state}),
            ..Who::new(state)
        };
        for _ in 0..2 {
            let (mut other, _) = Link::join_as(&served.address, &who).await?;
            other.call("ping", json!({})).await?;
            other.call("ping", json!({})).await?;
            let status = homeassistant
                .call("get_agent_status", json!({"agent_id": state}))
                .await?;
            assert_eq!(status["state"], state);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_person_has_no_contexts_and_no_session_in_receipts() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let (mut person, _) = Link::join_as(&served.address, &Who::person("human")).await?;
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "human", "message": "look"}),
        )
        .await?;
    person
        .receipt(&[&id(&sent)], "in_session", "terminal")
        .await?;
    person
        .notify("session", json!({"context": 5, "state": "busy"}))
        .await?;
    let nothing = person
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    assert_eq!(nothing["timeout"], true);
    person.receipt(&[&id(&sent)], "seen", "terminal").await?;
    let stages: Vec<_> = steps(&mut homeassistant, &id(&sent)).await?;
    assert_eq!(stages.last(), Some(&("seen".to_owned(), String::new())));
    Ok(())
}

#[tokio::test]
async fn changes_right_before_a_goodbye_are_recorded() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let message = ask(&mut homeassistant, "the last one").await?;
    meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    // A proxy that exits writes all of them at once.
    for (number, stage) in [(900, "on_host"), (901, "in_session"), (902, "seen")] {
        let params = json!({"message_ids": [message], "stage": stage, "via": "hook", "context": 0});
        let frame = json!({"jsonrpc": "2.0", "id": number, "method": "receipt", "params": params});
        meshtastic.send_text(&frame.to_string()).await?;
    }
    meshtastic.notify("goodbye", json!({})).await?;
    meshtastic.hear_close().await.ok();
    eventually("all of it is recorded", AT_ONCE, async || {
        let steps = steps(&mut homeassistant, &message).await.ok()?;
        (steps.last()?.0 == "seen").then_some(())
    })
    .await
}
