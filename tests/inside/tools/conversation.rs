//! Questions and answers.

use anyhow::Result;
use c3po_shared::ids::CallId;
use harness::link::Link;
use inside::served::Served;
use serde_json::json;

use super::{ask, each, id, two_agents};

#[tokio::test]
async fn a_message_is_accepted_with_its_envelope_and_receipt() -> Result<()> {
    let (_served, mut homeassistant, _meshtastic) = two_agents().await?;
    let sent = homeassistant
        .call(
            "send_message",
            json!({
                "target": "meshtastic", "message": "What MQTT topics are available?",
                "context": "Building a sensor dashboard", "title": "MQTT topics", "priority": "HIGH",
            }),
        )
        .await?;
    let id = id(&sent);
    assert!(id.starts_with("homeassistant::meshtastic::"), "{id}");
    assert_eq!(sent["from_agent"], "homeassistant");
    assert_eq!(sent["from_host"], "testhost");
    assert_eq!(sent["to_agent"], "meshtastic");
    assert_eq!(sent["message"], "What MQTT topics are available?");
    assert_eq!(sent["context"], "Building a sensor dashboard");
    assert_eq!(sent["title"], "MQTT topics");
    assert_eq!(sent["kind"], "message");
    assert_eq!(sent["priority"], "high");
    assert_eq!(sent["requires_response"], true);
    assert_eq!(sent["thread_id"], id);
    assert_eq!(sent["receipt"]["stage"], "stored");
    Ok(())
}

#[tokio::test]
async fn a_question_is_waited_for_and_answered() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "What MQTT topics are available?").await?;
    let waiting = homeassistant
        .begin(
            CallId::fresh(),
            "wait_for_message",
            json!({"message_id": question}),
        )
        .await?;

    let received = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(
        (received["id"].as_str(), received["from_agent"].as_str()),
        (Some(question.as_str()), Some("homeassistant"))
    );
    let reply = meshtastic
        .call(
            "reply",
            json!({"message_id": question, "response": "mesh/node/#, mesh/stat/#"}),
        )
        .await?;
    assert_eq!(reply["message_id"], question.as_str());
    assert_eq!(reply["from_agent"], "meshtastic");
    assert_eq!(reply["to_agent"], "homeassistant");
    assert_eq!(reply["response"], "mesh/node/#, mesh/stat/#");
    assert_eq!(reply["status"], "success");
    assert_eq!(reply["receipt"]["stage"], "stored");

    let answer = homeassistant
        .end(waiting)
        .await?
        .map_err(anyhow::Error::msg)?;
    assert_eq!(
        (&answer["id"], &answer["message_id"]),
        (&reply["id"], &reply["message_id"])
    );
    assert_eq!(answer["kind"], "reply");
    let again = homeassistant
        .call("wait_for_message", json!({"message_id": question}))
        .await?;
    assert_eq!(
        again["id"], answer["id"],
        "an answer can be waited for a second time"
    );
    let inbox = meshtastic.call("get_messages", json!({})).await?;
    assert_eq!(
        inbox,
        json!({"messages": [], "count": 0}),
        "replying acknowledges"
    );
    Ok(())
}

