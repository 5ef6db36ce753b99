//! `ask_user` in the real client: its dialog in a race with the other ways, and a call that is broken off.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::eventually::eventually;
use harness::fake_api::{Asked, Block, Script};
use harness::http;
use serde_json::{Value, json};

use super::scene::{RECIPIENT, SOON, Scene};

/// The text of the question, which the dialog shows too.
const QUESTION: &str = "Which database shall it be?";

/// Returns a model that asks people when it is told so.
fn asker(more: Value) -> Script {
    let mut call = json!({"question": QUESTION});
    for (name, value) in more.as_object().into_iter().flatten() {
        call[name] = value.clone();
    }
    Script::new()
        .when("ask them", move |_| {
            vec![Block::call("ask_user", call.clone())]
        })
        .otherwise([Block::text("as you say")])
}

impl Scene {
    async fn open(&self) -> Result<Vec<Value>> {
        let answer = http::get(self.coordinator.address(), "/api/v1/questions").await?;
        let listed: Value = serde_json::from_str(&answer.body)?;
        Ok(listed["data"]["questions"]
            .as_array()
            .cloned()
            .unwrap_or_default())
    }

    /// Waits for the only open question. Returns its id.
    async fn asked(&self) -> Result<String> {
        eventually("a question", SOON, async || {
            let open = self.open().await.ok()?;
            open.first()?["id"].as_str().map(str::to_owned)
        })
        .await
    }

    async fn answer(&self, question: &str, text: &str) -> Result<()> {
        let path = format!("/api/v1/questions/{question}/answer");
        let body = json!({"parts": [{"text": text}]}).to_string();
        let answer = http::post(self.coordinator.address(), &path, &[], &body).await?;
        ensure!(answer.status == 201, "{}", answer.body);
        Ok(())
    }

    /// Waits for the request with the result of the call.
    async fn outcome(&self, holds: &str) -> Result<Asked> {
        let is_it = |asked: &Asked| asked.holds("question_id") && asked.holds(holds);
        self.model.wait_for("the outcome", SOON, is_it).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_the_clients_own_dialog_is_the_result_and_is_recorded() -> Result<()> {
    let Some(scene) = Scene::set("the dialog of a question", asker(json!({}))).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    scene.offers_tools(&session).await?;
    session.type_line("ask them").await?;
    let dialog = |screen: &str| screen.contains("requests your input") && screen.contains(QUESTION);
    session.wait_for_screen("the dialog", SOON, dialog).await?;
    let question = scene.asked().await?;
    session.write("SQLite").await?;
    // It leaves the field, and then accepts.
    eventually("the dialog closes", SOON, async || {
        let is_open = dialog(&session.screen().await.ok()?);
        if is_open {
            session.key("Enter").await.ok()?;
            // At the pace of a person.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        (!is_open).then_some(())
    })
    .await?;
    let outcome = scene
        .outcome("SQLite")
        .await
        .with_context(|| session.log())?;
    ensure!(outcome.holds("terminal@"), "{}", outcome.new_text());
    scene.is(RECIPIENT, "ready").await?;
    ensure!(scene.open().await?.is_empty());
    let path = format!("/api/v1/questions/{question}");
    let shown: Value =
        serde_json::from_str(&http::get(scene.coordinator.address(), &path).await?.body)?;
    let answer = &shown["data"]["reply"]["answer"];
    ensure!(answer["via"] == "dialog", "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_from_elsewhere_closes_the_dialog_and_typed_text_stays() -> Result<()> {
    let Some(scene) = Scene::set("a dialog that lost the race", asker(json!({}))).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    scene.offers_tools(&session).await?;
    session.type_line("ask them").await?;
    let dialog = |screen: &str| screen.contains("requests your input");
    session.wait_for_screen("the dialog", SOON, dialog).await?;
    let question = scene.asked().await?;
    scene.answer(&question, "Redis of course").await?;
    scene
        .outcome("Redis of course")
        .await
        .with_context(|| session.log())?;
    let is_gone = |screen: &str| !dialog(screen);
    session.wait_for_screen("no dialog", SOON, is_gone).await?;
    scene.is(RECIPIENT, "ready").await?;
    session.wait_ready().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_dialog_answers_nothing_and_the_question_stays_open() -> Result<()> {
    let Some(scene) = Scene::set("a dialog that is closed", asker(json!({}))).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    scene.offers_tools(&session).await?;
    session.type_line("ask them").await?;
    let dialog = |screen: &str| screen.contains("requests your input");
    session.wait_for_screen("the dialog", SOON, dialog).await?;
    let question = scene.asked().await?;
    session.key("Escape").await?;
    let is_gone = |screen: &str| !dialog(screen);
    session.wait_for_screen("no dialog", SOON, is_gone).await?;
    ensure!(scene.asked().await? == question, "it is still open");
    scene.answer(&question, "Redis of course").await?;
    scene
        .outcome("Redis of course")
        .await
        .with_context(|| session.log())?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_broken_off_withdraws_its_question() -> Result<()> {
    let needs_login = json!({"needs_person": true});
    let Some(scene) = Scene::set("a question that is broken off", asker(needs_login)).await? else {
        return Ok(());
    };
    let session = scene.start().await?;
    scene.offers_tools(&session).await?;
    session.type_line("ask them").await?;
    scene.asked().await?;
    let screen = session.screen().await?;
    ensure!(
        !screen.contains("requests your input"),
        "no dialog: {screen}"
    );
    session.key("Escape").await?;
    eventually("it is withdrawn", SOON, async || {
        scene.open().await.ok()?.is_empty().then_some(())
    })
    .await
    .with_context(|| session.log())
}
