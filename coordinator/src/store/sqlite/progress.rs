//! Progress of messages: acknowledgements, receipts and expiry.

use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Progress, Stage, Step, Via, furthest, reached};
use c3po_shared::time::Timestamp;

use super::agents::{check_speaker, enter_context, present_context};
use super::audit;
use super::group::Work;
use super::messages::MessageRow;
use super::rows::{integer, stamp};
use crate::store::{
    Actor, CONTEXTS_KEPT, Conclusion, PersonReached, Result, Settled, Speaker, Tenure, Wake,
};

/// How many rows one step of a sweep deletes, so that sends never wait long for it, even for rows of the longest texts.
const SWEEP_STEP: usize = 50;

/// Takes messages out of the agent's inbox.
pub(super) fn acknowledge(
    work: &Work<'_>,
    agent: &AgentId,
    actor: &Actor,
    messages: &[MessageId],
) -> Result<Settled> {
    check_speaker(work, actor.speaker.as_ref())?;
    let mut settled = Settled::default();
    for id in messages {
        match MessageRow::received(work, agent, id)? {
            Some(mut message) => {
                let counts = message.open && !message.is_expired();
                if message.open {
                    message.settle(work)?;
                }
                if counts {
                    audit::record_whole(work, || actor.acknowledged(agent, id))?;
                }
                settled.acked.push(id.clone());
            }
            None => settled.unknown.push(id.clone()),
        }
    }
    Ok(settled)
}

/// Records that messages reached a later stage. Returns each recorded stage with its message.
pub(super) fn advance(
    work: &mut Work<'_>,
    recipient: &AgentId,
    actor: &Actor,
    progress: &Progress,
) -> Result<Vec<(MessageId, Stage)>> {
    check_speaker(work, actor.speaker.as_ref())?;
    work.check_growth()?;
    if !matches!(
        progress.stage,
        Stage::OnHost | Stage::InSession | Stage::Seen
    ) {
        return Ok(Vec::new());
    }
    let tenure = actor.speaker.as_ref().and_then(Speaker::tenure);
    let reached = Reached::find(work, tenure, progress.context)?;
    let mut recorded = Vec::new();
    for id in &progress.message_ids {
        let Some(message) = MessageRow::received(work, recipient, id)? else {
            continue;
        };
        let stages = move_on(work, progress, &reached, message)?;
        for (stage, via) in progress
            .stages()
            .filter(|(stage, _)| stages.contains(stage))
        {
            audit::record_whole(work, || actor.received(recipient, id, stage, via))?;
        }
        recorded.extend(stages.into_iter().map(|stage| (id.clone(), stage)));
    }
    Ok(recorded)
}

/// Records the outcome of a question. Returns whether that was news, or `None` if the agent did not ask it.
pub(super) fn conclude(work: &mut Work<'_>, conclusion: &Conclusion) -> Result<Option<bool>> {
    check_speaker(work, conclusion.speaker.as_ref())?;
    let (id, asker) = (&conclusion.question, &conclusion.asker);
    let Some(mut question) = MessageRow::find(work, id)?.filter(|question| question.from == *asker)
    else {
        return Ok(None);
    };
    if !conclusion.follows(furthest(&question.history)) {
        return Ok(Some(false));
    }
    question.history.push(Step {
        stage: conclusion.stage,
        at: work.now,
        via: Some(conclusion.via),
        session: None,
        by: None,
        reply_id: None,
    });
    if conclusion.stage == Stage::Withdrawn {
        question.settle(work)?;
    } else {
        question.write_history(work)?;
    }
    audit::record(work, Event::Receipt, asker, |entry| Entry {
        stage: Some(conclusion.stage),
        via: Some(conclusion.via),
        ..entry
            .under(conclusion.key.as_deref())
            .to(&question.to)
            .about_message(id)
    })?;
    work.wakes.push(Wake::Receipt(question.id));
    Ok(Some(true))
}

/// Records that a message reached a person. Returns whether that was news.
pub(super) fn reach_person(work: &mut Work<'_>, reached: &PersonReached) -> Result<bool> {
    let (id, human) = (&reached.message, AgentId::human());
    let Some(mut message) = MessageRow::find(work, id)?.filter(|message| message.to == human)
    else {
        return Ok(false);
    };
    let step = Step {
        stage: reached.stage,
        at: work.now,
        via: Some(reached.via),
        session: None,
        by: Some(reached.by.clone()),
        reply_id: None,
    };
    let same =
        |known: &Step| (known.stage, known.via, &known.by) == (step.stage, step.via, &step.by);
    if furthest(&message.history).is_final() || message.history.iter().any(same) {
        return Ok(false);
    }
    message.history.push(step);
    message.write_history(work)?;
    audit::record(work, Event::Receipt, &human, |entry| Entry {
        stage: Some(reached.stage),
        via: Some(reached.via),
        ..entry.to(&message.from).about_message(id)
    })?;
    work.wakes.push(Wake::Receipt(message.id));
    Ok(true)
}