#[tokio::test]
async fn a_reply_can_be_replied_to() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "one").await?;
    let two = meshtastic
        .call(
            "reply",
            json!({"message_id": question, "response": "two", "requires_response": true}),
        )
        .await?;
    let three = homeassistant
        .call(
            "reply",
            json!({"message_id": id(&two), "response": "three", "status": "error"}),
        )
        .await?;
    let received = meshtastic
        .call("wait_for_message", json!({"message_id": id(&two)}))
        .await?;
    assert_eq!(
        (received["id"].clone(), received["status"].clone()),
        (three["id"].clone(), json!("error"))
    );
    for link in [&mut homeassistant, &mut meshtastic] {
        let thread = link
            .call("get_thread", json!({"message_id": id(&three)}))
            .await?;
        assert_eq!(
            each(&thread["messages"], "id"),
            [question.clone(), id(&two), id(&three)]
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_reply_is_awaited_where_the_message_wanted_an_answer() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    meshtastic
        .call("register_agent", json!({"role": "radio"}))
        .await?;
    let question = ask(&mut homeassistant, "one").await?;
    let news = json!({"target": "meshtastic", "message": "two", "requires_response": false});
    let news = id(&homeassistant.call("send_message", news).await?);
    let to_role = homeassistant
        .call(
            "send_message",
            json!({"target": "@radio", "message": "three"}),
        )
        .await?;
    let to_all = homeassistant
        .call("broadcast", json!({"message": "four"}))
        .await?;
    let copy = |copies: &serde_json::Value| {
        copies["receipts"][0]["message_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    for (about, awaited) in [
        (question, true),
        (news, false),
        (copy(&to_role), true),
        (copy(&to_all), false),
    ] {
        let reply = meshtastic
            .call("reply", json!({"message_id": about, "response": "yes"}))
            .await?;
        assert_eq!(reply["awaited"] == true, awaited, "{reply}");
        let came = homeassistant
            .call("wait_for_message", json!({"message_id": about}))
            .await?;
        assert_eq!(came.get("awaited"), reply.get("awaited"), "{came}");
    }
    Ok(())
}

#[tokio::test]
async fn a_call_sent_again_is_applied_once() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let call = CallId::fresh();
    let mut ids = Vec::new();
    for _ in 0..3 {
        let begun = homeassistant
            .begin(
                call,
                "send_message",
                json!({"target": "meshtastic", "message": "once"}),
            )
            .await?;
        ids.push(id(&homeassistant
            .end(begun)
            .await?
            .map_err(anyhow::Error::msg)?));
    }
    assert!(ids.iter().all(|one| *one == ids[0]), "{ids:?}");
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        1
    );

    let call = CallId::fresh();
    let answer = json!({"message_id": ids[0], "response": "done"});
    let mut replies = Vec::new();
    for _ in 0..2 {
        let begun = meshtastic.begin(call, "reply", answer.clone()).await?;
        replies.push(id(&meshtastic
            .end(begun)
            .await?
            .map_err(anyhow::Error::msg)?));
    }
    assert_eq!(replies[0], replies[1]);
    assert_eq!(
        homeassistant.call("get_messages", json!({})).await?["count"],
        1
    );
    Ok(())
}

#[tokio::test]
async fn the_older_names_do_the_same() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let sent = homeassistant
        .call(
            "send_request",
            json!({"target": "meshtastic", "message": "hi", "context": "why"}),
        )
        .await?;
    let received = meshtastic
        .call("wait_for_request", json!({"timeout": 20}))
        .await?;
    assert_eq!(received["id"], sent["id"]);
    let pending = meshtastic.call("get_pending_requests", json!({})).await?;
    assert_eq!(each(&pending["messages"], "id"), [id(&sent)]);
    let reply = meshtastic
        .call(
            "respond_to_request",
            json!({"request_id": id(&sent), "response": "hello", "status": "success"}),
        )
        .await?;
    let answer = homeassistant
        .call(
            "wait_for_response",
            json!({"request_id": id(&sent), "timeout": 20}),
        )
        .await?;
    assert_eq!(answer["id"], reply["id"]);
    Ok(())
}

#[tokio::test]
async fn the_status_of_a_broadcast_sums_up_its_copies() -> Result<()> {
    let served = Served::start().await?;
    let (mut a, mut b) = (served.join("a").await?, served.join("b").await?);
    let mut c = served.join("c").await?;
    c.notify("goodbye", json!({})).await?;
    let sent = a.call("broadcast", json!({"message": "news"})).await?;
    let status = async |link: &mut Link| {
        link.call("message_status", json!({"message_id": sent["id"]}))
            .await
    };
    b.hear(|frame| frame["method"] == "deliver").await?;
    let copy = sent["receipts"][0]["message_id"]
        .as_str()
        .unwrap_or_default();
    b.receipt(&[copy], "in_session", "hook").await?;
    b.receipt(&[copy], "seen", "hook").await?;
    b.call("ping", json!({})).await?;
    let summed = status(&mut a).await?;
    assert_eq!(
        summed,
        json!({
            "message_id": sent["id"], "stage": "stored", "history": [],
            "copies": {"count": 2, "stages": {"stored": 1, "seen": 1}, "complete": true},
        })
    );
    let others = json!({"message_id": sent["id"]});
    assert_eq!(
        b.refusal("message_status", others).await?,
        "MESSAGE_NOT_FOUND"
    );
    let never = json!({"message_id": "a::all::00000000"});
    assert_eq!(
        a.refusal("message_status", never).await?,
        "MESSAGE_NOT_FOUND"
    );
    Ok(())
}

