//! Two sessions in one folder, or one inside another: each has its own name and proxy, and an abandoned name is taken up again.

use std::{fs, process};

use anyhow::{Result, ensure};
use harness::coordinator::Coordinator;
use harness::fake_api::{FakeApi, Script};
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::{proxy_command, session};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::time::timeout;

use super::scene::{QUIET, RECIPIENT, SOON, Scene};

const SECOND: &str = "meshtastic-2";

#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_in_one_folder_have_their_own_names_and_mail() -> Result<()> {
    let Some(scene) = Scene::set("two sessions in one folder", Script::new()).await? else {
        return Ok(());
    };
    let first = scene.start().await?;
    let other = FakeApi::start(Script::new()).await?;
    let second = scene
        .start_with(&scene.options.clone().model(&other), SECOND)
        .await?;

    scene
        .send(json!({"target": SECOND, "message": "only for the second"}))
        .await?;
    let asked = other
        .wait_for("its mail", SOON, |asked| asked.holds("only for the second"))
        .await?;
    assert!(
        asked.holds(&format!("[c3po] Your agent id is {SECOND}:")),
        "{}",
        asked.all_text()
    );
    scene.ask("only for the first").await?;
    let asked = scene.shown("only for the first").await?;
    assert!(
        !asked.holds("only for the second") && !asked.holds(SECOND),
        "{}",
        asked.all_text()
    );
    let stray = other
        .wait_for("another's mail", QUIET, |asked| {
            asked.holds("only for the first")
        })
        .await;
    assert!(stray.is_err(), "each hook talks to its own proxy");

    first.exit().await?;
    scene.is_offline(RECIPIENT).await?;
    let late = scene.ask("for whoever comes next").await?;
    let third = scene.start().await?;
    // It is woken for its messages, or was informed of them at its start.
    scene.type_and_see(&third, "any mail?").await?;
    let asked = scene.shown("for whoever comes next").await?;
    assert!(asked.holds("only for the first"), "{}", asked.all_text());
    scene.reaches(&late, "seen").await?;
    scene.is(SECOND, "ready").await?;
    drop(second);
    Ok(())
}

#[tokio::test]
async fn only_the_inbox_of_its_own_client_gets_the_messages_of_a_session() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let input = work.path().join("input");
    fs::write(&input, r#"{"session_id": "s1", "source": "startup"}"#)?;
    let (mut inboxes, mut sessions) = (Vec::new(), Vec::new());
    for (agent, client) in [("inside", 1), ("outside", process::id())] {
        let inbox = work.path().join(format!("{client}.sock"));
        inboxes.push(UnixListener::bind(&inbox)?);
        let mut proxy = proxy_command(work.path(), agent, &coordinator.url())?;
        proxy.env("CLAUDE_CODE_MESSAGING_SOCKET", &inbox);
        let client = McpClient::start(proxy, &work.path().join(format!("{agent}.log")))?;
        client.initialize().await?;
        client.reply("ping", json!({})).await?;
        sessions.push(client);
    }
    // An older client hands the variables on to its hooks, too. The first proxy answers them.
    let mut hook = command(program("c3po")?, work.path());
    hook.args(["hook", "session-start"])
        .env("XDG_RUNTIME_DIR", work.path())
        .env("CLAUDE_PID", process::id().to_string())
        .env("CLAUDE_CODE_MESSAGING_SOCKET", work.path().join("1.sock"))
        .stdin(fs::File::open(&input)?);
    ensure!(hook.status().await?.success(), "a hook ends with 0");
    let sender = session(work.path(), "sender", &coordinator.url()).await?;
    for agent in ["inside", "outside"] {
        let message = json!({"target": agent, "message": "hi"});
        sender.reply("send_message", message).await?;
    }
    timeout(SOON, inboxes[1].accept()).await??;
    let stray = timeout(QUIET, inboxes[0].accept()).await;
    assert!(stray.is_err(), "the client above gets no message");
    Ok(())
}
