//! A busy session: messages between its steps, messages that keep its turn from ending, their order and their number.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::eventually::eventually;
use harness::fake_api::{Asked, Block, Gate, Script};
use serde_json::json;

use super::scene::{QUIET, RECIPIENT, Scene};

const QUESTION: &str = "Can you turn on the living room lights?";
/// The command of the model while messages arrive: it ends when the file exists.
const UNTIL_TOLD: &str = "until [ -e go ]; do sleep 0.05; done";

/// How soon a result that a client was given is read in its transcript: at the second time at the latest.
const READ: Duration = Duration::from_secs(7);

/// Creates a model that runs a command until the test releases it, and then ends its turn.
fn worker() -> Script {
    Script::new().then([Block::call("Bash", json!({"command": UNTIL_TOLD}))])
}

fn go_on(scene: &Scene) -> Result<()> {
    fs::write(scene.options.folder().join("go"), "").context("telling the program to go on")
}

/// Returns the position of each text. Errors: one of them is missing.
fn places(asked: &Asked, texts: &[String]) -> Result<Vec<usize>> {
    let all = asked.all_text();
    texts
        .iter()
        .map(|text| {
            all.find(&format!("> {text}\n"))
                .with_context(|| format!("no {text} in {all}"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_comes_between_two_steps_of_a_turn_once() -> Result<()> {
    let Some(scene) = Scene::set("a message in the middle of a turn", worker()).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    scene.type_and_see(&session, "work").await?;
    scene.is(RECIPIENT, "busy").await?;
    let id = scene.ask(QUESTION).await?;
    let news = scene.inform("The lights are off.").await?;
    for id in [&id, &news] {
        scene.reaches(id, "on_host").await?;
    }
    go_on(&scene)?;

    let asked = scene.shown(QUESTION).await?;
    assert!(
        asked.new_text().contains("PostToolBatch"),
        "{}",
        asked.new_text()
    );
    assert_eq!(
        scene.model.asked().len(),
        2,
        "it comes with the result of the tool"
    );
    for id in [&id, &news] {
        let history = scene.reaches(id, "seen").await?;
        let (seen, before) = history.split_last().context("a history")?;
        assert_eq!(
            before,
            ["stored", "on_host deliver", "in_session post_tool_batch"]
        );
        // The hook at the end of the turn, or the client's own record before it.
        assert!(
            ["seen hook", "seen transcript"].contains(&seen.as_str()),
            "{seen}"
        );
    }
    scene.is(RECIPIENT, "ready").await?;
    let later = scene.type_and_see(&session, "anything new?").await?;
    assert_eq!(
        (
            later.count_of(QUESTION),
            later.count_of("The lights are off.")
        ),
        (1, 1),
        "{}",
        later.all_text()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_keeps_a_turn_from_ending_once_and_news_does_not() -> Result<()> {
    let gates = [Gate::new(), Gate::new()];
    let script = Script::new()
        .then([Block::hold(&gates[0]), Block::text("done")])
        .then([Block::hold(&gates[1]), Block::text("and this is done")]);
    let Some(scene) = Scene::set("a message at the end of a turn", script).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    scene.type_and_see(&session, "work").await?;
    let id = scene.ask(QUESTION).await?;
    scene.reaches(&id, "on_host").await?;
    gates[0].open();
    let asked = scene.shown(QUESTION).await?;
    assert_eq!(asked.count_of(QUESTION), 1, "{}", asked.new_text());

    let news = scene.inform("The lights are off.").await?;
    scene.reaches(&news, "on_host").await?;
    gates[1].open();
    let history = scene.reaches(&id, "seen").await?;
    assert_eq!(
        history,
        ["stored", "on_host deliver", "in_session stop", "seen hook"]
    );
    scene.is(RECIPIENT, "ready").await?;
    assert!(
        scene
            .model
            .wait_for("a third", QUIET, |_| scene.model.asked().len() > 2)
            .await
            .is_err()
    );

    let later = scene.type_and_see(&session, "anything new?").await?;
    assert_eq!(
        (
            later.count_of(QUESTION),
            later.count_of("The lights are off.")
        ),
        (1, 1),
        "{}",
        later.all_text()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_seen_after_the_end_of_its_step_although_its_client_has_written_it()
-> Result<()> {
    let gate = Gate::new();
    let answer = [Block::hold(&gate), Block::text("I see")];
    let script = Script::new()
        .when("wait and work", |_| {
            vec![
                Block::call("wait_for_message", json!({})),
                Block::call("Bash", json!({"command": UNTIL_TOLD})),
            ]
        })
        .when("The lights are off.", move |_| answer.to_vec());
    let Some(scene) = Scene::set("a result in a long step", script).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    scene.offers_tools(&session).await?;
    scene.type_and_see(&session, "wait and work").await?;
    scene.is(RECIPIENT, "busy").await?;
    let id = scene.inform("The lights are off.").await?;
    scene.reaches(&id, "in_session").await?;
    // The client writes the result before the other tool has ended.
    tokio::time::sleep(READ).await;
    go_on(&scene)?;
    scene.shown("The lights are off.").await?;
    let early = eventually("an early receipt", QUIET / 2, async || {
        let history = scene.history(&id).await.ok()?;
        history
            .iter()
            .any(|step| step.starts_with("seen"))
            .then_some(history)
    });
    assert_eq!(
        early.await.ok(),
        None,
        "the request that holds it is not answered"
    );
    gate.open();
    scene.reaches(&id, "seen").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_reaches_a_busy_session_in_order_and_urgent_ones_first() -> Result<()> {
    let Some(scene) = Scene::set("a burst of messages", worker()).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    scene.type_and_see(&session, "work").await?;
    let (mut urgent, mut normal, mut last) = (Vec::new(), Vec::new(), String::new());
    for number in 0..20 {
        let body = format!("burst number {number:02}");
        let priority = if number % 7 == 5 { "urgent" } else { "normal" };
        last = scene
            .send(json!({"target": RECIPIENT, "message": body, "priority": priority}))
            .await?;
        if priority == "urgent" {
            &mut urgent
        } else {
            &mut normal
        }
        .push(body);
    }
    scene.reaches(&last, "on_host").await?;
    go_on(&scene)?;

    let asked = scene.shown(&normal[normal.len() - 1]).await?;
    let expected: Vec<String> = urgent.into_iter().chain(normal).collect();
    let places = places(&asked, &expected)?;
    assert!(places.is_sorted(), "{places:?}: {}", asked.new_text());
    assert!(
        asked.holds("[c3po] 20 messages for meshtastic"),
        "{}",
        asked.new_text()
    );
    scene.reaches(&last, "seen").await?;
    let later = scene.type_and_see(&session, "anything new?").await?;
    assert_eq!(later.count_of("burst number"), 20, "each comes once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_reaches_an_idle_session_in_order_each_once() -> Result<()> {
    let Some(scene) = Scene::set("a burst for an idle session", Script::new()).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    let bodies: Vec<_> = (0..20)
        .map(|number| format!("burst number {number:02}"))
        .collect();
    let mut ids = Vec::new();
    for body in &bodies {
        ids.push(scene.ask(body).await?);
    }
    for id in &ids {
        scene.reaches(id, "seen").await?;
    }
    let later = scene.type_and_see(&session, "anything new?").await?;
    let places = places(&later, &bodies)?;
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(later.count_of("burst number"), 20, "each comes once");
    Ok(())
}
