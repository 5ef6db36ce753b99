//! Messages that a session was shown and has not settled are shown in its next context again, exactly once.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use c3po_shared::limits::SILENCE_MAX;
use harness::claude::Interactive;
use harness::eventually::eventually;
use harness::fake_api::Script;
use tokio::process::Command;

use super::scene::{RECIPIENT, REPEATED, SOON, Scene};

const QUESTION: &str = "Can you turn on the living room lights?";
const SECOND: &str = "And the ones in the kitchen?";

/// Starts a session that was shown a question and has not answered it.
async fn with_a_question(test: &str) -> Result<Option<(Scene, Interactive, String)>> {
    let Some(scene) = Scene::set(test, Script::new()).await? else {
        return Ok(None);
    };
    let session = scene.start().await?;
    let id = scene.ask(QUESTION).await?;
    scene.reaches(&id, "seen").await?;
    scene.is(RECIPIENT, "ready").await?;
    Ok(Some((scene, session, id)))
}

/// Waits until the agent of a session that was just killed is offline.
async fn is_no_ghost(scene: &Scene) -> Result<()> {
    let killed = Instant::now();
    scene.is_offline(RECIPIENT).await?;
    ensure!(
        killed.elapsed() < SILENCE_MAX,
        "a ghost for {:?}",
        killed.elapsed()
    );
    Ok(())
}

/// Waits until the session was shown the question again, in a person's turn or by a push, and not more often.
///
/// `times` is the expected number of repeated copies in its conversation.
async fn is_repeated(scene: &Scene, session: &Interactive, times: usize) -> Result<()> {
    scene.type_and_see(session, "what is to be done?").await?;
    scene
        .model
        .wait_for(REPEATED, SOON, |asked| asked.count_of(REPEATED) == times)
        .await?;
    scene.is(RECIPIENT, "ready").await?;
    let later = scene
        .type_and_see(session, &format!("and what else, {times}?"))
        .await?;
    assert_eq!(later.count_of(REPEATED), times, "{}", later.all_text());
    Ok(())
}

/// Waits until the message's history names both contexts in which it was shown. `seen` occurs only once.
async fn is_in_two_contexts(scene: &Scene, id: &str) -> Result<()> {
    let (mut history, mut stages) = (Vec::new(), Vec::new());
    let twice = eventually("a second context", SOON, async || {
        history = scene.history(id).await.ok()?;
        stages = history
            .iter()
            .filter_map(|step| step.split(' ').next())
            .map(str::to_owned)
            .collect();
        (stages == ["stored", "on_host", "in_session", "seen", "in_session"]).then_some(())
    });
    twice
        .await
        .with_context(|| format!("the history of {id}: {history:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cleared_session_is_shown_its_unsettled_messages_once_more() -> Result<()> {
    let Some((scene, session, id)) = with_a_question("a cleared session").await? else {
        return Ok(());
    };
    let before = session.session_id()?;
    session.type_line("/clear").await?;
    eventually("another conversation", SOON, async || {
        session
            .session_id()
            .is_ok_and(|now| now != before)
            .then_some(())
    })
    .await?;
    scene.is(RECIPIENT, "ready").await?;
    is_repeated(&scene, &session, 1).await?;
    let asked = scene.model.asked();
    assert_eq!(
        asked.last().context("no request")?.count_of(QUESTION),
        1,
        "the new context holds it once"
    );
    is_in_two_contexts(&scene, &id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_session_is_shown_its_unsettled_messages_once_more() -> Result<()> {
    let Some((scene, session, id)) = with_a_question("a compacted session").await? else {
        return Ok(());
    };
    for line in ["something to sum up", "and something more"] {
        scene.type_and_see(&session, line).await?;
        scene.is(RECIPIENT, "ready").await?;
    }
    let before = scene.model.asked().len();
    session.type_line("/compact").await?;
    scene
        .model
        .wait_for("a summary", SOON, |_| scene.model.asked().len() > before)
        .await?;
    session
        .wait_for_screen("the end of the compaction", SOON, |screen| {
            screen.contains("Compacted")
        })
        .await?;
    scene.is(RECIPIENT, "ready").await?;
    is_repeated(&scene, &session, 1).await?;
    is_in_two_contexts(&scene, &id).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continued_session_is_shown_its_unsettled_messages_once_more() -> Result<()> {
    let Some((scene, session, _)) = with_a_question("a continued session").await? else {
        return Ok(());
    };
    let id = session.session_id()?;
    session.exit().await?;
    scene.is_offline(RECIPIENT).await?;
    let session = scene
        .start_with(&scene.options.clone().arguments(["-c"]), RECIPIENT)
        .await?;
    is_repeated(&scene, &session, 1).await?;
    session.exit().await?;
    scene.is_offline(RECIPIENT).await?;

    let session = scene
        .start_with(
            &scene.options.clone().arguments(["--resume", &id]),
            RECIPIENT,
        )
        .await?;
    is_repeated(&scene, &session, 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_session_leaves_no_ghost_and_its_name_and_mail_to_the_next() -> Result<()> {
    let Some((scene, session, id)) = with_a_question("a killed session").await? else {
        return Ok(());
    };
    session.kill("KILL").await?;
    is_no_ghost(&scene).await?;
    let second = scene.ask(SECOND).await?;
    assert_eq!(scene.history(&second).await?, ["stored"]);

    let session = scene.start().await?;
    is_repeated(&scene, &session, 1).await?;
    let later = scene.model.asked().pop().context("no request")?;
    assert_eq!(
        (later.count_of(QUESTION), later.count_of(SECOND)),
        (1, 1),
        "{}",
        later.all_text()
    );
    for id in [&id, &second] {
        scene.reaches(id, "seen").await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_proxy_was_killed_works_on_and_the_next_one_gets_its_mail() -> Result<()> {
    let Some((scene, session, _)) = with_a_question("a killed proxy").await? else {
        return Ok(());
    };
    let proxy = session.proxy_pid()?.to_string();
    let killed = Command::new("kill")
        .args(["-s", "KILL", &proxy])
        .status()
        .await?;
    assert!(killed.success());
    is_no_ghost(&scene).await?;
    let second = scene.ask(SECOND).await?;
    let asked = scene.type_and_see(&session, "are you still there?").await?;
    assert_eq!(asked.count_of(SECOND), 0);
    let screen = session.screen().await?;
    assert!(!screen.contains("hook error"), "{screen}");
    session.exit().await?;

    let session = scene.start().await?;
    is_repeated(&scene, &session, 1).await?;
    let later = scene.model.asked().pop().context("no request")?;
    assert_eq!(
        (later.count_of(QUESTION), later.count_of(SECOND)),
        (1, 1),
        "{}",
        later.all_text()
    );
    scene.reaches(&second, "seen").await?;
    Ok(())
}
