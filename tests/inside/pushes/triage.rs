//! Pushes of questions that a triage agent may answer: none while it has the question, and one when it passes it on.

use std::fs;

use anyhow::{Context, Result};
use harness::eventually::eventually;
use harness::http;
use harness::redis::Redis;
use serde_json::{Value, json};

use super::{QUICK, SOON, Scene};

#[tokio::test]
async fn a_question_is_pushed_when_triage_passes_it_on() -> Result<()> {
    for redis in [None, Some(Redis::start().await?)] {
        let test = "a_question_is_pushed_when_triage_passes_it_on";
        let Some(mut scene) = Scene::start(test, redis, QUICK).await? else {
            return Ok(());
        };
        let policy = scene.gate.served.folder().join("policy.toml");
        fs::write(policy, "[triage]\nagents = [\"first@testhost\"]\n")?;
        let operator = scene.gate.login("operator").await?;
        let address = scene.gate.address()?;
        let request = format!(
            "GET /api/policy HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {operator}\r\nConnection: close\r\n\r\n"
        );
        eventually("the policy is in force", SOON, async || {
            let answer = http::request(address, &request).await.ok()?;
            answer.body.contains("[triage]").then_some(())
        })
        .await?;
        let mut first = scene.gate.served.join("first").await?;
        let question = scene.ask("Which database?").await?;
        let offer = first
            .call("wait_for_message", json!({"timeout": 20}))
            .await?;
        let offer = offer["message"]["id"].as_str().or(offer["id"].as_str());
        let offer = offer.context("an offer")?.to_owned();
        first
            .receipt(&[&offer], "in_session", "wait_for_message")
            .await?;
        first.receipt(&[&offer], "seen", "tool_call").await?;
        // A question that triage never gets is pushed at once: pushes work, and this one is held back.
        let urgent = json!({"reason": "now", "message": "Which port?"});
        scene.asker.call("escalate_to_human", urgent).await?;
        let push = scene.pushed().await?;
        assert!(
            push["message"]
                .as_str()
                .is_some_and(|text| text.contains("Which port?")),
            "{push}"
        );
        let shown = scene.shown(&question).await?;
        let steps = shown["history"].as_array().context("steps")?;
        assert!(steps.iter().all(|step| step["via"] != "ntfy"), "{shown}");
        let call = json!({"question_id": offer, "reason": "it costs money"});
        first.call("escalate_to_human", call).await?;
        let step = eventually("it is pushed", SOON, async || {
            let shown = scene.shown(&question).await.ok()?;
            let steps = shown["history"].as_array()?.clone();
            steps.into_iter().find(|step: &Value| step["via"] == "ntfy")
        })
        .await?;
        assert_eq!(step["stage"], "on_host");
    }
    Ok(())
}
