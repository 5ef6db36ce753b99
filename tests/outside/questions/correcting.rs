//! Corrections on the page: a triage agent has answered for people, and a person knows better.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::corpus::hostile;
use harness::eventually::eventually;
use harness::link::Link;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::looks::{MARKUP, check_looks, check_page};
use super::{Desk, IS_OVER};

const SOON: Duration = Duration::from_secs(20);
/// Whether the page offers a correction.
const OFFERED: &str = "document.querySelector('#correct:not([hidden]) form')";

/// A desk, and an agent that the policy names for triage.
struct Scene {
    desk: Desk,
    helper: Link,
    _policy: TempDir,
}

impl Scene {
    async fn open() -> Result<Option<Self>> {
        let folder = TempDir::new()?;
        let policy = folder.path().join("policy.toml");
        std::fs::write(&policy, "[triage]\nagents = [\"helper\"]\n")?;
        let with_policy = |coordinator: Coordinator| coordinator.with("C3PO_POLICY", &policy);
        let Some(desk) = Desk::open_with(with_policy).await? else {
            return Ok(None);
        };
        let address = desk.coordinator.address().to_string();
        let (helper, _) = Link::join(&address, "helper").await?;
        Ok(Some(Self {
            desk,
            helper,
            _policy: folder,
        }))
    }

    /// Asks people to choose. Returns the id of the question.
    async fn ask(&mut self) -> Result<String> {
        let question =
            json!({"question": "Which store?", "options": ["SQLite", "Redis"], "wait": false});
        let sent = self.desk.agent.call("ask_user", question).await?;
        Ok(sent["id"].as_str().context("an id")?.to_owned())
    }

    /// Answers a question as the triage agent that it is offered to.
    async fn answer(&mut self, question: &str, text: &str) -> Result<()> {
        let helper = &mut self.helper;
        let offer = eventually("an offer of the question", SOON, async || {
            let page = helper.call("get_messages", json!({})).await.ok()?;
            let offers = page["messages"].as_array()?.iter();
            offers
                .into_iter()
                .find(|offer| offer["reply_to"] == question)
                .cloned()
        })
        .await?;
        let reply = json!({"message_id": offer["id"], "response": text});
        self.helper.call("reply", reply).await.map(drop)
    }

    /// Answers a question as Ann does elsewhere. Returns the status.
    async fn answer_elsewhere(&self, question: &str, text: &str) -> Result<u16> {
        let path = format!("/api/v1/questions/{question}/answer");
        let body = json!({"parts": [{"text": text}], "via": "terminal"}).to_string();
        Ok(self.desk.send("POST", &path, &body).await?.status)
    }

    /// Returns the correction that the asker got.
    async fn correction(&mut self, question: &str) -> Result<Value> {
        let page = self.desk.agent.call("get_messages", json!({})).await?;
        let title = format!("Ann corrects triage's answer to {question}");
        let messages = page["messages"].as_array().context("messages")?;
        let found = messages.iter().find(|message| message["title"] == title);
        found.cloned().with_context(|| page.to_string())
    }
}

#[tokio::test]
async fn a_person_corrects_the_answer_of_triage_on_the_page() -> Result<()> {
    let Some(mut scene) = Scene::open().await? else {
        return Ok(());
    };
    let id = scene.ask().await?;
    scene.desk.show(&id).await?;
    scene.desk.browser.type_into("textarea", "for now").await?;
    let is_offered = format!("return Boolean({OFFERED})");
    ensure!(
        scene.desk.browser.run(&is_offered).await? == false,
        "it is open"
    );
    scene.answer(&id, "redis").await?;
    let desk = &mut scene.desk;
    desk.browser.wait_for(OFFERED).await?;
    desk.wait_for_text("[triage/helper, not a person] Redis")
        .await?;
    let typed = "return document.querySelector('textarea').value";
    ensure!(
        desk.browser.run(typed).await? == "for now",
        "a text is lost"
    );
    check_looks(desk, "a correction").await?;
    desk.press("#correct [data-option='1']").await?;
    desk.wait_for_text("Corrected by Ann on the page").await?;
    desk.wait_for_text("SQLite, for now").await?;
    ensure!(desk.browser.run(&is_offered).await? == false, "only once");
    check_looks(desk, "a corrected answer").await?;
    let correction = scene.correction(&id).await?;
    ensure!(correction["answer"]["by"] == "Ann", "{correction}");
    let got = correction["id"].as_str().context("an id")?;
    let agent = &mut scene.desk.agent;
    agent.receipt(&[got], "in_session", "get_messages").await?;
    let has = "document.querySelector('#progress li:nth-child(2).done')";
    scene.desk.browser.wait_for(has).await
}

