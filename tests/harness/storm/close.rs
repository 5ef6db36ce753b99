//! The end of the storm: every journal is empty, every inbox is read, every history is fetched.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use c3po_shared::time::Timestamp;
use serde_json::{Value, json};

use super::session::{Answer, Session, read};
use super::world::World;
use crate::checker::{Event, Key, Step};
use crate::dice::Dice;
use crate::eventually::eventually;

/// How long queued messages may take to be sent when everything is up again.
const DRAINED: Duration = Duration::from_secs(180);
/// How long one call may take at the end.
const ANSWER: Duration = Duration::from_secs(30);

/// Waits until no host has queued messages any more, and then ends the run. Everything must be up again.
pub(super) async fn tell_the_end(world: &World, progress: &impl Fn(String)) {
    let drained = eventually("everything is sent", DRAINED, async || {
        world.is_settled().then_some(())
    });
    if drained.await.is_err() {
        // The checker reports the remaining messages as lost.
        progress(format!("still on hosts: {:?}", world.journals()));
    }
    world.over.cancel();
}

/// Reads the remaining inboxes, including those of temporary names, and fetches every history.
pub(super) async fn read_the_rest(world: &World, mut sessions: Vec<Arc<Session>>) -> Result<()> {
    let mut dice = Dice::of(world.storm.seed, 4);
    let first = Arc::clone(sessions.first().context("a storm without agents")?);
    let names: BTreeSet<_> = (0..world.storm.agents).map(World::name).collect();
    let listed = ask(&first, "list_agents", json!({"limit": 500})).await?;
    let others = listed["agents"].as_array().into_iter().flatten();
    for other in others
        .filter_map(|agent| agent["id"].as_str())
        .filter(|name| !names.contains(*name))
    {
        let session = world.session(other, &mut dice).await?;
        loop {
            let next = ask(&session, "wait_for_message", json!({"timeout": 1})).await?;
            if next["timeout"] == true {
                break;
            }
            session.shown(&next);
        }
        sessions.push(session);
    }
    for session in &sessions {
        for (id, key) in inbox(session).await? {
            world.record.add(Event::Left { id, key });
        }
    }
    histories(world, &sessions).await
}

/// Repeats the call until there is a reply, because everything is running.
async fn ask(session: &Session, tool: &str, arguments: Value) -> Result<Value> {
    let mut refused = Value::Null;
    let asked = eventually(tool, ANSWER, async || {
        match session.call(tool, arguments.clone()).await {
            Answer::Reply(reply) => Some(Some(reply)),
            Answer::Refused(refusal) => {
                refused = refusal;
                None
            }
            Answer::Gone => Some(None),
        }
    });
    match asked.await {
        Ok(Some(reply)) => Ok(reply),
        Ok(None) => bail!("session {} is gone", session.number),
        Err(error) => Err(error.context(refused.to_string())),
    }
}

async fn inbox(session: &Session) -> Result<Vec<(String, Key)>> {
    let (mut found, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = json!({"limit": 200});
        if let Some(cursor) = &cursor {
            arguments["cursor"] = json!(cursor);
        }
        let page = ask(session, "get_messages", arguments).await?;
        found.extend(
            page["messages"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(read),
        );
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// Fetches the history of each message from its recipient or its sender, because temporary names are forgotten.
async fn histories(world: &World, sessions: &[Arc<Session>]) -> Result<()> {
    let mut asked = BTreeSet::new();
    for event in world.record.events() {
        let id = match event {
            Event::Sent {
                outcome: crate::checker::Outcome::Accepted(id),
                ..
            }
            | Event::Left { id, .. } => id,
            Event::Shown { shown, .. } => shown.id,
            _ => continue,
        };
        if !asked.insert(id.clone()) {
            continue;
        }
        let ends: Vec<_> = id.split("::").take(2).collect();
        let Some(session) = sessions
            .iter()
            .find(|session| ends.contains(&session.name.as_str()))
        else {
            continue;
        };
        let status = ask(session, "message_status", json!({"message_id": id})).await?;
        let steps = status["history"]
            .as_array()
            .into_iter()
            .flatten()
            .map(step)
            .collect::<Result<_>>()?;
        world.record.add(Event::History { id, steps });
    }
    Ok(())
}

fn step(step: &Value) -> Result<Step> {
    let text = |name: &str| step[name].as_str().map(str::to_owned);
    Ok(Step {
        stage: text("stage").context("a step without a stage")?,
        at: text("at")
            .context("a step without a time")?
            .parse::<Timestamp>()?,
        session: text("session"),
        reply: text("reply_id"),
    })
}
