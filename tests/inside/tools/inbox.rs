//! Reading and acknowledging.

use anyhow::Result;
use harness::link::{Link, Who};
use serde_json::json;

use super::{ask, each, id, two_agents};

#[tokio::test]
async fn reading_takes_nothing_out_and_acknowledging_does() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let ids = [
        ask(&mut homeassistant, "one").await?,
        ask(&mut homeassistant, "two").await?,
    ];
    for _ in 0..2 {
        let inbox = meshtastic.call("get_messages", json!({})).await?;
        assert_eq!(
            (each(&inbox["messages"], "id"), &inbox["count"]),
            (ids.to_vec(), &json!(2))
        );
    }
    let acked = meshtastic
        .call(
            "ack_messages",
            json!({"message_ids": [ids[0], "homeassistant::meshtastic::00000000"]}),
        )
        .await?;
    assert_eq!(
        acked,
        json!({"acked": [ids[0]], "unknown": ["homeassistant::meshtastic::00000000"]})
    );
    let inbox = meshtastic.call("get_messages", json!({})).await?;
    assert_eq!(each(&inbox["messages"], "id"), [ids[1].clone()]);
    Ok(())
}

#[tokio::test]
async fn pages_follow_each_other_and_can_be_narrowed() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(ask(&mut homeassistant, &format!("number {number}")).await?);
    }
    let mut read = Vec::new();
    let mut cursor = json!(null);
    loop {
        let arguments = if cursor.is_null() {
            json!({"limit": 2})
        } else {
            json!({"limit": 2, "cursor": cursor})
        };
        let page = meshtastic.call("get_messages", arguments).await?;
        assert_eq!(page["count"], 5);
        read.extend(each(&page["messages"], "id"));
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(read, ids);
    let one = meshtastic
        .call("get_messages", json!({"thread_id": ids[3]}))
        .await?;
    assert_eq!(each(&one["messages"], "id"), [ids[3].clone()]);
    let none = meshtastic
        .call("get_messages", json!({"kind": "reply"}))
        .await?;
    assert_eq!(none["messages"], json!([]));
    assert_eq!(
        meshtastic
            .refusal("get_messages", json!({"cursor": "x"}))
            .await?,
        "INVALID_REQUEST"
    );
    Ok(())
}

#[tokio::test]
async fn a_persons_page_of_the_longest_messages_holds_one_and_a_cursor() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let (mut person, _) = Link::join_as(&served.address, &Who::person("human")).await?;
    let mut ids = Vec::new();
    for text in ["🛰".repeat(50_000), "🛰".repeat(50_000), "short".to_owned()] {
        ids.push(id(&homeassistant
            .call("send_message", json!({"target": "human", "message": text}))
            .await?));
    }
    let mut arguments = json!({"limit": 1000});
    for (number, id) in ids.iter().enumerate() {
        let page = person.call("get_messages", arguments).await?;
        assert_eq!(each(&page["messages"], "id"), std::slice::from_ref(id));
        assert_eq!(
            (&page["count"], page["next_cursor"].is_null()),
            (&json!(3), number == 2),
            "{number}"
        );
        arguments = json!({"limit": 1000, "cursor": page["next_cursor"]});
    }
    Ok(())
}

#[tokio::test]
async fn no_agent_reads_or_acknowledges_the_mail_of_another() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "secret").await?;
    let mut other = served.join("other").await?;
    let acked = other
        .call("ack_messages", json!({"message_ids": [question]}))
        .await?;
    assert_eq!(acked, json!({"acked": [], "unknown": [question]}));
    for (tool, arguments) in [
        (
            "reply",
            json!({"message_id": question, "response": "forged"}),
        ),
        ("get_thread", json!({"message_id": question})),
        ("message_status", json!({"message_id": question})),
        (
            "wait_for_message",
            json!({"message_id": question, "timeout": 1}),
        ),
    ] {
        assert_eq!(
            other.refusal(tool, arguments).await?,
            "MESSAGE_NOT_FOUND",
            "{tool}"
        );
    }
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        1
    );
    Ok(())
}

#[tokio::test]
async fn a_message_expires_when_its_life_is_over() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let sent = homeassistant
        .call(
            "send_message",
            json!({"target": "meshtastic", "message": "brief", "expires_in": 1}),
        )
        .await?;
    // The wait for a stage ends when the message expires, well before its own timeout.
    let tracked = homeassistant
        .call(
            "wait_for_message",
            json!({"message_id": sent["id"], "until": "answered", "timeout": 30}),
        )
        .await?;
    assert_eq!(tracked["stage"], "expired");
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        0
    );
    // Late evidence does not end the expiry.
    let late =
        json!({"message_ids": [sent["id"]], "stage": "in_session", "via": "post_tool_batch"});
    assert_eq!(meshtastic.request("receipt", late).await?, Ok(json!({})));
    let answer = homeassistant
        .call(
            "wait_for_message",
            json!({"message_id": sent["id"], "timeout": 30}),
        )
        .await?;
    assert_eq!(
        (answer["status"].as_str(), answer["code"].as_str()),
        (Some("timeout"), Some("TIMEOUT"))
    );
    Ok(())
}
