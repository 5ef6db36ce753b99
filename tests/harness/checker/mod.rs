//! The delivery guarantees that hold whatever was killed meanwhile: takes events, returns findings. Pure code, without access
//! to processes.
//!
//! An accepted message is shown, and is shown again only if it is marked as repeated. A refused message is never shown. A
//! send with unknown outcome may have been applied, but only once. Messages between one sender and one recipient stay in
//! order. Every stage of a receipt has its evidence, and all evidence leads to its stage.

mod receipts;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use c3po_shared::time::Timestamp;

/// The number of a session in a run, in order of start.
pub type Session = usize;

/// The identifier in a message's text, by which it is recognised before it has an id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The lane: sender, recipient and tool. Messages of one lane are sent one after another.
    pub lane: String,
    /// Its number in the lane, from 1.
    pub number: u64,
}

impl Key {
    /// Parses the key at the start of a text.
    pub fn read(text: &str) -> Option<Self> {
        let (lane, rest) = text.split_once('#')?;
        let number = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self {
            lane: lane.to_owned(),
            number,
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.lane, self.number)
    }
}

/// The outcome of a send, from its sender's view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The reply had a stage: the message with that id exists.
    Accepted(String),
    /// It is on the host's disk, to be sent later.
    Queued,
    /// It was certainly not applied.
    Refused,
    /// It may have been applied or not.
    Unknown,
}

/// A message as it was shown to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its id.
    pub id: String,
    /// The key at the start of its text.
    pub key: Key,
    /// Whether it was marked as repeated.
    pub repeated: bool,
}

/// An entry of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The stage.
    pub stage: String,
    /// The time.
    pub at: Timestamp,
    /// The recipient's session, as the coordinator numbers it.
    pub session: Option<String>,
    /// For `answered`: the reply.
    pub reply: Option<String>,
}

/// An event of the run, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A session was started.
    Began { session: Session, at: Timestamp },
    /// A session was killed before it could report the rest.
    Killed { session: Session },
    /// A session answers or acknowledges a message, so its model has seen it.
    Named { session: Session, id: String },
    /// A send ended. `answers` is the message to which it replies.
    Sent {
        key: Key,
        outcome: Outcome,
        answers: Option<String>,
    },
    /// A session's wait returned a message.
    Shown { session: Session, shown: Shown },
    /// A call received no answer at all.
    Hung { session: Session, what: String },
    /// At the end: the history of a message.
    History { id: String, steps: Vec<Step> },
    /// At the end: a message that is still in an inbox.
    Left { id: String, key: Key },
}

/// A violated guarantee.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// An accepted message was never shown.
    Lost { key: Key, id: String },
    /// A message that was certainly refused was shown.
    Undead { key: Key, id: String },
    /// One send became several messages.
    SentTwice { key: Key, ids: Vec<String> },
    /// A message was shown twice to one session, or to a later one without the mark that an earlier session had it.
    ShownTwice { id: String, why: String },
    /// A message was marked as repeated, but had not been shown before.
    FalselyRepeated { id: String },
    /// A message arrived after a later one from the same sender.
    Reordered {
        key: Key,
        after: Key,
        session: Session,
    },
    /// A stage without evidence, or evidence without its stage.
    Receipt { id: String, why: String },
    /// A call was never answered.
    Hung { session: Session, what: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { key, id } => write!(f, "lost: {key} ({id}) was accepted and never shown"),
            Self::Undead { key, id } => write!(f, "undead: {key} ({id}) was refused and shown"),
            Self::SentTwice { key, ids } => {
                write!(f, "sent twice: {key} became {}", ids.join(", "))
            }
            Self::ShownTwice { id, why } => write!(f, "shown twice: {id} {why}"),
            Self::FalselyRepeated { id } => {
                write!(f, "falsely repeated: nobody was shown {id} before")
            }
            Self::Reordered {
                key,
                after,
                session,
            } => {
                write!(
                    f,
                    "reordered: {key} came after {after} in session {session}"
                )
            }
            Self::Receipt { id, why } => write!(f, "receipt: {id} {why}"),
            Self::Hung { session, what } => {
                write!(f, "hung: session {session} had no answer to {what}")
            }
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The number of sends.
    pub sends: usize,
    /// The sends that the coordinator accepted.
    pub accepted: usize,
    /// The sends that were first queued on a host.
    pub queued: usize,
    /// The sends that were certainly not applied.
    pub refused: usize,
    /// The sends with unknown outcome.
    pub unknown: usize,
    /// How often a message was shown to a session.
    pub shown: usize,
    /// How often it was marked as repeated.
    pub repeated: usize,
    /// The violated guarantees.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sends,
            accepted,
            queued,
            refused,
            unknown,
            shown,
            repeated,
            findings,
        } = self;
        writeln!(
            f,
            "{sends} sends: {accepted} accepted, {queued} queued, {refused} refused, {unknown} unknown; \
             {shown} shown, {repeated} of them marked as repeated; {} findings",
            findings.len()
        )?;
        findings
            .iter()
            .try_for_each(|finding| writeln!(f, "  {finding}"))
    }
}

