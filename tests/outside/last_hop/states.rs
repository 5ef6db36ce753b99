//! The state of a session, which its hooks report to others within a second, and interruptions of a turn by a person.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::eventually::eventually;
use harness::fake_api::{Block, Gate, Script};
use serde_json::json;

use super::scene::{RECIPIENT, SOON, Scene};

/// How soon other agents see the state, on a machine that runs other tests at the same time.
const TOLD: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_busy_while_it_works_and_waiting_while_it_asks() -> Result<()> {
    let gate = Gate::new();
    let script = Script::new()
        .then([
            Block::hold(&gate),
            Block::call("Write", json!({"file_path": "note.txt", "content": "x"})),
        ])
        .otherwise([Block::text("done")]);
    let Some(scene) = Scene::set("the states of a session", script).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    session.type_line("write a note").await?;
    scene.is(RECIPIENT, "busy").await?;
    gate.open();
    session
        .wait_for_screen("the question", SOON, |screen| {
            screen.contains("Do you want to")
        })
        .await?;
    let asked = Instant::now();
    scene.is(RECIPIENT, "waiting_human").await?;
    assert!(asked.elapsed() < TOLD, "{:?}", asked.elapsed());
    // The dialog ignores keys in its first moments.
    eventually("the answer", SOON, async || {
        let asks = session.screen().await.ok()?.contains("Do you want to");
        if asks {
            session.key("Enter").await.ok()?;
        }
        (!asks).then_some(())
    })
    .await?;
    session
        .wait_for_screen("the end", SOON, |screen| screen.contains("done"))
        .await?;
    let ended = Instant::now();
    scene.is(RECIPIENT, "ready").await?;
    assert!(ended.elapsed() < TOLD, "{:?}", ended.elapsed());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_a_turn_that_was_broken_off_is_not_left_lying() -> Result<()> {
    /// The silence after which the turn of a session counts as interrupted.
    const SILENCE: Duration = Duration::from_secs(15);
    let script = Script::new().then([Block::call(
        "Bash",
        json!({"command": "until [ -e go ]; do sleep 0.05; done"}),
    )]);
    let Some(scene) = Scene::set("a turn that was broken off", script).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    session.type_line("work").await?;
    session
        .wait_for_screen("the program", SOON, |screen| screen.contains("Running"))
        .await?;
    session.key("Escape").await?;
    session
        .wait_for_screen("the interruption", SOON, |screen| {
            screen.contains("Interrupted")
        })
        .await?;
    let id = scene.ask("Are you there?").await?;
    scene.reaches(&id, "on_host").await?;
    let woken =
        |asked: &harness::fake_api::Asked| asked.offers_tools() && asked.holds("Are you there?");
    let asked = scene
        .model
        .wait_for("the message", SILENCE + SOON, woken)
        .await?;
    assert_eq!(asked.count_of("Are you there?"), 1);
    let history = scene.reaches(&id, "seen").await?;
    assert_eq!(
        history,
        [
            "stored",
            "on_host deliver",
            "in_session inbox_socket",
            "seen transcript"
        ]
    );
    Ok(())
}

/// No hook reports that such a session has started, but its client's session file does.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_hooks_has_started_within_twenty_seconds() -> Result<()> {
    const STARTED: Duration = Duration::from_secs(20);
    let Some(scene) = Scene::set("a session without hooks", Script::new()).await? else {
        return Ok(());
    };
    let bare = scene.options.clone().arguments(["--bare"]);
    let without_hooks = scene
        .options
        .clone()
        .settings(json!({"disableAllHooks": true}));
    for options in [bare, without_hooks] {
        let session = scene.claude.interactive(&options).await?;
        let began = Instant::now();
        let agent = scene
            .is(RECIPIENT, "ready")
            .await
            .with_context(|| session.log())?;
        ensure!(began.elapsed() < STARTED, "{:?}", began.elapsed());
        assert_eq!(
            agent["reach"],
            json!(["wait_for_message", "get_messages"]),
            "{agent}"
        );
        session.exit().await?;
        scene.is_offline(RECIPIENT).await?;
    }
    Ok(())
}
