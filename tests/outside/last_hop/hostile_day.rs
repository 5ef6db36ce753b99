//! Actions of people and failures of services on a bad day: receipts stay true, and no message is lost or shown twice.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::claude::{Background, said};
use harness::eventually::eventually;
use harness::fake_api::{Block, Gate, Script};
use serde_json::json;
use tokio::process::Command;

use super::scene::{QUIET, RECIPIENT, REPEATED, SOON, Scene};

const QUESTION: &str = "Can you turn on the living room lights?";
const NEWS: &str = "The lights are off.";
/// How long it may take until a session with a restarted proxy is reached.
const REACHED: Duration = Duration::from_secs(20);

/// `claude -p` prints its own answer, and leaves the messages to the session for which they were sent.
#[tokio::test(flavor = "multi_thread")]
async fn one_shot_runs_answer_their_own_prompt_and_take_no_mail() -> Result<()> {
    const RESULT: &str = "THE RESULT OF THE JOB";
    let gate = Gate::new();
    let script = Script::new().when("do the job", {
        let gate = gate.clone();
        move |_| vec![Block::hold(&gate), Block::text(RESULT)]
    });
    let Some(scene) = Scene::set("a one-shot run", script).await? else {
        return Ok(());
    };
    scene.start().await?.exit().await?;
    scene.is_offline(RECIPIENT).await?;
    let waited = [scene.ask(QUESTION).await?, scene.inform(NEWS).await?];

    let before = scene.model.asked().len();
    let run = scene.claude.print(&scene.options, "do the job")?;
    scene
        .model
        .wait_for("the prompt", SOON, |asked| asked.holds("do the job"))
        .await?;
    let came = scene.ask("And the ones in the kitchen?").await?;
    tokio::time::sleep(QUIET).await;
    gate.open();
    let finished = run.finish(SOON).await?;
    ensure!(
        finished.status.success() && finished.output.contains(RESULT),
        "{} {}",
        finished.output,
        finished.log
    );
    let asked = scene.model.asked();
    assert_eq!(
        asked.len() - before,
        1,
        "it asks its model no more than without c3po"
    );
    assert!(!asked[before].holds(QUESTION) && !asked[before].holds(NEWS));
    for id in waited.iter().chain([&came]) {
        assert_eq!(scene.history(id).await?, ["stored"], "it is not this run's");
    }

    let _session = scene.start().await?;
    // An earlier message from the same sender is shown together with the question.
    let shown = scene.shown(QUESTION).await?;
    assert_eq!(
        (shown.count_of(NEWS), shown.count_of(REPEATED)),
        (1, 0),
        "{}",
        shown.new_text()
    );
    Ok(())
}

/// The left arrow moves a session into the background: another process of the client continues it, the first one only shows
/// it, and spare ones wait for the next session.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_the_background_keeps_its_name_and_gets_its_messages() -> Result<()> {
    let Some(scene) = Scene::set("a session in the background", Script::new()).await? else {
        return Ok(());
    };
    let home = scene.options.home();
    let _background = Background::of(home.clone());
    let session = scene.start().await?;
    scene.type_and_see(&session, "something").await?;
    scene.is(RECIPIENT, "ready").await?;
    session.key("Left").await?;
    let is_shown_only = async || {
        said(&home, session.claude_pid())
            .ok()?
            .get("parkedJobId")
            .map(drop)
    };
    eventually("another process continues the session", SOON, is_shown_only)
        .await
        .with_context(|| session.log())?;
    let id = scene.ask(QUESTION).await?;
    let shown = scene.shown(QUESTION).await?;
    assert!(
        shown.holds("something"),
        "the same conversation has it: {}",
        shown.new_text()
    );
    scene.reaches(&id, "seen").await?;
    let agents = scene
        .sender
        .reply("list_agents", json!({"status": "online"}))
        .await?;
    let agents = agents["agents"].as_array().context("no list")?;
    let names: Vec<_> = agents
        .iter()
        .filter_map(|agent| agent["id"].as_str())
        .collect();
    assert_eq!(
        names
            .iter()
            .filter(|name| name.starts_with(RECIPIENT))
            .collect::<Vec<_>>(),
        [&RECIPIENT],
        "{names:?}"
    );
    Ok(())
}

/// Nothing is pushed during a compaction, and the next context gets the messages that arrived meanwhile, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_during_a_compaction_starts_a_turn_after_it() -> Result<()> {
    let gate = Gate::new();
    let script = Script::new().when_it(|asked| asked.last_user_text().contains("summary"), {
        let gate = gate.clone();
        move |_| {
            vec![
                Block::hold(&gate),
                Block::text("<summary>we talked</summary>"),
            ]
        }
    });
    let Some(scene) = Scene::set("a question during a compaction", script).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    for line in ["something to sum up", "and something more"] {
        scene.type_and_see(&session, line).await?;
        scene.is(RECIPIENT, "ready").await?;
    }
    session.type_line("/compact").await?;
    scene
        .model
        .wait_for("the summary", SOON, |asked| {
            asked.last_user_text().contains("summary")
        })
        .await?;
    let id = scene.ask(QUESTION).await?;
    scene.reaches(&id, "on_host").await?;
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert_eq!(scene.history(&id).await?, ["stored", "on_host deliver"]);
    gate.open();
    scene.shown(QUESTION).await.with_context(|| session.log())?;
    scene.reaches(&id, "seen").await?;
    let later = scene.type_and_see(&session, "anything new?").await?;
    assert_eq!(
        (later.count_of(QUESTION), later.count_of(REPEATED)),
        (1, 0),
        "{}",
        later.all_text()
    );
    let screen = session.screen().await?;
    assert!(!screen.contains("has this message already"), "{screen}");
    Ok(())
}

