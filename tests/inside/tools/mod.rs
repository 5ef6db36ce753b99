//! Every tool, alias, error code and limit of the catalogue, over real links to a real coordinator.

mod agents;
mod asking;
mod contexts;
mod conversation;
mod errors;
mod forgeries;
mod inbox;
mod limits;
mod loops;
mod one_shots;
mod parts;
mod receipts;
mod threads;
mod waiting;

use anyhow::Result;
use harness::link::Link;
use inside::served::Served;
use serde_json::{Value, json};

/// Starts a coordinator with two agents, `homeassistant` and `meshtastic`.
async fn two_agents() -> Result<(Served, Link, Link)> {
    let served = Served::start().await?;
    let homeassistant = served.join("homeassistant").await?;
    let meshtastic = served.join("meshtastic").await?;
    Ok((served, homeassistant, meshtastic))
}

/// Returns the id of a message in a reply.
fn id(message: &Value) -> String {
    message["id"].as_str().unwrap_or_default().to_owned()
}

/// Sends a question from the first to the second agent. Returns its id.
async fn ask(link: &mut Link, text: &str) -> Result<String> {
    Ok(id(&link
        .call(
            "send_message",
            json!({"target": "meshtastic", "message": text}),
        )
        .await?))
}

/// Returns the values of one member from every element.
fn each(list: &Value, member: &str) -> Vec<String> {
    let elements = list.as_array().map(Vec::as_slice).unwrap_or_default();
    elements
        .iter()
        .map(|one| one[member].as_str().unwrap_or_default().to_owned())
        .collect()
}
