//! Notes on the desktop in the real client: they reach the terminal when a session asks for a person, and change nothing else.

use std::fs;

use anyhow::{Context, Result, ensure};
use harness::eventually::eventually;
use harness::fake_api::{Asked, Block, Script};
use serde_json::json;

use super::scene::{RECIPIENT, SOON, Scene};

/// Begins a note of c3po on a terminal.
const NOTE: &str = "\u{1b}]9;c3po: ";

/// Returns a model that asks people and leaves a notice when it is told so.
fn asker() -> Script {
    let ask = json!({"question": "Which one?", "timeout": 1, "needs_person": true});
    let notify = json!({"message": "It is done."});
    Script::new()
        .when("ask them", move |_| {
            vec![Block::call("ask_user", ask.clone())]
        })
        .when("tell them", move |_| {
            vec![Block::call("notify_user", notify.clone())]
        })
        .when("list them", |_| vec![Block::call("list_agents", json!({}))])
        .otherwise([Block::text("as you say")])
}

/// Has the session ask people, leave a notice and list agents. Returns what came to its terminal.
async fn shown(scene: &Scene) -> Result<String> {
    let session = scene.start().await?;
    scene.offers_tools(&session).await?;
    let record = scene.work().join("terminal");
    session.record(&record).await?;
    for (line, result) in [
        ("ask them", "waited_seconds"),
        ("tell them", "receipt"),
        ("list them", "agents"),
    ] {
        session.type_line(line).await?;
        let is_it = |asked: &Asked| asked.holds(line) && !asked.tool_result()[result].is_null();
        let asked = scene.model.wait_for(line, SOON, is_it).await;
        let asked = asked.with_context(|| session.log())?;
        ensure!(!asked.holds("]9;"), "a note is not for the model");
        scene.is(RECIPIENT, "ready").await?;
    }
    // Between words the client may move the cursor. Each note was sent before the answer of its turn.
    eventually("the answers on the terminal", SOON, async || {
        let shown = String::from_utf8_lossy(&fs::read(&record).ok()?).into_owned();
        shown.contains("say").then_some(shown)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_note_reaches_the_terminal_when_a_session_asks_for_a_person() -> Result<()> {
    let Some(mut scene) = Scene::set("notes on the desktop", asker()).await? else {
        return Ok(());
    };
    scene.options = scene
        .options
        .clone()
        .environment("C3PO_DESKTOP_NOTES", "true");
    let shown = shown(&scene).await?;
    let notes: Vec<_> = shown
        .split(NOTE)
        .skip(1)
        .filter_map(|rest| rest.split('\u{7}').next())
        .collect();
    let asks = format!("{RECIPIENT} asks you a question");
    let leaves = format!("{RECIPIENT} has a notice for you");
    assert_eq!(notes, [asks, leaves]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_note_reaches_the_terminal_unless_it_is_turned_on() -> Result<()> {
    let Some(scene) = Scene::set("no notes on the desktop", asker()).await? else {
        return Ok(());
    };
    let shown = shown(&scene).await?;
    ensure!(!shown.contains(NOTE), "{shown}");
    Ok(())
}
