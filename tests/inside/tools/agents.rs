//! Agents: names, records, takeovers, status, people.

use std::time::Duration;

use anyhow::Result;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use serde_json::json;

use super::{ask, each, two_agents};

/// The deadline for a new count of the online agents, which is made every 10 s.
const COUNTED: Duration = Duration::from_secs(30);

#[tokio::test]
async fn agents_are_listed_with_their_records() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let registered = meshtastic
        .call(
            "register_agent",
            json!({"capabilities": ["mqtt", "lora"], "description": "the mesh", "role": "radio"}),
        )
        .await?;
    assert_eq!(
        (registered["id"].as_str(), registered["status"].as_str()),
        (Some("meshtastic"), Some("online"))
    );
    assert_eq!(registered["capabilities"], json!(["mqtt", "lora"]));
    let list = homeassistant.call("list_agents", json!({})).await?;
    assert_eq!(
        (each(&list["agents"], "id"), list["you"].as_str()),
        (
            vec!["homeassistant".into(), "meshtastic".into()],
            Some("homeassistant")
        )
    );
    let record = &list["agents"][1];
    assert_eq!(
        (record["host"].as_str(), record["role"].as_str()),
        (Some("testhost"), Some("radio"))
    );
    assert_eq!(record["reach"], json!(["wait_for_message", "get_messages"]));
    for (arguments, expected) in [
        (json!({"capability": "lora"}), vec!["meshtastic"]),
        (json!({"capability": "zigbee"}), vec![]),
        (json!({"host": "elsewhere"}), vec![]),
        (json!({"status": "offline"}), vec![]),
        (json!({"limit": 1}), vec!["homeassistant"]),
        (
            json!({"limit": 1, "cursor": "homeassistant"}),
            vec!["meshtastic"],
        ),
    ] {
        let list = homeassistant.call("list_agents", arguments.clone()).await?;
        assert_eq!(each(&list["agents"], "id"), expected, "{arguments}");
    }
    Ok(())
}

#[tokio::test]
async fn status_reports_the_state_task_and_pending_messages_of_an_agent() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let status = homeassistant
        .call("get_agent_status", json!({"agent_id": "meshtastic"}))
        .await?;
    assert_eq!(
        status["state"], "starting",
        "it has begun and was not heard of since"
    );
    meshtastic.call("ping", json!({})).await?;
    eventually("meshtastic is ready", Duration::from_secs(10), async || {
        let status = homeassistant
            .call("get_agent_status", json!({"agent_id": "meshtastic"}))
            .await
            .ok()?;
        (status["state"] == "ready").then_some(())
    })
    .await?;
    let set = meshtastic
        .call(
            "set_status",
            json!({"status": "working", "current_task": "flashing"}),
        )
        .await?;
    assert_eq!(
        (set["success"].as_bool(), set["agent"]["state"].as_str()),
        (Some(true), Some("busy"))
    );
    ask(&mut homeassistant, "busy?").await?;
    let status = homeassistant
        .call("get_agent_status", json!({"agent_id": "meshtastic"}))
        .await?;
    assert_eq!(
        (status["state"].as_str(), status["current_task"].as_str()),
        (Some("busy"), Some("flashing"))
    );
    assert_eq!(
        (
            status["pending"].as_u64(),
            status["oldest_pending_seconds"].is_u64()
        ),
        (Some(1), true)
    );
    meshtastic
        .notify("session", json!({"state": "ready"}))
        .await?;
    meshtastic.call("ping", json!({})).await?;
    let status = homeassistant
        .call("get_agent_status", json!({"agent_id": "meshtastic"}))
        .await?;
    assert_eq!(status["state"], "ready");
    Ok(())
}

#[tokio::test]
async fn a_taken_name_gets_a_number_and_a_free_one_is_inherited() -> Result<()> {
    let (served, mut homeassistant, meshtastic) = two_agents().await?;
    let (mut second, welcome) = Link::join(&served.address, "meshtastic").await?;
    assert_eq!(
        (welcome["agent_id"].as_str(), welcome["generation"].as_u64()),
        (Some("meshtastic-2"), Some(1))
    );
    let question = ask(&mut homeassistant, "for whoever is meshtastic").await?;
    let (_, reserved) = Link::join(&served.address, "human").await?;
    assert_eq!(reserved["agent_id"], "human-2");

    let mut meshtastic = meshtastic;
    meshtastic.notify("goodbye", json!({})).await?;
    meshtastic.hear_close().await.ok();
    let (mut heir, welcome) = Link::join(&served.address, "meshtastic").await?;
    assert_eq!(
        (welcome["agent_id"].as_str(), welcome["generation"].as_u64()),
        (Some("meshtastic"), Some(2))
    );
    assert_eq!(welcome["pending"], 1);
    let received = heir
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(received["id"], question.as_str());

    second.notify("goodbye", json!({})).await?;
    eventually(
        "meshtastic-2 is forgotten",
        Duration::from_secs(10),
        async || {
            let list = homeassistant.call("list_agents", json!({})).await.ok()?;
            (!each(&list["agents"], "id").contains(&"meshtastic-2".to_owned())).then_some(())
        },
    )
    .await
}

