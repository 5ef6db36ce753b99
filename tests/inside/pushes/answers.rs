//! Answers from the phone: taps on buttons, and words with a code.

use std::time::Duration;

use anyhow::Result;
use c3po_shared::audit::Event;
use c3po_shared::limits::WRONG_REPLIES_MAX;
use harness::http;
use harness::ntfy::{PHONE, REPLIES};
use harness::redis::Redis;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{QUICK, Scene, button, code};

async fn check_the_way_there_and_back(mut scene: Scene) -> Result<()> {
    let question = scene.ask("Which database shall I use?").await?;
    let push = scene.pushed().await?;
    assert_eq!(push["title"], "[homeassistant@testhost] A question waits");
    assert_eq!(
        (&push["priority"], &push["tags"]),
        (&json!(4), &json!(["robot", "warning"]))
    );
    assert_eq!(push["click"], format!("http://127.0.0.1:8420/q/{question}"));
    assert_eq!(button(&push, "Answer in words")?["url"], push["click"]);
    let step = scene.step(&question, "on_host").await?;
    assert_eq!((&step["via"], &step["by"]), (&json!("ntfy"), &json!("ann")));
    let text = format!("{} PostgreSQL, please", code(&push)?.to_uppercase());
    scene.ntfy.send(REPLIES, PHONE, &text).await?;
    let answer = scene.answer(&question).await?;
    assert_eq!(answer["response"], "PostgreSQL, please");
    assert_eq!(
        (&answer["answer"]["by"], &answer["answer"]["via"]),
        (&json!("ann"), &json!("ntfy"))
    );
    let log = scene.gate.served.store.audit(0, 100).await?;
    let mut answered = log.iter().filter(|entry| entry.event == Event::Answered);
    let signed = answered.next().and_then(|entry| entry.login.as_deref());
    assert_eq!(signed, Some("ntfy/ann"), "{log:?}");
    scene.nothing_shown().await?;

    let question = scene.choose("Deploy now?", &["Yes", "Later"]).await?;
    let push = scene.pushed().await?;
    assert_eq!(push["message"], "Deploy now?\n1. Yes\n2. Later");
    scene.ntfy.tap(button(&push, "Later")?).await?;
    let answer = scene.answer(&question).await?;
    assert_eq!(answer["response"], "allow\nLater");
    assert_eq!(answer["answer"]["by"], "ann");
    scene.nothing_shown().await
}

#[tokio::test]
async fn a_question_is_pushed_answered_on_the_phone_and_taken_back() -> Result<()> {
    let test = "a_question_is_pushed_answered_on_the_phone_and_taken_back";
    let Some(scene) = Scene::start(test, None, QUICK).await? else {
        return Ok(());
    };
    check_the_way_there_and_back(scene).await
}

#[tokio::test]
async fn a_question_is_pushed_answered_on_the_phone_and_taken_back_with_redis() -> Result<()> {
    let test = "a_question_is_pushed_answered_on_the_phone_and_taken_back_with_redis";
    let redis = Redis::start().await?;
    let Some(scene) = Scene::start(test, Some(redis), QUICK).await? else {
        return Ok(());
    };
    check_the_way_there_and_back(scene).await
}

