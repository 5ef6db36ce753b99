//! What must hold of the last hop whatever persons, clients and services do: records in, findings out. Pure: knows no process.
//!
//! Every message stands in a request of its recipient that the service answered, and before that no receipt says that it
//! was seen. None stands twice in one request unless the second says so, and none says so that was never there. What a
//! receipt says of the last context is in its conversation. No idle session is left with a question.

mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use c3po_shared::time::Timestamp;

use super::token::Token;
use crate::fake_api::Fate;

/// Which session of a run, from 0, whatever conversations and processes it has one after the other.
pub type Seat = usize;

/// A message that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// What stands in its text. Its seat is the recipient.
    pub token: Token,
    /// Its id.
    pub id: String,
    /// Whether it wants an answer. One that does not is settled when it was seen.
    pub wants_answer: bool,
    /// Whether it may start a turn: questions do, news do not unless they are urgent.
    pub presses: bool,
    /// When it was accepted.
    pub at: Timestamp,
}

/// Whose request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// The session itself.
    Session,
    /// A subagent of it.
    Subagent,
    /// The compaction of its conversation.
    Compaction,
    /// Something without tools, such as a title.
    Side,
}

/// A message in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Which.
    pub token: Token,
    /// Whether it says there that it may have been shown before.
    pub marked: bool,
}

/// A request of a session's model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Which session's.
    pub seat: Seat,
    /// Who asked.
    pub asker: Asker,
    /// When it came.
    pub at: Timestamp,
    /// What became of it, and when.
    pub ended: Option<(Fate, Timestamp)>,
    /// The messages in it, each as often as it stands there, in order.
    pub standing: Vec<Standing>,
}

/// A time in which a session's client said that it was idle, and nothing of it was open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// Which session's.
    pub seat: Seat,
    /// From when.
    pub from: Timestamp,
    /// Until when.
    pub to: Timestamp,
}

/// What a person's action means for what was shown before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// What was on its way may have been lost, so that it comes with a mark.
    Disturbs,
    /// The conversation that follows holds nothing of what was shown.
    Renews,
}

/// An action of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// In which session.
    pub seat: Seat,
    /// Its name.
    pub name: String,
    /// When it began.
    pub from: Timestamp,
    /// When it was over.
    pub to: Timestamp,
    /// What it means.
    pub effect: Effect,
}

/// A line of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// How far.
    pub stage: String,
    /// By which way.
    pub via: Option<String>,
    /// When.
    pub at: Timestamp,
    /// Which session and context of the recipient, as the coordinator counts.
    pub session: Option<String>,
}

/// Everything that happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The messages, in the order in which they were accepted.
    pub sent: Vec<Sent>,
    /// The requests, in the order in which they came.
    pub requests: Vec<Request>,
    /// Idle times.
    pub idle: Vec<Idle>,
    /// What persons did.
    pub deeds: Vec<Deed>,
    /// When a model answered or acknowledged a message.
    pub settled: BTreeMap<Token, Timestamp>,
    /// At the end: how far each message got.
    pub histories: BTreeMap<Token, Vec<Step>>,
    /// At the end: what is in an inbox.
    pub left: BTreeSet<Token>,
    /// The last message to each session, which its last context was shown.
    pub last: BTreeMap<Seat, Token>,
    /// What was on a screen that must never be there.
    pub screens: Vec<(Seat, String)>,
    /// When everything was over.
    pub over: Timestamp,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A receipt says that a message was seen before a request with it was answered.
    Unseen { token: Token, via: String },
    /// A receipt says that a message was in a session, and no request of it ever held it.
    NeverThere { token: Token, via: String },
    /// No request with the message was answered.
    Lost { token: Token },
    /// One request holds a message twice, and the later one does not say so.
    Twice { token: Token, copies: usize, asker: Asker },
    /// A message says that it may have been shown before, and nothing happened by which it may have been.
    FalselyMarked { token: Token },
    /// A receipt says that a message is in the last context, and its conversation does not hold it.
    Missing { token: Token, stage: String },
    /// A message is in the inbox, and the last context was not shown it.
    Forgotten { token: Token },
    /// A session was idle for so many seconds with a message that starts a turn.
    LeftIdle { token: Token, seconds: u64 },
    /// A screen showed something that must never be there.
    Screen { seat: Seat, text: String },
}

impl Finding {
    /// Returns the message that it is about.
    pub fn token(&self) -> Option<Token> {
        match self {
            Self::Unseen { token, .. }
            | Self::NeverThere { token, .. }
            | Self::Lost { token }
            | Self::Twice { token, .. }
            | Self::FalselyMarked { token }
            | Self::Missing { token, .. }
            | Self::Forgotten { token }
            | Self::LeftIdle { token, .. } => Some(*token),
            Self::Screen { .. } => None,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unseen { token, via } => {
                write!(f, "unseen: {token} is seen by {via}, and no answered request held it")
            }
            Self::NeverThere { token, via } => write!(f, "never there: {token} is in_session by {via}, in no request"),
            Self::Lost { token } => write!(f, "lost: no request with {token} was answered"),
            Self::Twice { token, copies, asker } => {
                write!(f, "twice: {token} stands {copies} times in one request of the {asker:?}, unmarked")
            }
            Self::FalselyMarked { token } => write!(f, "falsely marked: {token} was certainly not shown before"),
            Self::Missing { token, stage } => {
                write!(f, "missing: {token} is {stage} in the last context, and not there")
            }
            Self::Forgotten { token } => write!(f, "forgotten: {token} is in the inbox, not in the last context"),
            Self::LeftIdle { token, seconds } => {
                write!(f, "left idle: {token} waited beside an idle session, {seconds} s")
            }
            Self::Screen { seat, text } => write!(f, "screen of session {seat}: {text}"),
        }
    }
}

/// What a run amounts to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How many messages were accepted that may start a turn.
    pub questions: usize,
    /// How many others.
    pub news: usize,
    /// How many requests were answered, failed, and were cut off.
    pub requests: [usize; 3],
    /// How many actions there were, by name.
    pub deeds: BTreeMap<String, usize>,
    /// How many messages stood twice or more in one request, marked.
    pub repeated: usize,
    /// How often the most repeated of them stood in one request.
    pub most: usize,
    /// The longest time for which a message waited beside an idle session.
    pub longest: Duration,
    /// What must not be.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [answered, failed, cut_off] = self.requests;
        let Self { questions, news, repeated, most, longest, findings, .. } = self;
        writeln!(
            f,
            "{questions} questions and {news} news; {answered} requests answered, {failed} failed, {cut_off} cut off; \
             {repeated} messages repeated in one context, one of them {most} times; the longest wait beside an idle \
             session {:.1} s; {} findings",
            longest.as_secs_f64(),
            findings.len()
        )?;
        let deeds: Vec<_> = self.deeds.iter().map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(f, "  actions: {}", deeds.join(", "))?;
        findings.iter().try_for_each(|finding| writeln!(f, "  {finding}"))
    }
}

/// Looks through everything that happened.
pub fn check(record: &Record) -> Report {
    let mut report = rules::counted(record);
    report.findings.extend(rules::receipts_before_requests(record));
    report.findings.extend(rules::losses(record));
    report.findings.extend(rules::repeats(record));
    report.findings.extend(rules::last_contexts(record));
    let waits = rules::waits(record);
    report.longest = waits.iter().map(|wait| wait.length).max().unwrap_or_default();
    report.findings.extend(waits.iter().filter_map(rules::Wait::finding));
    report.findings.sort();
    report.findings.dedup();
    report
}