/// The session and context that messages reached.
struct Reached {
    /// The name of the session and context in histories.
    session: Option<String>,
    /// Whether the session has since moved on to another context.
    is_over: bool,
}

impl Reached {
    /// Returns the session and context that the evidence names. A newer context becomes the present one.
    fn find(work: &Work<'_>, tenure: Option<&Tenure>, context: u64) -> Result<Self> {
        let Some(tenure) = tenure else {
            return Ok(Self {
                session: None,
                is_over: false,
            });
        };
        let present = present_context(work, &tenure.agent)?;
        if context > present {
            enter_context(work, &tenure.agent, context)?;
        }
        Ok(Self {
            session: Some(tenure.session(context)),
            is_over: context < present,
        })
    }
}

/// Records the progress of one message. Returns the recorded stages.
fn move_on(
    work: &mut Work<'_>,
    progress: &Progress,
    evidence: &Reached,
    mut message: MessageRow,
) -> Result<Vec<Stage>> {
    let end = furthest(&message.history);
    let has_expired = end == Stage::Expired;
    if end.is_final() && !has_expired {
        return Ok(Vec::new());
    }
    if progress.stage == Stage::InSession && message.open && !has_expired {
        let sql = if evidence.is_over {
            "UPDATE messages SET repeated = 1 WHERE position = ? AND repeated = 0"
        } else {
            "UPDATE messages SET shown = 1 WHERE position = ? AND shown = 0"
        };
        work.connection
            .prepare_cached(sql)?
            .execute([message.position])?;
    }
    let (before, was_open) = (reached(&message.history), message.open);
    let mut recorded = Vec::new();
    for (stage, via) in progress.stages() {
        let steps = next_steps(
            &message.history,
            stage,
            via,
            evidence.session.as_deref(),
            work.now,
        );
        if !steps.is_empty() {
            recorded.push(stage);
            message.history.extend(steps);
            forget_contexts(&mut message.history);
        }
    }
    if recorded.is_empty() {
        return Ok(recorded);
    }
    if has_expired || (recorded.contains(&Stage::Seen) && !message.wants_answer) {
        message.settle(work)?;
    } else {
        message.write_history(work)?;
    }
    // A further context is no news for those that wait: a recipient has as many as it likes.
    if reached(&message.history) > before || (has_expired && was_open) {
        work.wakes.push(Wake::Receipt(message.id));
    }
    Ok(recorded)
}

/// Returns the steps that the evidence adds to the history; none if it proves nothing new.
fn next_steps(
    history: &[Step],
    stage: Stage,
    via: Via,
    session: Option<&str>,
    at: Timestamp,
) -> Vec<Step> {
    let has = |stage: Stage| history.iter().any(|step| step.stage == stage);
    let here = history
        .iter()
        .any(|step| step.stage == Stage::InSession && step.session.as_deref() == session);
    let beyond = stage > reached(history);
    let proves = match stage {
        Stage::InSession => beyond || (has(Stage::InSession) && !here),
        Stage::Seen => beyond && here,
        // A host that accepts an expired message shows it to nobody.
        _ => beyond && !has(Stage::Expired),
    };
    if !proves {
        return Vec::new();
    }
    let step = |stage| Step {
        stage,
        at,
        via: Some(via),
        session: session.map(str::to_owned),
        by: None,
        reply_id: None,
    };
    let mut steps = Vec::with_capacity(2);
    if stage == Stage::InSession && !has(Stage::OnHost) {
        steps.push(step(Stage::OnHost));
    }
    steps.push(step(stage));
    steps
}

/// Removes contexts from the middle of a long history: the first one stays, and the latest ones.
fn forget_contexts(history: &mut Vec<Step>) {
    let in_session = |step: &Step| step.stage == Stage::InSession;
    while history.iter().filter(|step| in_session(step)).count() > CONTEXTS_KEPT {
        let second = history
            .iter()
            .enumerate()
            .filter(|(_, step)| in_session(step))
            .nth(1)
            .map(|(index, _)| index);
        second.map(|index| history.remove(index));
    }
}

/// Deletes some of the messages that were settled long enough ago. Returns whether there may be more.
pub(super) fn sweep_archive(work: &mut Work<'_>) -> Result<bool> {
    let mut delete = work.connection.prepare_cached(
        "DELETE FROM messages WHERE position IN
            (SELECT position FROM messages INDEXED BY kept WHERE kept_until <= ? AND open = 0 LIMIT ?)",
    )?;
    Ok(delete.execute((stamp(work.now), integer(SWEEP_STEP)))? == SWEEP_STEP)
}