#[tokio::test]
async fn the_same_process_comes_back_as_itself_and_its_old_link_is_closed() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let who = Who::new("media");
    let (mut older, first) = Link::join_as(&served.address, &who).await?;
    let (mut newer, second) = Link::join_as(&served.address, &who).await?;
    assert_eq!(
        (&first["agent_id"], &first["generation"]),
        (&second["agent_id"], &second["generation"])
    );
    assert_eq!(older.hear_close().await?, 4001);
    drop(older);
    newer.call("ping", json!({})).await?;
    let list = homeassistant
        .call("list_agents", json!({"status": "online"}))
        .await?;
    assert!(
        each(&list["agents"], "id").contains(&"media".to_owned()),
        "{list}"
    );
    Ok(())
}

#[tokio::test]
async fn another_name_can_be_taken_and_the_old_one_keeps_its_mail() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    ask(&mut homeassistant, "to the old name").await?;
    let record = meshtastic
        .call("register_agent", json!({"name": "Mesh Radio"}))
        .await?;
    assert_eq!(record["id"], "Mesh-Radio");
    assert_eq!(
        meshtastic.call("ping", json!({})).await?["agent_id"],
        "Mesh-Radio"
    );
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        0
    );
    let old = homeassistant
        .call("get_agent_status", json!({"agent_id": "meshtastic"}))
        .await?;
    assert_eq!(
        (old["status"].as_str(), old["pending"].as_u64()),
        (Some("offline"), Some(1))
    );
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "Mesh-Radio", "message": "hi"}),
        )
        .await?;
    let received = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(received["id"], sent["id"]);
    Ok(())
}

#[tokio::test]
async fn a_session_with_a_number_takes_the_name_once_it_is_free() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let (mut second, _) = Link::join(&served.address, "meshtastic").await?;
    let wish = json!({"name": "meshtastic"});
    let held = second.call("register_agent", wish.clone()).await?;
    assert_eq!(held["id"], "meshtastic-2");

    meshtastic.notify("goodbye", json!({})).await?;
    meshtastic.hear_close().await.ok();
    let question = ask(&mut homeassistant, "for the next meshtastic").await?;
    let free = second.call("register_agent", wish).await?;
    assert_eq!(free["id"], "meshtastic");
    let received = second
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(received["id"], question.as_str());
    Ok(())
}

#[tokio::test]
async fn a_person_replies_without_a_session_and_takes_no_sessions_name() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "human", "message": "please look"}),
        )
        .await?;
    let (mut person, welcome) = Link::join_as(&served.address, &Who::person("human")).await?;
    assert_eq!(
        (welcome["agent_id"].as_str(), welcome["pending"].as_u64()),
        (Some("human"), Some(1))
    );
    person
        .call(
            "reply",
            json!({"message_id": sent["id"], "response": "looked"}),
        )
        .await?;
    let answer = homeassistant
        .call(
            "wait_for_message",
            json!({"message_id": sent["id"], "timeout": 20}),
        )
        .await?;
    assert_eq!(
        (answer["from_agent"].as_str(), answer["response"].as_str()),
        (Some("human"), Some("looked"))
    );

    let mut link = Link::open(&served.address).await?;
    let error = link
        .hello(&Who::person("homeassistant"))
        .await?
        .expect_err("a connected session");
    assert_eq!(error["data"]["code"], "CONFLICT");
    assert_eq!(
        person
            .refusal("register_agent", json!({"name": "someone"}))
            .await?,
        "NOT_SUPPORTED"
    );
    let mut link = Link::open(&served.address).await?;
    let error = link
        .hello(&Who::person("homeassistent"))
        .await?
        .expect_err("nobody has that name");
    assert_eq!(error["data"]["code"], "AGENT_NOT_FOUND");
    let agents = homeassistant.call("list_agents", json!({})).await?;
    assert_eq!(
        each(&agents["agents"], "id"),
        ["homeassistant", "human", "meshtastic"]
    );
    Ok(())
}

#[tokio::test]
async fn deliveries_under_one_name_prove_nothing_under_another() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    meshtastic.accepts = false;
    ask(&mut homeassistant, "to the old name").await?;
    let old = meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    meshtastic
        .call("register_agent", json!({"name": "radio"}))
        .await?;
    homeassistant
        .call(
            "send_message",
            json!({"target": "radio", "message": "to the new name"}),
        )
        .await?;
    let new = meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    assert_ne!(
        old["id"], new["id"],
        "an answer to the old one would prove the new one"
    );

    // A session's `last_delivered` is not trusted: messages that were not shown are delivered.
    let who = Who {
        more: json!({"last_delivered": 1_000_000}),
        ..Who::new("radio")
    };
    let (mut other, welcome) = Link::join_as(&served.address, &who).await?;
    assert_eq!(welcome["agent_id"], "radio-2");
    homeassistant
        .call(
            "send_message",
            json!({"target": "radio-2", "message": "first"}),
        )
        .await?;
    other.hear(|frame| frame["method"] == "deliver").await?;
    Ok(())
}

#[tokio::test]
async fn a_heartbeat_is_answered_with_how_many_agents_are_online() -> Result<()> {
    let (served, mut homeassistant, meshtastic) = two_agents().await?;
    drop(meshtastic);
    let _media = served.join("media").await?;
    eventually("a count", COUNTED, async || {
        let beat = json!({"timestamp": "2026-01-15T10:30:00Z"});
        let reply = homeassistant.request("heartbeat", beat).await.ok()?.ok()?;
        (reply["agents_online"] == 2).then_some(())
    })
    .await
}
