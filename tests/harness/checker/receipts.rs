//! Compares receipts with the events: no stage without evidence, and no evidence without its stage.

use std::collections::BTreeSet;

use super::{Finding, Outcome, Showing, Step, Story};

/// Finds stages without proof in the run, and histories in an impossible order.
pub(super) fn unproven(story: &Story<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, steps) in &story.histories {
        let complain = |why: String| {
            let id = (*id).to_owned();
            findings.push(Finding::Receipt { id, why });
        };
        check(story, id, steps, complain);
    }
    findings
}

/// Checks the receipt of one message.
fn check(story: &Story<'_>, id: &str, steps: &[Step], mut complain: impl FnMut(String)) {
    if steps.first().is_none_or(|step| step.stage != "stored") {
        complain("does not begin with stored".to_owned());
    }
    if steps.windows(2).any(|pair| pair[0].at > pair[1].at) {
        complain("goes back in time".to_owned());
    }
    let showings = story
        .showings
        .get(id)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let sessions: BTreeSet<_> = showings.iter().map(|showing| showing.session).collect();
    let in_session: Vec<_> = steps
        .iter()
        .filter(|step| step.stage == "in_session")
        .collect();
    // A message that is still in an inbox at the end was read by a page, not by a wait.
    let is_left = story.left.contains_key(id);
    let given = sessions.len() + usize::from(is_left);
    if in_session.len() > given {
        complain(format!(
            "was in {} sessions, and {given} were given it",
            in_session.len()
        ));
    }
    for step in steps {
        match step.stage.as_str() {
            "stored" | "on_host" | "in_session" => {}
            "seen" => {
                if !in_session.iter().any(|shown| shown.session == step.session) {
                    complain(format!(
                        "was seen in session {:?}, in which it was not",
                        step.session
                    ));
                }
                if !is_left && !showings.iter().any(|showing| is_named(story, id, showing)) {
                    complain("was seen, and no session that had it named it".to_owned());
                }
            }
            "answered" => {
                if !is_answered_by(story, id, step) {
                    complain(format!(
                        "was answered by {:?}, which nobody sent",
                        step.reply
                    ));
                }
            }
            other => complain(format!("is {other}")),
        }
    }
}

/// Returns whether the session named the message in a call.
fn is_named(story: &Story<'_>, id: &str, showing: &Showing<'_>) -> bool {
    story.named.contains(&(showing.session, id))
}

/// Returns whether that reply was sent, or may have been sent.
fn is_answered_by(story: &Story<'_>, id: &str, step: &Step) -> bool {
    let Some(reply) = &step.reply else {
        return false;
    };
    story
        .sends
        .values()
        .filter(|sent| sent.answers == Some(id))
        .any(|sent| match sent.outcome {
            Outcome::Accepted(accepted) => accepted == reply,
            Outcome::Queued | Outcome::Unknown => true,
            Outcome::Refused => false,
        })
}

/// Finds histories without the stage for a message that a surviving session received, or for an accepted answer.
pub(super) fn missing(story: &Story<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let stages = |id: &str| -> BTreeSet<&str> {
        let steps = story.histories.get(id).copied().unwrap_or_default();
        steps.iter().map(|step| step.stage.as_str()).collect()
    };
    for (id, showings) in story
        .showings
        .iter()
        .filter(|(id, _)| story.histories.contains_key(**id))
    {
        let Some(survivor) = showings
            .iter()
            .find(|showing| !story.killed.contains(&showing.session))
        else {
            continue;
        };
        let stages = stages(id);
        // Nothing is recorded after an answer, which may be stored even if the store could not record an earlier receipt.
        if stages.contains("answered") {
            continue;
        }
        let mut wanted = vec!["in_session"];
        if is_named(story, id, survivor) {
            wanted.push("seen");
        }
        for stage in wanted.into_iter().filter(|stage| !stages.contains(stage)) {
            let why = format!(
                "is not {stage} but {stages:?}, and session {} had it and was not killed",
                survivor.session
            );
            findings.push(Finding::Receipt {
                id: (*id).to_owned(),
                why,
            });
        }
    }
    for sent in story.sends.values() {
        if let (Outcome::Accepted(reply), Some(id)) = (sent.outcome, sent.answers)
            && !stages(id).contains("answered")
        {
            findings.push(Finding::Receipt {
                id: id.to_owned(),
                why: format!("is not answered, and {reply} answers it"),
            });
        }
    }
    findings
}
