//! The tools ping, list_agents and register_agent.

use anyhow::Result;
use c3po_shared::limits::HTTP_PRESENCE;
use serde_json::json;

use super::{Client, has_the_members_of, two_clients};

#[tokio::test]
async fn ping_confirms_that_the_coordinator_is_reachable() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    let example = json!({"pong": true, "timestamp": "2024-01-15T10:30:00Z"});
    let pong = homeassistant.call("ping", json!({})).await?;
    has_the_members_of(&example, &pong);
    assert_eq!(
        (&pong["pong"], &pong["agent_id"]),
        (&json!(true), &json!("homeassistant"))
    );
    Ok(())
}

#[tokio::test]
async fn list_agents_returns_the_list_in_an_object() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    homeassistant
        .call(
            "register_agent",
            json!({"capabilities": ["mqtt", "automations"]}),
        )
        .await?;
    let example = json!([{
        "id": "homeassistant", "status": "online", "capabilities": [], "registered_at": "2024-01-15T10:00:00Z",
        "last_seen": "2024-01-15T10:30:00Z",
    }]);
    let list = homeassistant.call("list_agents", json!({})).await?;
    has_the_members_of(&example, &list["agents"]);
    assert_eq!(list["you"], "homeassistant");
    let first = &list["agents"][0];
    assert_eq!(
        (&first["id"], &first["capabilities"]),
        (&json!("homeassistant"), &json!(["mqtt", "automations"]))
    );
    assert_eq!(first["status"], "online");
    Ok(())
}

#[tokio::test]
async fn list_agents_has_pages() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    let first = homeassistant
        .call("list_agents", json!({"limit": 1}))
        .await?;
    assert_eq!(first["agents"][0]["id"], "homeassistant");
    let rest = homeassistant
        .call(
            "list_agents",
            json!({"limit": 1, "cursor": first["next_cursor"]}),
        )
        .await?;
    assert_eq!(
        (&rest["agents"][0]["id"], rest.get("next_cursor")),
        (&json!("meshtastic"), None)
    );
    Ok(())
}

#[tokio::test]
async fn an_agent_is_online_for_ninety_seconds_after_a_request_and_takes_messages_after_that()
-> Result<()> {
    let (served, homeassistant, _meshtastic) = two_clients().await?;
    assert_eq!(HTTP_PRESENCE.as_secs(), 90);
    let meshtastic = served
        .store
        .agent(&"meshtastic".parse()?)
        .await?
        .expect("known");
    let held = meshtastic.held_until.since(meshtastic.last_seen);
    assert_eq!(held, HTTP_PRESENCE);

    let (status, _) = Client::of(&served, "meshtastic")?
        .rest("POST", "/api/unregister")
        .await?;
    assert_eq!(status, 200);
    Client::of(&served, "meshtastic")?
        .call("ping", json!({}))
        .await?;
    homeassistant.send("meshtastic", "for later").await?;
    Client::of(&served, "meshtastic")?
        .rest("POST", "/api/unregister")
        .await?;
    let record = homeassistant
        .call("get_agent_status", json!({"agent_id": "meshtastic"}))
        .await?;
    assert_eq!(
        (&record["status"], &record["pending"]),
        (&json!("offline"), &json!(1))
    );
    homeassistant.send("meshtastic", "and another").await?;
    Ok(())
}

#[tokio::test]
async fn register_agent_confirms_the_record() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    let example = json!({
        "id": "homeassistant", "capabilities": ["mqtt", "automations"], "registered_at": "2024-01-15T10:00:00Z",
        "last_seen": "2024-01-15T10:30:00Z", "status": "online",
    });
    let record = homeassistant
        .call(
            "register_agent",
            json!({"capabilities": ["mqtt", "automations"]}),
        )
        .await?;
    has_the_members_of(&example, &record);
    for member in ["id", "capabilities", "status"] {
        assert_eq!(record[member], example[member], "{member}");
    }
    Ok(())
}

#[tokio::test]
async fn a_client_takes_its_name_from_the_header_and_from_nowhere_else() -> Result<()> {
    let (_served, homeassistant, _meshtastic) = two_clients().await?;
    let same = homeassistant
        .call("register_agent", json!({"name": "homeassistant"}))
        .await?;
    assert_eq!(same["id"], "homeassistant");
    let other = homeassistant
        .refused("register_agent", json!({"name": "meshtastic"}))
        .await?;
    assert_eq!(other["code"], "NOT_SUPPORTED");
    Ok(())
}

#[tokio::test]
async fn an_agent_is_registered_by_its_first_call() -> Result<()> {
    let (served, homeassistant, _meshtastic) = two_clients().await?;
    Client::of(&served, "media")?
        .call("ping", json!({}))
        .await?;
    let record = homeassistant
        .call("get_agent_status", json!({"agent_id": "media"}))
        .await?;
    assert_eq!(
        (&record["id"], &record["status"]),
        (&json!("media"), &json!("online"))
    );
    Ok(())
}

#[tokio::test]
async fn every_tool_needs_the_header_that_names_the_agent() -> Result<()> {
    let (served, _homeassistant, _meshtastic) = two_clients().await?;
    for tool in ["ping", "list_agents", "get_messages", "wait_for_message"] {
        let refusal = Client::nameless(&served)?.refused(tool, json!({})).await?;
        assert_eq!(
            (&refusal["error"], &refusal["code"]),
            (
                &json!("Missing X-Agent-ID header"),
                &json!("INVALID_REQUEST")
            ),
            "{tool}"
        );
    }
    Ok(())
}
