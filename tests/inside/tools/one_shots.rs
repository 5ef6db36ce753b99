//! Sessions that answer one prompt and end: their messages and their questions do not outlive them.

use anyhow::Result;
use c3po_shared::ids::CallId;
use harness::link::{Link, Who};
use inside::served::Served;
use serde_json::{Value, json};

use super::{ask, each, id, two_agents};

/// Creates a new one-shot session in the folder `media`.
fn run() -> Who {
    Who {
        more: json!({"one_shot": true}),
        ..Who::new("media-run")
    }
}

async fn join(served: &Served, who: &Who) -> Result<(Link, Value)> {
    let (link, welcome) = Link::join_as(&served.address, who).await?;
    Ok((link, welcome["agent_id"].clone()))
}

#[tokio::test]
async fn a_run_that_ends_takes_its_questions_back_and_its_senders_know() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let (mut media, _) = join(&served, &run()).await?;
    let asked = ask(&mut media, "which station?").await?;
    let sent = id(&homeassistant
        .call(
            "send_message",
            json!({"target": "media-run", "message": "louder?"}),
        )
        .await?);
    let waiting = homeassistant
        .begin(
            CallId::fresh(),
            "wait_for_message",
            json!({"message_id": sent}),
        )
        .await?;
    media.notify("goodbye", json!({})).await?;

    let waited = homeassistant
        .end(waiting)
        .await?
        .map_err(anyhow::Error::msg)?;
    assert_eq!(
        waited["message"],
        "The message expired before it was answered"
    );
    let tracked = homeassistant
        .call("message_status", json!({"message_id": sent}))
        .await?;
    assert_eq!(
        (&tracked["stage"], each(&tracked["history"], "stage").len()),
        (&json!("expired"), 2),
        "{tracked}"
    );
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        0
    );
    let late = json!({"message_id": asked, "response": "the second"});
    assert_eq!(meshtastic.refusal("reply", late).await?, "AGENT_NOT_FOUND");
    let agents = meshtastic.call("list_agents", json!({})).await?;
    assert_eq!(
        each(&agents["agents"], "id"),
        ["homeassistant", "meshtastic"]
    );
    assert_eq!(
        join(&served, &run()).await?.1,
        "media-run",
        "its name is free"
    );
    Ok(())
}

#[tokio::test]
async fn a_run_whose_link_broke_comes_back_as_itself_and_one_that_is_dead_leaves_nothing()
-> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let who = run();
    let (mut media, _) = join(&served, &who).await?;
    ask(&mut media, "which station?").await?;
    homeassistant
        .call(
            "send_message",
            json!({"target": "media-run", "message": "louder?"}),
        )
        .await?;
    drop(media);
    let (mut media, name) = join(&served, &who).await?;
    assert_eq!(
        (
            name,
            media.call("get_messages", json!({})).await?["count"].clone()
        ),
        (json!("media-run"), json!(1))
    );
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        1
    );
    drop(media);

    let other = run();
    assert_eq!(
        join(&served, &other).await?.1,
        "media-run-2",
        "it may still come back"
    );
    let heir = Who {
        more: json!({"one_shot": true, "succeeds": [who.instance]}),
        ..Who::new("media-run")
    };
    let (mut heir, name) = join(&served, &heir).await?;
    assert_eq!(
        (
            name,
            heir.call("get_messages", json!({})).await?["count"].clone()
        ),
        (json!("media-run"), json!(0))
    );
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        0
    );
    Ok(())
}
