//! Rules about losses, repeats and order.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Key, Outcome, Session, Showing, Story};

/// Finds messages that were accepted but not shown, refused but shown, or sent once but present twice.
pub(super) fn losses(story: &Story<'_>) -> Vec<Finding> {
    let mut ids: BTreeMap<&Key, BTreeSet<&str>> = BTreeMap::new();
    for (id, showings) in &story.showings {
        for showing in showings {
            ids.entry(&showing.shown.key).or_default().insert(id);
        }
    }
    for (id, key) in &story.left {
        ids.entry(key).or_default().insert(id);
    }
    let mut findings = Vec::new();
    for (key, sent) in &story.sends {
        let found = ids.remove(key).unwrap_or_default();
        let shown = |id: &&&str| story.showings.contains_key(**id);
        match sent.outcome {
            Outcome::Accepted(id) if !story.showings.contains_key(id.as_str()) => {
                findings.push(Finding::Lost {
                    key: (*key).clone(),
                    id: id.clone(),
                });
            }
            Outcome::Queued if !found.iter().any(|id| shown(&id)) => {
                findings.push(Finding::Lost {
                    key: (*key).clone(),
                    id: "queued".to_owned(),
                });
            }
            Outcome::Refused => findings.extend(found.iter().map(|id| Finding::Undead {
                key: (*key).clone(),
                id: (*id).to_owned(),
            })),
            _ => {}
        }
        if found.len() > 1 {
            let ids = found.iter().map(|id| (*id).to_owned()).collect();
            findings.push(Finding::SentTwice {
                key: (*key).clone(),
                ids,
            });
        }
    }
    // Messages without a known send are findings too.
    let nobodys = |(key, ids): (&Key, BTreeSet<&str>)| {
        ids.into_iter()
            .map(|id| Finding::Undead {
                key: key.clone(),
                id: id.to_owned(),
            })
            .collect::<Vec<_>>()
    };
    findings.extend(ids.into_iter().flat_map(nobodys));
    findings
}

/// Finds messages shown twice to one session, shown to a second session without a mark, or wrongly marked.
pub(super) fn repeats(story: &Story<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (id, showings) in &story.showings {
        let mut sessions = BTreeSet::new();
        for (nth, showing) in showings.iter().enumerate() {
            let twice = |why: String| Finding::ShownTwice {
                id: (*id).to_owned(),
                why,
            };
            if !sessions.insert(showing.session) {
                findings.push(twice(format!(
                    "was given to session {} again",
                    showing.session
                )));
            }
            let is_first = sessions.len() == 1;
            // A session notes a message before it shows it. If it was killed in between, the mark is correct although no
            // event shows the message.
            let may_be_cut_off = story
                .killed
                .iter()
                .any(|session| *session < showing.session);
            if showing.shown.repeated && nth == 0 && !may_be_cut_off {
                findings.push(Finding::FalselyRepeated {
                    id: (*id).to_owned(),
                });
            }
            if !showing.shown.repeated && !is_first {
                findings.push(twice(format!(
                    "was given to session {} without a mark",
                    showing.session
                )));
            }
        }
    }
    findings
}

/// Finds messages that were shown to a session after a message that was sent later. Ignores sends with unknown outcome,
/// because the time at which they took effect is unknown.
pub(super) fn order(story: &Story<'_>) -> Vec<Finding> {
    let mut last: BTreeMap<(Session, &str, &str), &Key> = BTreeMap::new();
    let mut showings: Vec<_> = story.showings.values().flatten().collect();
    showings.sort_by_key(|showing| showing.place);
    let mut findings = Vec::new();
    for Showing { session, shown, .. } in showings {
        let known = story
            .sends
            .get(&shown.key)
            .is_some_and(|sent| *sent.outcome != Outcome::Unknown);
        if !known {
            continue;
        }
        // The sender's name at that time: a session may have had to take another name.
        let sender = shown.id.split("::").next().unwrap_or_default();
        match last.insert((*session, sender, &shown.key.lane), &shown.key) {
            Some(after) if after.number > shown.key.number => {
                findings.push(Finding::Reordered {
                    key: shown.key.clone(),
                    after: after.clone(),
                    session: *session,
                });
            }
            _ => {}
        }
    }
    findings
}