#[tokio::test]
async fn a_correction_from_elsewhere_is_shown_and_a_second_one_is_not_used() -> Result<()> {
    let Some(mut scene) = Scene::open().await? else {
        return Ok(());
    };
    let id = scene.ask().await?;
    scene.answer(&id, "redis").await?;
    scene.desk.show(&id).await?;
    scene.desk.browser.wait_for(OFFERED).await?;
    ensure!(scene.answer_elsewhere(&id, "SQLite").await? == 201);
    scene
        .desk
        .wait_for_text("Corrected by Ann on a terminal")
        .await?;

    let id = scene.ask().await?;
    scene.answer(&id, "redis").await?;
    scene.desk.show(&id).await?;
    scene
        .desk
        .browser
        .type_into("#correct textarea", "neither")
        .await?;
    scene.desk.hold_answer().await?;
    scene.desk.press("#correct #send").await?;
    scene.desk.browser.wait_for("window.go").await?;
    ensure!(scene.answer_elsewhere(&id, "SQLite").await? == 201);
    scene.desk.browser.run("window.go()").await?;
    scene
        .desk
        .wait_for_text("Your correction was not used")
        .await?;
    scene
        .desk
        .wait_for_text("Corrected by Ann on a terminal")
        .await?;
    ensure!(scene.correction(&id).await?["message"] == "SQLite");
    Ok(())
}

#[tokio::test]
async fn answers_of_people_and_questions_without_one_are_not_corrected() -> Result<()> {
    let Some(mut scene) = Scene::open().await? else {
        return Ok(());
    };
    let answered = scene.desk.ask("Which port?").await?;
    ensure!(scene.answer_elsewhere(&answered, "8081").await? == 201);
    let withdrawn = scene.desk.request_bash("make").await?;
    scene
        .desk
        .conclude(&withdrawn, "withdrawn", "terminal")
        .await?;
    let brief =
        json!({"target": "human", "message": "Now?", "requires_response": true, "expires_in": 1});
    let sent = scene.desk.agent.call("send_message", brief).await?;
    let expired = sent["id"].as_str().context("an id")?.to_owned();
    for id in [answered, withdrawn, expired] {
        scene.desk.show(&id).await?;
        scene.desk.browser.wait_for(IS_OVER).await?;
        let buttons = "return document.querySelectorAll('form, button').length";
        ensure!(scene.desk.browser.run(buttons).await? == 0, "{id}");
        let stored = scene.desk.stored(&id).await?;
        ensure!(stored["correctable_until"].is_null(), "{stored}");
        ensure!(scene.answer_elsewhere(&id, "9000").await? >= 400, "{id}");
    }
    Ok(())
}

#[tokio::test]
async fn hostile_answers_and_corrections_run_nothing() -> Result<()> {
    let Some(mut scene) = Scene::open().await? else {
        return Ok(());
    };
    let id = scene.ask().await?;
    let texts = hostile().into_iter().chain(MARKUP.map(str::to_owned));
    let all: String = texts.collect();
    scene.answer(&id, &all).await?;
    let (url, page) = (scene.desk.coordinator.url(), format!("/q/{id}"));
    check_page(&scene.desk, &url, &page).await?;
    scene.desk.browser.wait_for(OFFERED).await?;
    ensure!(scene.answer_elsewhere(&id, &all).await? == 201);
    scene
        .desk
        .browser
        .wait_for("document.querySelector('#corrected')")
        .await?;
    check_page(&scene.desk, &url, &page).await
}
