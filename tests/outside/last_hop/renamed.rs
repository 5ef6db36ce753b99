//! A session that takes another name.

use std::time::Duration;

use anyhow::Result;
use harness::coordinator::Coordinator;
use harness::proxy::session;
use serde_json::{Value, json};
use tempfile::TempDir;

#[tokio::test]
async fn a_wait_brings_no_message_of_a_former_name() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let sender = session(work.path(), "sender", &coordinator.url()).await?;
    let renamed = session(work.path(), "former", &coordinator.url()).await?;
    let wait = json!({"timeout": 20});
    let waiting = renamed.begin_call("wait_for_message", wait.clone()).await?;
    // Calls of a link begin in order.
    renamed.reply("ping", json!({})).await?;
    let name = json!({"name": "latter"});
    renamed.reply("register_agent", name).await?;
    let send = async |target: &str| {
        let message = json!({"target": target, "message": "hi", "requires_response": false});
        sender.reply("send_message", message).await
    };
    let for_former = send("former").await?;
    let for_latter = send("latter").await?;
    let result = renamed.call_result(waiting, Duration::from_secs(20));
    assert_eq!(result.await?.json()?["id"], for_latter["id"]);
    let next = session(work.path(), "former", &coordinator.url()).await?;
    let first = next.reply("wait_for_message", wait).await?;
    assert_eq!(
        (&first["id"], &first["repeated"]),
        (&for_former["id"], &Value::Null)
    );
    Ok(())
}

#[tokio::test]
async fn a_wait_that_passed_over_a_message_of_a_former_name_reports_no_message() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let sender = session(work.path(), "sender", &coordinator.url()).await?;
    let renamed = session(work.path(), "former", &coordinator.url()).await?;
    let wait = json!({"timeout": 6});
    let waiting = renamed.begin_call("wait_for_message", wait).await?;
    renamed.reply("ping", json!({})).await?;
    let name = json!({"name": "latter"});
    renamed.reply("register_agent", name).await?;
    let message = json!({"target": "former", "message": "hi", "requires_response": false});
    sender.reply("send_message", message).await?;
    let result = renamed.call_result(waiting, Duration::from_secs(20));
    let result = result.await?.json()?;
    assert_eq!(result["waited_seconds"], 6, "{result}");
    let suggestion = &result["suggestion"];
    assert!(
        suggestion
            .as_str()
            .is_some_and(|text| text.starts_with("No messages are pending")),
        "{result}"
    );
    Ok(())
}
