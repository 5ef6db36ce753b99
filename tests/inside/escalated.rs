//! Questions that their asker escalates: triage never gets them, whenever that is, and each escalation leaves one notice.

use anyhow::{Context, Result};
use c3po_coordinator::store::Duty;
use c3po_shared::ids::CallId;
use c3po_shared::time::Timestamp;
use harness::eventually::eventually;
use serde_json::{Value, json};

use super::triage::{SOON, Scene, inbox, offer};

/// Ends the session of the triage agent, and waits until it counts as offline.
async fn without_triage(scene: &mut Scene) -> Result<()> {
    scene.first.notify("goodbye", json!({})).await?;
    let status = json!({"agent_id": "first"});
    let is_gone = async || {
        let status = scene.asker.call("get_agent_status", status.clone());
        let agent = status.await.ok()?;
        (agent["status"] != "online").then_some(())
    };
    eventually("the triage agent is gone", SOON, is_gone).await
}

#[tokio::test]
async fn a_question_that_was_escalated_while_no_triage_was_there_is_never_offered() -> Result<()> {
    for mut scene in Scene::each().await? {
        without_triage(&mut scene).await?;
        let question = scene.ask(json!({})).await?;
        let escalation = json!({"reason": "A person has to decide.", "question_id": question});
        scene.asker.call("escalate_to_human", escalation).await?;
        scene.first = scene.served.join("first").await?;
        for _ in 0..2 {
            let push = Duty::push(&question.parse()?);
            scene.served.store.plan(&push, Timestamp::now()).await?;
            // The later question is offered, so the escalated one was looked at again.
            let next = scene.ask(json!({"question": "Which port?"})).await?;
            offer(&mut scene.first, &next).await?;
        }
        let offers = inbox(&mut scene.first).await?;
        let is_offered = |offer: &Value| offer["reply_to"] == question.as_str();
        assert!(!offers.iter().any(is_offered), "{offers:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_escalation_that_is_sent_again_leaves_one_notice_and_a_further_one_another() -> Result<()>
{
    for mut scene in Scene::each().await? {
        let question = scene.ask(json!({})).await?;
        let escalation = json!({"reason": "A person has to decide.", "question_id": question});
        let mut ids = Vec::new();
        let calls = [CallId::fresh(), CallId::fresh()];
        for call in calls.into_iter().chain(calls) {
            let link = &mut scene.asker;
            let id = link
                .begin(call, "escalate_to_human", escalation.clone())
                .await?;
            let notice = link
                .end(id)
                .await?
                .map_err(|error| anyhow::anyhow!("{error}"))?;
            ids.push(notice["id"].as_str().context("an id")?.to_owned());
        }
        assert_eq!(ids[..2], ids[2..], "each call is applied once");
        assert_ne!(ids[0], ids[1]);
    }
    Ok(())
}
