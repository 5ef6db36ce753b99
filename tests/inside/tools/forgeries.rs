//! False or forged statements of a host: they are refused, and do not affect the messages of other agents.

use anyhow::Result;
use c3po_shared::ids::CallId;
use harness::link::{Link, Who};
use inside::served::Served;
use serde_json::json;

use super::two_agents;

#[tokio::test]
async fn a_call_id_is_for_one_call() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let call = CallId::fresh();
    let secret = json!({"target": "meshtastic", "message": "a secret"});
    let id = homeassistant
        .begin(call, "send_message", secret.clone())
        .await?;
    let sent = homeassistant.end(id).await?.expect("it is accepted");
    let id = homeassistant.begin(call, "send_message", secret).await?;
    assert_eq!(
        homeassistant.end(id).await?.expect("it is the same")["id"],
        sent["id"]
    );

    let (mut other, _) = Link::join(&served.address, "other").await?;
    for link in [&mut homeassistant, &mut other] {
        let id = link
            .begin(
                call,
                "send_message",
                json!({"target": "meshtastic", "message": "else"}),
            )
            .await?;
        let refused = link.end(id).await?.expect_err("the id is another call's");
        assert_eq!(refused["data"]["code"], "CONFLICT");
        assert!(!refused.to_string().contains("secret"), "{refused}");
    }
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        1
    );
    Ok(())
}

#[tokio::test]
async fn a_link_cannot_take_the_id_of_a_request_with_an_idempotency_key() -> Result<()> {
    let (_served, mut homeassistant, _) = two_agents().await?;
    let derived: CallId = serde_json::from_value(json!("0191e6b0-0000-5000-8000-000000000001"))?;
    let message = json!({"target": "meshtastic", "message": "first"});
    let id = homeassistant
        .begin(derived, "send_message", message)
        .await?;
    let refused = homeassistant.end(id).await?.expect_err("links have UUIDv7");
    assert_eq!(refused["data"]["code"], "INVALID_REQUEST");
    Ok(())
}

#[tokio::test]
async fn a_call_is_under_way_once() -> Result<()> {
    let (_served, _homeassistant, mut meshtastic) = two_agents().await?;
    let call = CallId::fresh();
    let first = meshtastic
        .begin(call, "wait_for_message", json!({"timeout": 1}))
        .await?;
    let second = meshtastic
        .begin(call, "wait_for_message", json!({"timeout": 600}))
        .await?;
    assert_eq!(
        meshtastic.end(second).await?.expect_err("it is under way")["data"]["code"],
        "CONFLICT"
    );
    assert_eq!(
        meshtastic.end(first).await?.expect("it ends")["timeout"],
        true
    );
    Ok(())
}

#[tokio::test]
async fn a_person_cannot_act_as_a_session_that_began_later() -> Result<()> {
    let served = Served::start().await?;
    let (link, _) = Link::join(&served.address, "late").await?;
    drop(link);
    let (mut asker, _) = Link::join(&served.address, "asker").await?;
    harness::eventually::eventually(
        "late is gone",
        std::time::Duration::from_secs(10),
        async || {
            let mut link = Link::open(&served.address).await.ok()?;
            link.hello(&Who::person("late")).await.ok()?.ok()
        },
    )
    .await?;
    let (mut person, _) = Link::join_as(&served.address, &Who::person("late")).await?;
    person.call("get_messages", json!({})).await?;

    let (mut late, _) = Link::join(&served.address, "late").await?;
    let sent = asker
        .call(
            "send_message",
            json!({"target": "late", "message": "for the session"}),
        )
        .await?;
    let ids = json!({"message_ids": [sent["id"]]});
    for (tool, arguments) in [
        ("get_messages", json!({})),
        ("ack_messages", ids),
        ("wait_for_message", json!({"timeout": 1})),
    ] {
        assert_eq!(person.refusal(tool, arguments).await?, "CONFLICT", "{tool}");
    }
    let id = sent["id"].as_str().expect("an id");
    assert!(
        person
            .receipt(&[id], "in_session", "terminal")
            .await
            .is_err()
    );
    assert_eq!(
        late.call("wait_for_message", json!({"timeout": 20}))
            .await?["id"],
        sent["id"]
    );
    Ok(())
}

#[tokio::test]
async fn no_client_acts_as_a_reserved_name() -> Result<()> {
    let served = Served::start().await?;
    for name in ["system", "all", "Human", "human."] {
        let forged = Who {
            more: json!({"person": true, "leftover": true}),
            ..Who::new(name)
        };
        let mut link = Link::open(&served.address).await?;
        let error = link.hello(&forged).await?.expect_err("a reserved name");
        assert_eq!(error["data"]["code"], "AGENT_NOT_FOUND", "{name}");
    }
    Ok(())
}
