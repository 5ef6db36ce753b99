//! Messages that are longer than a result.

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::proxy::session;
use serde_json::{Value, json};
use tempfile::TempDir;

/// More characters than a result has bytes.
const LONG: usize = 27_000;

#[tokio::test]
async fn a_message_that_a_dead_session_was_shown_in_part_is_marked() -> Result<()> {
    check("wait_for_message", |_| json!({"timeout": 10})).await
}

#[tokio::test]
async fn a_message_of_which_a_dead_session_read_a_part_in_its_thread_is_marked() -> Result<()> {
    check("get_thread", |id| json!({"message_id": id})).await
}

/// Has a session read a part of a message by that tool, and checks that its successor knows.
async fn check(tool: &str, arguments: impl Fn(&str) -> Value) -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let sender = session(work.path(), "sender", &coordinator.url()).await?;
    let mut killed = session(work.path(), "reader", &coordinator.url()).await?;
    killed.reply("ping", json!({})).await?;
    let long = json!({"target": "reader", "message": "x".repeat(LONG)});
    let sent = sender.reply("send_message", long).await?;
    let id = sent["id"].as_str().context("an id")?;
    let first = killed.reply(tool, arguments(id)).await?;
    let first = first.pointer("/messages/0").unwrap_or(&first);
    ensure!(
        first["rest"] != Value::Null && first["repeated"] == Value::Null,
        "{first}"
    );
    killed.process().kill().await?;
    let next = session(work.path(), "reader", &coordinator.url()).await?;
    let again = next
        .reply("wait_for_message", json!({"timeout": 10}))
        .await?;
    assert_eq!(
        (&again["id"], &again["repeated"]),
        (&sent["id"], &json!(true))
    );
    Ok(())
}
