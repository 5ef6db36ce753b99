//! The pushes that are not sent: to public topics, in quiet hours, and too many.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::limits::PUSHES_PER_HOST;
use harness::eventually::eventually;
use harness::http;
use harness::ntfy::{COORDINATOR, Ntfy, QUESTIONS};
use harness::process::{command, program};
use harness::skip::skipped;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::sleep;

use super::{QUICK, SOON, Scene, button, settings};

/// Waits until the metrics have this line.
async fn metric(scene: &Scene, line: &str) -> Result<()> {
    let address = scene.gate.address()?;
    eventually(line, SOON, async || {
        let metrics = http::get(address, "/metrics").await.ok()?;
        metrics.body.contains(line).then_some(())
    })
    .await
}

#[tokio::test]
async fn a_topic_that_anyone_can_read_gets_nothing_or_titles_only() -> Result<()> {
    let Ok(ntfy) = Ntfy::start_public().await else {
        return skipped(
            "a_topic_that_anyone_can_read_gets_nothing_or_titles_only",
            "no ntfy",
        );
    };
    let url = ntfy.url();
    let mut scene = Scene::with(ntfy, None, &url, QUICK).await?;
    let question = scene.ask("The password of the vault?").await?;
    metric(&scene, r#"c3po_pushes_total{outcome="refused"} 1"#).await?;
    assert_eq!(scene.ntfy.messages(QUESTIONS).await?, Vec::<Value>::new());
    assert_eq!(scene.shown(&question).await?["stage"], "stored");

    let (ntfy, redis) = scene.stop().await?;
    let mut scene =
        Scene::with(ntfy, redis, &url, &format!("{QUICK}allow_public = true\n")).await?;
    scene
        .choose("The password of the vault?", &["a", "b"])
        .await?;
    let push = scene.pushed().await?;
    assert_eq!(push["message"], "A question waits");
    let actions = push["actions"].as_array().map(Vec::len);
    assert!(
        actions == Some(1) && button(&push, "Open").is_ok(),
        "{push}"
    );
    Ok(())
}

#[tokio::test]
async fn a_reply_token_that_can_read_gets_no_buttons() -> Result<()> {
    let Some(mut scene) =
        Scene::start("a_reply_token_that_can_read_gets_no_buttons", None, QUICK).await?
    else {
        return Ok(());
    };
    std::fs::write(
        scene.gate.served.folder().join("buttons.token"),
        COORDINATOR,
    )?;
    // The file is read again within a second: the first push after that has no button.
    let push = eventually("no buttons", SOON, async || {
        sleep(Duration::from_secs(1)).await;
        scene.choose("Deploy?", &["Yes", "No"]).await.ok()?;
        let shown = eventually("a push", SOON, async || {
            scene.ntfy.shown().await.ok()?.last().cloned()
        });
        shown.await.ok().filter(|push| button(push, "Yes").is_err())
    });
    let push = push.await?;
    assert!(!push.to_string().contains(COORDINATOR), "{push}");
    Ok(())
}

#[tokio::test]
async fn quiet_hours_hold_everything_that_is_not_urgent() -> Result<()> {
    let quiet = format!("{QUICK}quiet = \"00:00-23:59\"\ntime_zone = \"UTC\"\n");
    let Some(mut scene) = Scene::start(
        "quiet_hours_hold_everything_that_is_not_urgent",
        None,
        &quiet,
    )
    .await?
    else {
        return Ok(());
    };
    scene.ask("Tea or coffee?").await?;
    let urgent =
        json!({"target": "human", "message": "The cellar is flooded. Call?", "priority": "urgent"});
    scene.ask_with(urgent).await?;
    let push = scene.pushed().await?;
    assert!(
        push["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("The cellar")),
        "{push}"
    );
    assert_eq!(push["priority"], 5);
    Ok(())
}

#[tokio::test]
async fn after_eight_pushes_of_a_host_one_more_counts_the_rest_and_is_taken_back() -> Result<()> {
    let test = "after_eight_pushes_of_a_host_one_more_counts_the_rest_and_is_taken_back";
    let Some(mut scene) = Scene::start(test, None, QUICK).await? else {
        return Ok(());
    };
    let mut questions = Vec::new();
    for number in 0..13 {
        questions.push(scene.ask(&format!("Question {number}?")).await?);
    }
    let is_summary = |push: &Value| push["message"] == "13 questions wait";
    let mut shown = Vec::new();
    let counted = eventually("eight pushes and their count", SOON, async || {
        shown = scene.ntfy.shown().await.ok()?;
        (shown.len() == PUSHES_PER_HOST + 1 && shown.iter().any(is_summary)).then_some(())
    });
    counted.await.with_context(|| format!("{shown:#?}"))?;
    for question in &questions {
        let conclusion = json!({"message_id": question, "stage": "withdrawn", "via": "tool_call"});
        scene.asker.call("conclude", conclusion).await?;
    }
    scene.nothing_shown().await
}

#[tokio::test]
async fn a_flood_of_questions_and_ends_costs_the_server_few_requests() -> Result<()> {
    let test = "a_flood_of_questions_and_ends_costs_the_server_few_requests";
    let Some(mut scene) = Scene::start(test, None, QUICK).await? else {
        return Ok(());
    };
    for number in 0..=PUSHES_PER_HOST {
        scene.ask(&format!("Question {number}?")).await?;
    }
    let sent = async || anyhow::Ok(scene.ntfy.messages(QUESTIONS).await?.len());
    eventually("eight pushes and their count", SOON, async || {
        (sent().await.ok()? > PUSHES_PER_HOST).then_some(())
    })
    .await?;
    for number in 0..40 {
        let question = scene.ask(&format!("Again {number}?")).await?;
        let conclusion = json!({"message_id": question, "stage": "withdrawn", "via": "tool_call"});
        scene.asker.call("conclude", conclusion).await?;
    }
    let sent = scene.ntfy.messages(QUESTIONS).await?;
    assert!(sent.len() <= PUSHES_PER_HOST + 4, "{sent:#?}");
    Ok(())
}

#[tokio::test]
async fn changed_settings_count_within_a_second_and_invalid_ones_change_nothing() -> Result<()> {
    let test = "changed_settings_count_within_a_second_and_invalid_ones_change_nothing";
    let Some(mut scene) = Scene::start(test, None, QUICK).await? else {
        return Ok(());
    };
    let (folder, url) = (scene.gate.served.folder().to_owned(), scene.ntfy.url());
    let write = |more: &str| settings(Path::new(&folder), &url, more);
    write("grace = \"0s\"\ncontents = \"title\"\n")?;
    let address = scene.gate.address()?;
    eventually("the health reports it", SOON, async || {
        let health = http::get(address, "/api/health").await.ok()?;
        health.body.contains("pushes_fail").then_some(())
    })
    .await?;
    scene.ask("Which database?").await?;
    let push = scene.pushed().await?;
    assert!(
        push["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("Which database?"))
    );
    write("grace = \"0s\"\ncontent = \"none\"\n")?;
    eventually("a push without a text", SOON, async || {
        sleep(Duration::from_secs(1)).await;
        scene.ask("Which editor?").await.ok()?;
        let shown = eventually("a push", SOON, async || {
            scene.ntfy.shown().await.ok()?.last().cloned()
        });
        shown.await.ok().filter(|push| push["title"] == "c3po")
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn a_test_waits_for_the_tap() -> Result<()> {
    let ntfy = match Ntfy::start().await {
        Ok(ntfy) => ntfy,
        Err(why) => return skipped("a_test_waits_for_the_tap", &why.to_string()),
    };
    let folder = tempfile::tempdir()?;
    settings(folder.path(), &ntfy.url(), "")?;
    let mut test = command(program("c3po-coordinator")?, folder.path());
    test.args(["notify", "test", "--data-dir"])
        .arg(folder.path());
    test.stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut test = test.spawn()?;
    let mut lines = BufReader::new(test.stderr.take().context("a pipe")?).lines();
    let line = lines.next_line().await?.context("a line")?;
    assert!(line.contains("accepted the push to ann"), "{line}");
    let shown = ntfy.shown().await?;
    ntfy.tap(button(shown.first().context("a push")?, "Tap")?)
        .await?;
    let output = test.wait_with_output().await?;
    let text = String::from_utf8(output.stdout)?;
    assert!(
        output.status.success() && text.starts_with("The tap came back after"),
        "{text}"
    );
    assert!(text.contains("can answer as ann"), "{text}");
    assert_eq!(ntfy.shown().await?, Vec::<Value>::new());
    Ok(())
}
