//! What must hold of messages, whatever was killed meanwhile: events in, findings out. Pure: knows no process.
//!
//! An accepted message is shown, and never twice without saying so; what was refused is never shown; an unknown
//! outcome may be either, once. Between one sender and one recipient the order stays. Every stage of a receipt has
//! its evidence, and what was evident has its stage.

mod receipts;
mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use c3po_shared::time::Timestamp;

/// Numbers the sessions of a run, in the order in which they began.
pub type Session = usize;

/// What a message is known by before it has an id: it stands in its text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Messages of one lane are sent one after another: who sends, to whom, and by which tool.
    pub lane: String,
    /// Which of the lane, from 1.
    pub number: u64,
}

impl Key {
    /// Returns the key that a text begins with.
    pub fn read(text: &str) -> Option<Self> {
        let (lane, rest) = text.split_once('#')?;
        let number = rest.split_whitespace().next()?.parse().ok()?;
        Some(Self { lane: lane.to_owned(), number })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.lane, self.number)
    }
}

/// What its sender knows of a send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered with a stage: the message of that id exists.
    Accepted(String),
    /// It is on the host's disk and will be sent.
    Queued,
    /// It was certainly not applied.
    Refused,
    /// It may have been applied or not.
    Unknown,
}

/// A message as a session was shown it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// Its id.
    pub id: String,
    /// What its text begins with.
    pub key: Key,
    /// Whether it says that it was shown before.
    pub repeated: bool,
}

/// A line of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// How far.
    pub stage: String,
    /// When.
    pub at: Timestamp,
    /// Which session of the recipient, as the coordinator counts.
    pub session: Option<String>,
    /// For `answered`: the reply.
    pub reply: Option<String>,
}

/// What happened, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A session was started.
    Began { session: Session, at: Timestamp },
    /// A session was killed, and with it whatever it had not said yet.
    Killed { session: Session },
    /// A session called a tool: what it was shown before, its model has seen. One wait at a time is what shows.
    Called { session: Session, waits: bool },
    /// A send ended. `answers` is the message that it replies to.
    Sent { key: Key, outcome: Outcome, answers: Option<String> },
    /// A wait of a session was given a message.
    Shown { session: Session, shown: Shown },
    /// A call was not answered at all.
    Hung { session: Session, what: String },
    /// At the end: how far a message got.
    History { id: String, steps: Vec<Step> },
    /// At the end: what lies in an inbox.
    Left { id: String, key: Key },
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// An accepted message was never shown.
    Lost { key: Key, id: String },
    /// A message that was certainly refused was shown.
    Undead { key: Key, id: String },
    /// One send became several messages.
    SentTwice { key: Key, ids: Vec<String> },
    /// One session was shown a message twice, or a later one without being told that an earlier one had it.
    ShownTwice { id: String, why: String },
    /// A message says that it was shown before, and it was not.
    FalselyRepeated { id: String },
    /// A message came after a later one of the same sender.
    Reordered { key: Key, after: Key, session: Session },
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
            Self::SentTwice { key, ids } => write!(f, "sent twice: {key} became {}", ids.join(", ")),
            Self::ShownTwice { id, why } => write!(f, "shown twice: {id} {why}"),
            Self::FalselyRepeated { id } => write!(f, "falsely repeated: nobody was shown {id} before"),
            Self::Reordered { key, after, session } => {
                write!(f, "reordered: {key} came after {after} in session {session}")
            }
            Self::Receipt { id, why } => write!(f, "receipt: {id} {why}"),
            Self::Hung { session, what } => write!(f, "hung: session {session} had no answer to {what}"),
        }
    }
}

/// What a run amounts to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many sends were made.
    pub sends: usize,
    /// How many of them were accepted by the coordinator.
    pub accepted: usize,
    /// How many were kept on a host first.
    pub queued: usize,
    /// How many were certainly not applied.
    pub refused: usize,
    /// How many had no known outcome.
    pub unknown: usize,
    /// How often a message was put before a session.
    pub shown: usize,
    /// How many of these were marked as repeated.
    pub repeated: usize,
    /// What must not be.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sends, accepted, queued, refused, unknown, shown, repeated, findings } = self;
        writeln!(
            f,
            "{sends} sends: {accepted} accepted, {queued} queued, {refused} refused, {unknown} unknown; \
             {shown} shown, {repeated} of them marked as repeated; {} findings",
            findings.len()
        )?;
        findings.iter().try_for_each(|finding| writeln!(f, "  {finding}"))
    }
}

/// Looks through everything that happened.
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

/// Where something stands among the events.
type Place = usize;

/// A send and its outcome.
struct Sent<'a> {
    outcome: &'a Outcome,
    answers: Option<&'a str>,
}

/// A message put before a session.
struct Showing<'a> {
    /// When the session was known to have it, and when the wait began that got it: it was given to it in between.
    place: Place,
    asked: Place,
    session: Session,
    shown: &'a Shown,
}

/// The events by what they are about.
#[derive(Default)]
struct Story<'a> {
    sends: BTreeMap<&'a Key, Sent<'a>>,
    showings: BTreeMap<&'a str, Vec<Showing<'a>>>,
    began: BTreeMap<Session, Timestamp>,
    killed: BTreeSet<Session>,
    last_call: BTreeMap<Session, Place>,
    histories: BTreeMap<&'a str, &'a [Step]>,
    left: BTreeMap<&'a str, &'a Key>,
    hung: Vec<Finding>,
}

impl<'a> Story<'a> {
    fn read(events: &'a [Event]) -> Self {
        let mut story = Self::default();
        let mut asked = BTreeMap::new();
        for (place, event) in events.iter().enumerate() {
            match event {
                Event::Began { session, at } => drop(story.began.insert(*session, *at)),
                Event::Killed { session } => drop(story.killed.insert(*session)),
                Event::Called { session, waits } => {
                    story.last_call.insert(*session, place);
                    if *waits {
                        asked.insert(*session, place);
                    }
                }
                Event::Sent { key, outcome, answers } => {
                    story.sends.insert(key, Sent { outcome, answers: answers.as_deref() });
                }
                Event::Shown { session, shown } => {
                    let asked = asked.get(session).copied().unwrap_or(place);
                    let showing = Showing { place, asked, session: *session, shown };
                    story.showings.entry(&shown.id).or_default().push(showing);
                }
                Event::Hung { session, what } => {
                    story.hung.push(Finding::Hung { session: *session, what: what.clone() });
                }
                Event::History { id, steps } => drop(story.histories.insert(id, steps)),
                Event::Left { id, key } => drop(story.left.insert(id, key)),
            }
        }
        story
    }

    fn counted(&self) -> Report {
        let of = |wanted: fn(&Outcome) -> bool| self.sends.values().filter(|sent| wanted(sent.outcome)).count();
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
