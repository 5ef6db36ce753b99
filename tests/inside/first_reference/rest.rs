//! The REST paths, and their answers when the store is away.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Client, has_the_members_of, two_clients};

/// Asserts that a path that needs the header answers with the documented error and a suggestion.
fn misses_the_header((status, body): (u16, Value)) {
    assert_eq!(status, 400);
    assert_eq!(
        (&body["error"], &body["code"]),
        (
            &json!("Missing X-Agent-ID header"),
            &json!("INVALID_REQUEST")
        )
    );
    assert!(body["suggestion"].is_string(), "{body}");
}

#[tokio::test]
async fn health_reports_how_many_agents_are_online() -> Result<()> {
    let (served, _homeassistant, _meshtastic) = two_clients().await?;
    let _media = served.join("media").await?;
    let (status, body) = Client::nameless(&served)?
        .rest("GET", "/api/health")
        .await?;
    assert_eq!(
        (status, body),
        (200, json!({"status": "ok", "agents_online": 3}))
    );
    Ok(())
}

#[tokio::test]
async fn health_reports_that_the_store_is_away() -> Result<()> {
    let (served, _homeassistant, _meshtastic) = two_clients().await?;
    served.store.close().await;
    let (status, body) = Client::nameless(&served)?
        .rest("GET", "/api/health")
        .await?;
    assert_eq!(status, 500);
    has_the_members_of(
        &json!({"status": "error", "error": "Redis connection failed"}),
        &body,
    );
    // The store may not be Redis; the code keeps the name for the sake of existing monitors.
    assert_eq!(
        (&body["status"], &body["error"]),
        (&json!("error"), &json!("Store connection failed"))
    );
    assert_eq!(body["code"], "REDIS_UNAVAILABLE");
    Ok(())
}

#[tokio::test]
async fn pending_counts_and_shows_and_takes_nothing_out() -> Result<()> {
    let (served, homeassistant, meshtastic) = two_clients().await?;
    let ids = [
        homeassistant.send("meshtastic", "Hello!").await?,
        homeassistant.send("meshtastic", "And?").await?,
    ];
    let example = json!({
        "count": 2,
        "messages": [{
            "id": "agent-a::myagent::abc12300", "from_agent": "agent-a", "message": "Hello!",
            "timestamp": "2024-01-15T10:30:00Z",
        }],
    });
    for _ in 0..2 {
        let (status, body) = meshtastic.rest("GET", "/api/pending").await?;
        assert_eq!(status, 200);
        has_the_members_of(&example, &body);
        assert_eq!(
            (&body["count"], &body["messages"][0]["id"]),
            (&json!(2), &json!(ids[0]))
        );
        assert_eq!(body["messages"][1]["id"], ids[1].as_str());
    }
    let (_, body) = meshtastic.rest("GET", "/api/pending?limit=1").await?;
    assert_eq!(
        (&body["count"], body["messages"].as_array().map(Vec::len)),
        (&json!(2), Some(1))
    );
    let tracked = homeassistant
        .call("message_status", json!({"message_id": ids[0]}))
        .await?;
    assert_eq!(
        tracked["stage"], "stored",
        "a look by REST shows nothing to any model"
    );
    misses_the_header(
        Client::nameless(&served)?
            .rest("GET", "/api/pending")
            .await?,
    );
    Ok(())
}

#[tokio::test]
async fn unregister_reports_whether_the_agent_was_registered() -> Result<()> {
    let (served, _homeassistant, _meshtastic) = two_clients().await?;
    let myagent = Client::of(&served, "myagent")?;
    myagent.call("ping", json!({})).await?;
    let (status, body) = myagent.rest("POST", "/api/unregister").await?;
    assert_eq!(
        (status, body),
        (
            200,
            json!({"status": "ok", "message": "Agent 'myagent' unregistered"})
        )
    );
    let (status, body) = myagent.rest("POST", "/api/unregister").await?;
    assert_eq!(
        (status, body),
        (
            200,
            json!({"status": "ok", "message": "Agent 'myagent' was not registered"})
        )
    );
    misses_the_header(
        Client::nameless(&served)?
            .rest("POST", "/api/unregister")
            .await?,
    );
    Ok(())
}

#[tokio::test]
async fn a_connected_session_cannot_be_unregistered_by_others() -> Result<()> {
    let (served, _homeassistant, _meshtastic) = two_clients().await?;
    let mut media = served.join("media").await?;
    let (status, body) = Client::of(&served, "media")?
        .rest("POST", "/api/unregister")
        .await?;
    assert_eq!((status, &body["code"]), (409, &json!("CONFLICT")));
    assert_eq!(media.call("ping", json!({})).await?["agent_id"], "media");
    Ok(())
}

#[tokio::test]
async fn rest_keeps_the_older_name_of_a_store_that_is_away_and_tools_have_the_newer() -> Result<()>
{
    let (served, homeassistant, _meshtastic) = two_clients().await?;
    served.store.close().await;
    for (method, path) in [
        ("GET", "/api/pending"),
        ("GET", "/api/agents"),
        ("POST", "/api/unregister"),
    ] {
        let (status, body) = homeassistant.rest(method, path).await?;
        assert_eq!(
            (status, &body["code"]),
            (503, &json!("REDIS_UNAVAILABLE")),
            "{path}"
        );
    }
    let refusal = homeassistant.refused("ping", json!({})).await?;
    assert_eq!(refusal["code"], "STORE_UNAVAILABLE");
    Ok(())
}
