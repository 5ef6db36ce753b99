//! The real Claude Code with the proxy as its server: two concurrent one-shot sessions talk to each other.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::claude::{ClaudeCode, Finished};
use harness::coordinator::Coordinator;
use harness::fake_api::{Block, FakeApi, Script};
use harness::skip::skipped;
use serde_json::json;

/// One run takes about 2 s alone; both share two cores with other tests.
const RUN: Duration = Duration::from_secs(90);
/// How long a scripted model waits for the other one, in seconds.
const WAIT: u64 = 60;
const QUESTION: &str = "What MQTT topics are available?";
const ANSWER: &str = "zigbee2mqtt/# and frigate/events";

/// Asks meshtastic, waits for the answer to that message, and repeats it.
fn asker() -> Script {
    Script::new()
        .then([Block::call(
            "send_message",
            json!({"target": "meshtastic-run", "message": QUESTION}),
        )])
        .then_with(|asked| {
            let id = &asked.tool_result()["id"];
            vec![Block::call(
                "wait_for_message",
                json!({"message_id": id, "timeout": WAIT}),
            )]
        })
        .then_with(|asked| {
            let reply = asked.tool_result();
            vec![Block::text(format!(
                "{} said: {}",
                reply["from_agent"], reply["response"]
            ))]
        })
}

/// Waits for any message, and answers it.
fn answerer() -> Script {
    Script::new()
        .then([Block::call("wait_for_message", json!({"timeout": WAIT}))])
        .then_with(|asked| {
            let id = &asked.tool_result()["id"];
            vec![Block::call(
                "reply",
                json!({"message_id": id, "response": ANSWER}),
            )]
        })
        .then([Block::text("answered")])
}

fn check_ended_well(who: &str, run: &Finished) -> Result<()> {
    ensure!(
        run.status.success(),
        "{who} ended with {}: {}\n{}",
        run.status,
        run.output,
        run.log
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_real_sessions_send_wait_and_reply_and_see_each_others_folder_names() -> Result<()> {
    let claude = match ClaudeCode::find() {
        Ok(claude) => claude,
        Err(reason) => return skipped("two real Claude Code sessions", &format!("{reason:#}")),
    };
    let work = tempfile::tempdir()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let (asking, answering) = (
        FakeApi::start(asker()).await?,
        FakeApi::start(answerer()).await?,
    );

    // The recipient starts first, because a name that was never registered is refused as a target.
    let asked = claude.ask(
        work.path(),
        "meshtastic",
        "Answer who asks.",
        &answering,
        &coordinator.url(),
    )?;
    known(&coordinator, "meshtastic-run").await?;
    let asker = claude.ask(
        work.path(),
        "homeassistant",
        "Ask for topics.",
        &asking,
        &coordinator.url(),
    )?;
    let (asker, asked) = tokio::try_join!(asker.finish(RUN), asked.finish(RUN))?;
    check_ended_well("homeassistant", &asker)?;
    check_ended_well("meshtastic", &asked)?;

    let question = answering
        .asked()
        .get(1)
        .context("meshtastic's model got no result")?
        .tool_result();
    assert_eq!(
        (&question["from_agent"], &question["message"]),
        (&json!("homeassistant-run"), &json!(QUESTION))
    );
    let reply = asking
        .asked()
        .get(2)
        .context("homeassistant's model got no answer")?
        .tool_result();
    assert_eq!(
        (&reply["from_agent"], &reply["response"]),
        (&json!("meshtastic-run"), &json!(ANSWER))
    );
    assert_eq!(
        reply["message_id"], question["id"],
        "the answer is to that very question"
    );
    assert!(
        asker.output.contains(ANSWER),
        "the session shows the answer: {}",
        asker.output
    );
    assert!(
        asking.others().is_empty() && answering.others().is_empty(),
        "nothing else is asked of the API"
    );
    Ok(())
}

/// Waits until the coordinator lists an agent.
async fn known(coordinator: &Coordinator, agent: &str) -> Result<()> {
    let address = coordinator.address();
    let name = format!("\"{agent}\"");
    let agents = async || harness::http::get(address, "/api/agents").await.ok();
    harness::eventually::eventually("the agent is known", RUN, async || {
        agents().await?.body.contains(&name).then_some(())
    })
    .await
}