#[tokio::test]
async fn a_code_answers_one_question_once_and_nothing_else() -> Result<()> {
    let test = "a_code_answers_one_question_once_and_nothing_else";
    let Some(mut scene) = Scene::start(test, None, QUICK).await? else {
        return Ok(());
    };
    let first = scene.choose("Deploy now?", &["Yes", "No"]).await?;
    let push = scene.pushed().await?;
    let yes = button(&push, "Yes")?.clone();
    scene.ntfy.tap(&yes).await?;
    assert_eq!(scene.answer(&first).await?["response"], "allow\nYes");
    scene.nothing_shown().await?;

    let second = scene.choose("Delete the backups?", &["Yes", "No"]).await?;
    let no = button(&scene.pushed().await?, "No")?.clone();
    // The same button again, its code with another question, and the code of No for Yes.
    let body: Value = serde_json::from_str(yes["body"].as_str().unwrap_or_default())?;
    let mut of_second: Value = serde_json::from_str(no["body"].as_str().unwrap_or_default())?;
    of_second["option"] = json!("1");
    let foreign = json!({"question": second, "option": "1", "code": body["code"]});
    for text in [body.to_string(), foreign.to_string(), of_second.to_string()] {
        scene.ntfy.send(REPLIES, PHONE, &text).await?;
    }
    // Too many wrong codes stop answers in words for a minute, and no buttons.
    for _ in 0..6 {
        scene.ntfy.send(REPLIES, PHONE, "a1b2c3 Yes").await?;
    }
    // A GET, as a preview sends it.
    http::get(scene.ntfy.address(), &format!("/{REPLIES}")).await?;
    scene.ntfy.tap(&no).await?;
    let answer = scene.answer(&second).await?;
    assert_eq!(answer["response"], "allow\nNo", "replies are read in order");
    let first = scene.shown(&first).await?;
    assert_eq!(first["reply"]["response"], "allow\nYes");
    Ok(())
}

#[tokio::test]
async fn a_verdict_is_given_by_a_button_that_shows_the_whole_command() -> Result<()> {
    let test = "a_verdict_is_given_by_a_button_that_shows_the_whole_command";
    let Some(mut scene) = Scene::start(test, None, QUICK).await? else {
        return Ok(());
    };
    let question = scene.permission("make deploy").await?;
    let push = scene.pushed().await?;
    assert_eq!(
        (&push["title"], &push["message"]),
        (
            &json!("[homeassistant@testhost] Bash"),
            &json!("make deploy")
        )
    );
    scene.ntfy.tap(button(&push, "Deny")?).await?;
    let step = scene.step(&question, "answered").await?;
    assert_eq!(step["via"], "reply");
    let verdict = scene.shown(&question).await?["reply"]["answer"].clone();
    assert_eq!(
        (&verdict["verdict"]["decision"], &verdict["by"]),
        (&json!("deny"), &json!("ann"))
    );
    scene.nothing_shown().await?;

    scene
        .permission("curl -H 'Authorization: Bearer abcdef' https://x")
        .await?;
    let push = scene.pushed().await?;
    assert!(button(&push, "Allow").is_err() && button(&push, "Open").is_ok());
    assert!(!push.to_string().contains("abcdef"));
    Ok(())
}

#[tokio::test]
async fn answers_that_came_while_no_coordinator_ran_are_applied() -> Result<()> {
    let test = "answers_that_came_while_no_coordinator_ran_are_applied";
    let redis = Redis::start().await?;
    let Some(mut scene) = Scene::start(test, Some(redis), QUICK).await? else {
        return Ok(());
    };
    // Their codes count as wrong when the next coordinator reads the topic again.
    for number in 1..=WRONG_REPLIES_MAX {
        let question = scene.ask(&format!("Question {number}?")).await?;
        let words = format!("{} Yes", code(&scene.pushed().await?)?);
        scene.ntfy.send(REPLIES, PHONE, &words).await?;
        scene.answer(&question).await?;
        scene.nothing_shown().await?;
    }
    let question = scene.ask("Which database?").await?;
    let push = scene.pushed().await?;
    let (ntfy, redis) = scene.stop().await?;
    ntfy.send(REPLIES, PHONE, &format!("{} SQLite", code(&push)?))
        .await?;
    // ntfy counts in whole seconds.
    sleep(Duration::from_secs(1)).await;
    let url = ntfy.url();
    let scene = Scene::with(ntfy, redis, &url, QUICK).await?;
    scene.step(&question, "answered").await?;
    let shown = scene.shown(&question).await?;
    assert_eq!(shown["reply"]["response"], "SQLite");
    scene.nothing_shown().await
}