#[tokio::test]
async fn a_broadcast_reaches_all_other_agents_also_offline_ones() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let mut media = served.join("media").await?;
    media
        .call("register_agent", json!({"role": "player"}))
        .await?;
    media.notify("goodbye", json!({})).await?;
    let all = homeassistant
        .call(
            "broadcast",
            json!({"message": "backup at ten", "title": "backup"}),
        )
        .await?;
    assert_eq!(all["recipients"], json!(["media", "meshtastic"]));
    assert!(id(&all).starts_with("homeassistant::all::"), "{all}");
    assert_eq!(each(&all["receipts"], "stage"), ["stored", "stored"]);
    let live = meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    assert_eq!(live["params"]["messages"][0]["message"], "backup at ten");
    let mut media = served.join("media").await?;
    let received = media
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(
        (
            received["kind"].as_str(),
            received["requires_response"].as_bool()
        ),
        (Some("broadcast"), Some(false))
    );
    assert_eq!(received["thread_id"], all["id"]);

    let some = homeassistant
        .call("broadcast", json!({"message": "play", "role": "player"}))
        .await?;
    assert_eq!(some["recipients"], json!(["media"]));
    let thread = homeassistant
        .call("get_thread", json!({"message_id": id(&all)}))
        .await?;
    assert_eq!(
        each(&thread["messages"], "message"),
        ["backup at ten", "backup at ten"]
    );
    let by_copy = homeassistant
        .call("get_thread", json!({"message_id": received["id"]}))
        .await?;
    assert_eq!(by_copy, thread, "a copy leads its sender to all of them");
    let to_one = media
        .call("get_thread", json!({"message_id": received["id"]}))
        .await?;
    assert_eq!(each(&to_one["messages"], "to_agent"), ["media"]);
    Ok(())
}

#[tokio::test]
async fn a_role_and_a_host_can_be_addressed() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    meshtastic
        .call("register_agent", json!({"role": "radio"}))
        .await?;
    served
        .join("second")
        .await?
        .call("register_agent", json!({"role": "radio"}))
        .await?;
    let sent = homeassistant
        .call("send_message", json!({"target": "@radio", "message": "hi"}))
        .await?;
    assert_eq!(sent["recipients"], json!(["meshtastic", "second"]));
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "meshtastic@testhost", "message": "hi"}),
        )
        .await?;
    assert_eq!(sent["to_agent"], "meshtastic");
    let refused = homeassistant
        .refusal(
            "send_message",
            json!({"target": "meshtastic@nas9", "message": "hi"}),
        )
        .await?;
    assert_eq!(refused, "AGENT_NOT_FOUND");
    let refused = homeassistant
        .refusal(
            "send_message",
            json!({"target": "@nobody", "message": "hi"}),
        )
        .await?;
    assert_eq!(refused, "AGENT_NOT_FOUND");
    // A role cannot have a reserved name: a message to it would look like one to a person.
    let to_human = json!({"target": "@Human", "message": "hi"});
    let refused = homeassistant.refusal("send_message", to_human).await?;
    assert_eq!(refused, "INVALID_REQUEST");
    let role = json!({"role": "human"});
    let refused = meshtastic.refusal("register_agent", role).await?;
    assert_eq!(refused, "INVALID_REQUEST");
    Ok(())
}

/// A wait goes on while its session has another name.
#[tokio::test]
async fn a_message_ends_one_wait_of_a_session_that_had_another_name_meanwhile() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let wait = async |link: &mut Link| {
        let arguments = json!({"timeout": 3});
        link.begin(CallId::fresh(), "wait_for_message", arguments)
            .await
    };
    let mut waits = vec![wait(&mut meshtastic).await?];
    for name in ["radio", "meshtastic"] {
        meshtastic
            .call("register_agent", json!({"name": name}))
            .await?;
    }
    waits.push(wait(&mut meshtastic).await?);
    let message = json!({"target": "meshtastic", "message": "hi"});
    homeassistant.call("send_message", message).await?;
    let mut given = 0;
    for wait in waits {
        let ended = meshtastic.end(wait).await?;
        given += usize::from(ended.is_ok_and(|reply| reply["from_agent"] == "homeassistant"));
    }
    assert_eq!(given, 1);
    Ok(())
}