/// If a person interrupts a turn that a push started, the message stays in the conversation and is not shown again.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_turn_was_broken_off_is_not_shown_again() -> Result<()> {
    let gate = Gate::new();
    let script = Script::new().then([Block::hold(&gate), Block::text("never")]);
    let Some(scene) = Scene::set("a turn that was broken off", script).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    let id = scene.ask(QUESTION).await?;
    scene.shown(QUESTION).await?;
    session.key("Escape").await?;
    session
        .wait_for_screen("the interruption", SOON, |screen| {
            screen.contains("Interrupted")
        })
        .await?;
    let later = scene.type_and_see(&session, "do my own thing").await?;
    ensure!(
        later.count_of(QUESTION) == 1,
        "the client keeps it: {}",
        later.all_text()
    );
    scene.reaches(&id, "seen").await?;
    let last = scene.type_and_see(&session, "and another").await?;
    assert_eq!(
        (last.count_of(QUESTION), last.count_of(REPEATED)),
        (1, 0),
        "{}",
        last.all_text()
    );
    gate.open();
    Ok(())
}

/// A failure of the model's service does not duplicate messages, and the session is woken afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_service_multiplies_no_copies_and_the_session_goes_on_after_it() -> Result<()> {
    let script = Script::new()
        .then([Block::Fail(500)])
        .then([Block::text("I have read it")]);
    let Some(scene) = Scene::set("a failing service", script).await? else {
        return Ok(());
    };
    let options = scene
        .options
        .clone()
        .environment("CLAUDE_CODE_MAX_RETRIES", "0");
    let session = scene.start_with(&options, RECIPIENT).await?;
    let id = scene.ask(QUESTION).await?;
    scene.shown(QUESTION).await?;
    scene.reaches(&id, "in_session").await?;
    let again = scene
        .model
        .wait_for("another turn", Duration::from_secs(60), |asked| {
            asked.holds("failed. Handle it now")
        })
        .await
        .with_context(|| session.log())?;
    assert_eq!(again.count_of(QUESTION), 1, "{}", again.all_text());
    scene.reaches(&id, "seen").await.map(drop)
}

/// A message that a subagent fetched is not shown to the session by that, so the session gets it too.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_a_subagent_fetched_comes_to_the_session_too() -> Result<()> {
    let script = Script::new()
        .when("wait for the mail", |_| vec![Block::call("wait_for_message", json!({"timeout": 20}))])
        .when("delegate", |_| {
            let task =
                json!({"description": "mail", "prompt": "wait for the mail", "subagent_type": "general-purpose"});
            vec![Block::call("Agent", task)]
        });
    let Some(scene) = Scene::set("a message that a subagent fetched", script).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    session.type_line("delegate").await?;
    scene
        .model
        .wait_for("the subagent", SOON, |asked| {
            asked.last_user_text().contains("wait for the mail")
        })
        .await?;
    let id = scene.ask(QUESTION).await?;
    let in_session =
        |asked: &harness::fake_api::Asked| asked.holds("delegate") && asked.holds(QUESTION);
    scene
        .model
        .wait_for("it in the session", Duration::from_secs(60), in_session)
        .await
        .with_context(|| session.log())?;
    scene.reaches(&id, "seen").await.map(drop)
}

/// A restarted proxy beside an idle session reaches it, and repeats nothing that its conversation contains.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_begins_anew_reaches_an_idle_session_and_repeats_nothing() -> Result<()> {
    let Some(scene) = Scene::set("a proxy that begins anew", Script::new()).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    let first = scene.ask(QUESTION).await?;
    scene.reaches(&first, "seen").await?;
    scene.is(RECIPIENT, "ready").await?;
    let proxy = session.proxy_pid()?.to_string();
    ensure!(
        Command::new("kill")
            .args(["-s", "KILL", &proxy])
            .status()
            .await?
            .success()
    );
    scene.is_offline(RECIPIENT).await?;
    let second = scene.ask("And the ones in the kitchen?").await?;
    // A client that has just started may have started its first proxy late.
    tokio::time::sleep(Duration::from_secs(11)).await;
    session.type_line("/mcp").await?;
    session
        .wait_for_screen("the servers", SOON, |screen| {
            screen.contains("plugin:c3po:c3po")
        })
        .await?;
    session.key("Enter").await?;
    session
        .wait_for_screen("what to do with it", SOON, |screen| {
            screen.contains("Reconnect")
        })
        .await?;
    session.key("Enter").await?;
    session
        .wait_for_screen("the reconnection", SOON, |screen| {
            screen.contains("Reconnected")
        })
        .await?;
    let shown = scene.model.wait_for("the second", REACHED, |asked| {
        asked.holds("in the kitchen?")
    });
    let shown = shown.await.with_context(|| session.log())?;
    assert_eq!(
        (shown.count_of(QUESTION), shown.count_of(REPEATED)),
        (1, 0),
        "{}",
        shown.all_text()
    );
    scene.reaches(&second, "seen").await.map(drop)
}
