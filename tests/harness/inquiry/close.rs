//! The end of an inquiry: each open question is on the phone, each accepted one gets one answer, and no push is left.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::world::World;
use super::{Accepted, Answers, call};
use crate::eventually::eventually;

/// How long pushes may take after an outage: the claim of a duty, and the look of a coordinator.
const PUSHED: Duration = Duration::from_secs(120);
/// How long a call may take when everything is up.
const ANSWERED: Duration = Duration::from_secs(60);
/// How many questions are asked while the ntfy server is down.
const LEFT: usize = 6;

/// Asks some more questions while the ntfy server is down, answers everything, and adds each fault to the outcome.
pub(super) async fn check(
    world: &World,
    asked: Vec<Vec<String>>,
    accepted: &Accepted,
    outcome: &mut Answers,
) -> Result<()> {
    let mut asked = asked;
    world.ntfy.lock().await.kill();
    for number in 0..LEFT {
        let question = json!({"question": format!("last question {number}: which?"), "options": ["one", "two"], "wait": false});
        asked[0].push(world.ask(0, question).await?);
    }
    world.ntfy.lock().await.begin().await?;
    let missing = eventually("every open question is on the phone", PUSHED, async || {
        is_on_the_phone(world).await.ok()?.then_some(())
    });
    if let Err(error) = missing.await {
        outcome.findings.push(format!("{error:#}"));
    }
    answer_all(world).await?;
    let left = eventually("no push is left", PUSHED, async || {
        let ntfy = world.ntfy.lock().await;
        ntfy.shown().await.ok()?.is_empty().then_some(())
    });
    if let Err(error) = left.await {
        let shown = world.ntfy.lock().await.shown().await?;
        outcome.findings.push(format!("{error:#}: {shown:?}"));
    }
    for (agent, questions) in asked.iter().enumerate() {
        outcome.questions += questions.len();
        let distinct: BTreeSet<_> = questions.iter().collect();
        if distinct.len() != questions.len() {
            outcome
                .findings
                .push(format!("agent{agent}: two questions have one id"));
        }
        for question in questions {
            let by = accepted.get(question).map_or(&[][..], Vec::as_slice);
            if let Some(finding) = judge(world, agent, question, by).await? {
                outcome.findings.push(format!("{question}: {finding}"));
            }
        }
    }
    Ok(())
}

/// Returns whether each open question has a push of its own, or a push counts it.
async fn is_on_the_phone(world: &World) -> Result<bool> {
    let open = world.people[0][0].questions().await?;
    let shown = world.ntfy.lock().await.shown().await?;
    let texts: Vec<_> = shown
        .iter()
        .filter_map(|push| push["message"].as_str())
        .collect();
    let counts = texts
        .iter()
        .filter_map(|text| text.strip_suffix(" questions wait"));
    let counted = counts.filter_map(|count| count.parse::<usize>().ok()).max();
    let has_own = |question: &Value| {
        let text = question["message"].as_str().unwrap_or_default();
        texts.iter().any(|push| push.starts_with(text))
    };
    Ok(!open.is_empty() && (counted >= Some(open.len()) || open.iter().all(has_own)))
}

/// Answers everything that is open, until nothing is.
async fn answer_all(world: &World) -> Result<()> {
    eventually("nothing is open", PUSHED, async || {
        let person = &world.people[0][0];
        let open = person.questions().await.ok()?;
        for question in &open {
            // Another way may be first.
            let _ = person.answer(question, &json!([{"options": ["1"]}])).await;
        }
        open.is_empty().then_some(())
    })
    .await
}

/// Returns the faults of an accepted question.
async fn judge(
    world: &World,
    agent: usize,
    question: &str,
    by: &[String],
) -> Result<Option<String>> {
    let person = &world.people[0][0];
    let stages = person.stages(question).await?;
    let answers = stages
        .iter()
        .filter(|step| step.starts_with("answered"))
        .count();
    if answers != 1 {
        return Ok(Some(format!("{answers} answers: {stages:?}")));
    }
    if by.len() > 1 {
        return Ok(Some(format!("accepted from {by:?}")));
    }
    let reply = person.reply(question).await?;
    if by
        .first()
        .is_some_and(|by| reply["answer"]["by"] != by.as_str())
    {
        return Ok(Some(format!("accepted from {by:?}, stored {reply}")));
    }
    let mut refusal = None;
    let got = eventually("the agent has the answer", ANSWERED, async || {
        let arguments = json!({"question_id": question, "timeout": 5});
        let asking = async { call(&*world.client(agent).await?, "ask_user", arguments).await };
        asking.await.map_err(|why| refusal = Some(why)).ok()
    });
    let Ok(got) = got.await else {
        return Ok(Some(format!("the agent has no answer: {refusal:?}")));
    };
    let is_it = got["status"] == "answered" && got["reply_id"] == reply["id"];
    Ok((!is_it).then(|| format!("the agent has {got}, stored {reply}")))
}
