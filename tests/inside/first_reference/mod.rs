//! Every JSON example of the first API reference, requested as documented: tools over `/mcp`, the rest over REST.
//!
//! The examples are quoted unchanged. If c3po answers differently, the test shows how, and docs/API.md describes it.

mod client;
mod formats;
mod messages;
mod rest;
mod tools;
mod waiting;

use anyhow::Result;
use c3po_shared::ids::MessageId;
use c3po_shared::time::Timestamp;
use inside::served::Served;
use serde_json::Value;

use client::Client;

/// Starts a coordinator with the agents `homeassistant` and `meshtastic`, and returns their clients.
async fn two_clients() -> Result<(Served, Client, Client)> {
    let served = Served::start().await?;
    let homeassistant = Client::of(&served, "homeassistant")?;
    let meshtastic = Client::of(&served, "meshtastic")?;
    for client in [&homeassistant, &meshtastic] {
        client.call("register_agent", serde_json::json!({})).await?;
    }
    Ok((served, homeassistant, meshtastic))
}

/// Asserts that the answer has every member of the example, with the same type, kind of id and time format.
fn has_the_members_of(example: &Value, answer: &Value) {
    has_the_members_below("", example, answer);
}

fn has_the_members_below(place: &str, example: &Value, answer: &Value) {
    match (example, answer) {
        (Value::Object(example), Value::Object(answer)) => {
            for (name, value) in example {
                let place = format!("{place}.{name}");
                let Some(found) = answer.get(name) else {
                    panic!("{place} is missing in {answer:?}")
                };
                has_the_members_below(&place, value, found);
            }
        }
        (Value::Array(example), Value::Array(answer)) => {
            let Some(example) = example.first() else {
                return;
            };
            assert!(!answer.is_empty(), "{place} is empty");
            answer
                .iter()
                .for_each(|one| has_the_members_below(&format!("{place}[]"), example, one));
        }
        (Value::String(example), Value::String(answer)) => {
            if example.parse::<Timestamp>().is_ok() {
                assert!(
                    answer.parse::<Timestamp>().is_ok(),
                    "{place} is no time: {answer}"
                );
            }
            if example.parse::<MessageId>().is_ok() {
                assert!(
                    answer.parse::<MessageId>().is_ok(),
                    "{place} is no message id: {answer}"
                );
            }
        }
        (Value::Number(_), Value::Number(_)) | (Value::Bool(_), Value::Bool(_)) => {}
        _ => panic!("{place} has another type: {answer} instead of {example}"),
    }
}
