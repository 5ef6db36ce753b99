//! An idle session: the messages that wake it, those that do not, and the receipts for the sender.

use anyhow::Result;
use harness::fake_api::Script;
use serde_json::json;

use super::scene::{QUIET, RECIPIENT, REPEATED, SOON, Scene};

const QUESTION: &str = "Can you turn on the living room lights?";

/// Sends a question to an idle session, and returns the way by which it arrived in the session.
///
/// Errors: it did not arrive exactly once, in the right form, or with the expected history.
async fn asked_while_idle(scene: &Scene, question: &str, mark: &str) -> Result<String> {
    let id = scene.ask(question).await?;
    let asked = scene.shown(question).await?;
    assert_eq!(asked.count_of(question), 1, "{}", asked.new_text());
    let text = asked.new_text();
    assert!(
        text.contains(&format!(
            "[c3po] 1 message for {RECIPIENT}\n[FROM: homeassistant @"
        )),
        "{text}"
    );
    assert!(
        text.contains(&format!(
            "[ID: {id}] [wants an answer]{mark}\n> {question}\n"
        )),
        "{text}"
    );
    let history = scene.reaches(&id, "seen").await?;
    assert_eq!(history.len(), 4, "{history:?}");
    assert_eq!(
        (&history[..2], &*history[3]),
        (
            &["stored".into(), "on_host deliver".into()][..],
            "seen transcript"
        )
    );
    Ok(history[2].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_wakes_an_idle_session_by_its_inbox() -> Result<()> {
    let Some(scene) = Scene::set("a wake-up of an idle session", Script::new()).await? else {
        return Ok(());
    };
    let way = if scene.claude.has_inbox().await? {
        "inbox_socket"
    } else {
        "async_rewake"
    };
    let session = scene.start().await?;
    assert_eq!(
        asked_while_idle(&scene, QUESTION, "").await?,
        format!("in_session {way}")
    );
    assert_eq!(
        asked_while_idle(&scene, "And off again?", "").await?,
        format!("in_session {way}")
    );

    let agent = scene.is(RECIPIENT, "ready").await?;
    assert!(
        agent["reach"]
            .as_array()
            .is_some_and(|ways| ways.contains(&json!(way))),
        "{agent}"
    );
    let later = scene.type_and_see(&session, "anything new?").await?;
    assert_eq!(later.count_of(QUESTION), 1, "it is shown once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_wakes_an_idle_session_without_inbox_by_the_hook_that_waits() -> Result<()> {
    let Some(scene) = Scene::set("a wake-up without inbox", Script::new()).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    if scene.claude.has_inbox().await? {
        session.remove_inbox().await?;
    }
    assert_eq!(
        asked_while_idle(&scene, QUESTION, "").await?,
        "in_session async_rewake"
    );
    scene.is(RECIPIENT, "ready").await?;
    assert_eq!(
        asked_while_idle(&scene, "And off again?", "").await?,
        "in_session async_rewake"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_post_that_the_client_drops_is_no_evidence_and_the_next_way_is_taken() -> Result<()> {
    let Some(mut scene) = Scene::set("a dropped post", Script::new()).await? else {
        return Ok(());
    };
    scene.options = scene
        .options
        .settings(json!({"crossSessionInbound": "refuse"}));
    let session = scene.start().await?;
    // The posted message may still arrive, as far as c3po knows.
    let way = asked_while_idle(&scene, QUESTION, &format!(" {REPEATED}")).await?;
    assert_eq!(way, "in_session async_rewake");
    let later = scene.type_and_see(&session, "anything new?").await?;
    assert_eq!(later.count_of(QUESTION), 1, "it is shown once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn news_starts_no_turn_and_comes_with_the_next_prompt() -> Result<()> {
    let Some(scene) = Scene::set("news for an idle session", Script::new()).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    let news = "The lights are on.";
    let id = scene.inform(news).await?;
    scene.reaches(&id, "on_host").await?;
    assert!(
        scene
            .model
            .wait_for("a turn", QUIET, |_| true)
            .await
            .is_err(),
        "nothing is started for news"
    );

    let asked = scene.type_and_see(&session, "anything new?").await?;
    assert_eq!(asked.count_of(news), 1, "{}", asked.new_text());
    let history = scene.reaches(&id, "seen").await?;
    assert_eq!(
        history,
        [
            "stored",
            "on_host deliver",
            "in_session user_prompt_submit",
            "seen transcript"
        ]
    );
    session
        .wait_for_screen("the end of the turn", SOON, |screen| {
            !screen.contains("esc to interrupt")
        })
        .await?;
    assert_eq!(
        scene
            .type_and_see(&session, "and now?")
            .await?
            .count_of(news),
        1,
        "it is shown once"
    );
    Ok(())
}
