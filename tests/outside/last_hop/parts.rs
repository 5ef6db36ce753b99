//! Messages that are longer than a result.

use anyhow::{Result, ensure};
use harness::coordinator::Coordinator;
use harness::proxy::session;
use serde_json::{Value, json};
use tempfile::TempDir;

/// More characters than a result has bytes.
const LONG: usize = 27_000;

#[tokio::test]
async fn a_message_that_a_dead_session_was_shown_in_part_is_marked() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let sender = session(work.path(), "sender", &coordinator.url()).await?;
    let mut killed = session(work.path(), "reader", &coordinator.url()).await?;
    killed.reply("ping", json!({})).await?;
    let long = json!({"target": "reader", "message": "x".repeat(LONG)});
    let sent = sender.reply("send_message", long).await?;
    let wait = json!({"timeout": 10});
    let first = killed.reply("wait_for_message", wait.clone()).await?;
    ensure!(
        first["rest"] != Value::Null && first["repeated"] == Value::Null,
        "{}",
        first["rest"]
    );
    killed.process().kill().await?;
    let next = session(work.path(), "reader", &coordinator.url()).await?;
    let again = next.reply("wait_for_message", wait).await?;
    assert_eq!(
        (&again["id"], &again["repeated"]),
        (&sent["id"], &json!(true))
    );
    Ok(())
}
