//! A real client without hooks: the messages that it fetches itself, and the receipts for the sender.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::fake_api::{Block, FakeApi, Script};
use harness::mcp::McpClient;
use harness::opencode::Opencode;
use harness::proxy::session;
use harness::skip::skipped;
use serde_json::{Value, json};

/// One run takes a few seconds alone, and shares two cores with other tests.
const RUN: Duration = Duration::from_secs(90);
/// How long the scripted model waits for a message, in seconds.
const WAIT: u64 = 60;
const QUESTION: &str = "What MQTT topics are available?";
const ANSWER: &str = "zigbee2mqtt/# and frigate/events";

/// Waits for a message, looks at the inbox, and answers the question.
fn answerer() -> Script {
    Script::new()
        .then([Block::call("wait_for_message", json!({"timeout": WAIT}))])
        .then([Block::call("get_messages", json!({}))])
        .then_with(|asked| {
            let id = &asked.tool_result()["messages"][0]["id"];
            vec![Block::call(
                "reply",
                json!({"message_id": id, "response": ANSWER}),
            )]
        })
        .then([Block::text("answered")])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_opencode_waits_reads_and_replies_and_the_sender_knows_how_far_it_got() -> Result<()>
{
    let opencode = match Opencode::find() {
        Ok(opencode) => opencode,
        Err(reason) => return skipped("a real opencode session", &format!("{reason:#}")),
    };
    let work = tempfile::tempdir()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let model = FakeApi::start(answerer()).await?;
    let mut asked = opencode.ask(
        work.path(),
        "meshtastic",
        "Answer who asks.",
        &model,
        &coordinator.url(),
    )?;
    let asker = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let recipient = listed(&asker, "meshtastic").await?;
    assert_eq!(recipient["status"], "online");
    assert_eq!(
        recipient["reach"],
        json!(["wait_for_message", "get_messages"]),
        "there are no hooks: {recipient}"
    );

    let sent = asker
        .reply(
            "send_message",
            json!({"target": "meshtastic", "message": QUESTION}),
        )
        .await?;
    let wait = json!({"message_id": sent["id"], "timeout": WAIT});
    let reply = asker.reply("wait_for_message", wait).await?;
    assert_eq!(
        (&reply["from_agent"], &reply["response"]),
        (&json!("meshtastic"), &json!(ANSWER))
    );
    let status = asked.end(RUN).await?;
    ensure!(status.success(), "opencode ended with {status}");

    let shown = model.asked();
    let waited = shown
        .iter()
        .find(|asked| asked.holds(QUESTION))
        .context("its model was never shown the question")?;
    assert_eq!(waited.tool_result()["message"], QUESTION);
    let history = asker
        .reply("message_status", json!({"message_id": sent["id"]}))
        .await?["history"]
        .clone();
    let steps = history.as_array().context("no history")?;
    assert_eq!(
        each(steps, "stage"),
        ["stored", "on_host", "in_session", "seen", "answered"]
    );
    assert_eq!(steps[2]["via"], "wait_for_message");
    Ok(())
}

/// Waits until an agent is listed, and returns its record.
async fn listed(asker: &McpClient, name: &str) -> Result<Value> {
    eventually("the agent is listed", RUN, async || {
        let agents = asker.reply("list_agents", json!({})).await.ok()?;
        agents["agents"]
            .as_array()?
            .iter()
            .find(|agent| agent["id"] == name)
            .cloned()
    })
    .await
}

fn each<'a>(values: &'a [Value], field: &str) -> Vec<&'a str> {
    values
        .iter()
        .map(|value| value[field].as_str().unwrap_or_default())
        .collect()
}