/// Checks all events of a run.
pub fn check(events: &[Event]) -> Report {
    let story = Story::read(events);
    let mut report = story.counted();
    report.findings.extend(rules::losses(&story));
    report.findings.extend(rules::repeats(&story));
    report.findings.extend(rules::order(&story));
    report.findings.extend(receipts::unproven(&story));
    report.findings.extend(receipts::missing(&story));
    report.findings.sort();
    report.findings.dedup();
    report
}

/// A position in the sequence of events.
type Place = usize;

/// A send and its outcome.
struct Sent<'a> {
    outcome: &'a Outcome,
    answers: Option<&'a str>,
}

/// A message that was shown to a session.
struct Showing<'a> {
    /// Where the session is known to have the message.
    place: Place,
    session: Session,
    shown: &'a Shown,
}

/// The events, grouped by subject.
#[derive(Default)]
struct Story<'a> {
    sends: BTreeMap<&'a Key, Sent<'a>>,
    showings: BTreeMap<&'a str, Vec<Showing<'a>>>,
    began: BTreeMap<Session, Timestamp>,
    killed: BTreeSet<Session>,
    named: BTreeSet<(Session, &'a str)>,
    histories: BTreeMap<&'a str, &'a [Step]>,
    left: BTreeMap<&'a str, &'a Key>,
    hung: Vec<Finding>,
}

impl<'a> Story<'a> {
    fn read(events: &'a [Event]) -> Self {
        let mut story = Self::default();
        for (place, event) in events.iter().enumerate() {
            match event {
                Event::Began { session, at } => drop(story.began.insert(*session, *at)),
                Event::Killed { session } => drop(story.killed.insert(*session)),
                Event::Named { session, id } => {
                    story.named.insert((*session, id));
                }
                Event::Sent {
                    key,
                    outcome,
                    answers,
                } => {
                    story.sends.insert(
                        key,
                        Sent {
                            outcome,
                            answers: answers.as_deref(),
                        },
                    );
                }
                Event::Shown { session, shown } => {
                    let showing = Showing {
                        place,
                        session: *session,
                        shown,
                    };
                    story.showings.entry(&shown.id).or_default().push(showing);
                }
                Event::Hung { session, what } => {
                    story.hung.push(Finding::Hung {
                        session: *session,
                        what: what.clone(),
                    });
                }
                Event::History { id, steps } => drop(story.histories.insert(id, steps)),
                Event::Left { id, key } => drop(story.left.insert(id, key)),
            }
        }
        story
    }

    fn counted(&self) -> Report {
        let of = |wanted: fn(&Outcome) -> bool| {
            self.sends
                .values()
                .filter(|sent| wanted(sent.outcome))
                .count()
        };
        let showings = || self.showings.values().flatten();
        Report {
            sends: self.sends.len(),
            accepted: of(|outcome| matches!(outcome, Outcome::Accepted(_))),
            queued: of(|outcome| matches!(outcome, Outcome::Queued)),
            refused: of(|outcome| matches!(outcome, Outcome::Refused)),
            unknown: of(|outcome| matches!(outcome, Outcome::Unknown)),
            shown: showings().count(),
            repeated: showings().filter(|showing| showing.shown.repeated).count(),
            findings: self.hung.clone(),
        }
    }
}
