//! The guarantees of the last hop, whatever people, clients and services do: takes records, returns findings. Pure code,
//! without access to processes.
//!
//! Every message is in an answered request of its recipient, and no receipt reports it as seen earlier. A second copy in one
//! request carries the repeated mark, and a first copy carries it only if the message may have been shown before. Every
//! receipt about the last context is confirmed by its conversation. No idle session is left with a question.

mod rules;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use c3po_shared::time::Timestamp;

use super::token::Token;
use crate::fake_api::Fate;

/// The number of a session in a run, from 0; it stays the same across conversations and processes.
pub type Seat = usize;

/// An accepted message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The token in its text. Its seat is the recipient.
    pub token: Token,
    /// Its id.
    pub id: String,
    /// Whether it needs an answer. If not, it is settled when it is seen.
    pub wants_answer: bool,
    /// Whether it may start a turn: questions may, news only if they are urgent.
    pub presses: bool,
    /// When it was accepted.
    pub at: Timestamp,
}

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// The session itself.
    Session,
    /// A subagent of the session.
    Subagent,
    /// The compaction of its conversation.
    Compaction,
    /// A request without tools, such as the one for a title.
    Side,
}

/// A message in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// The message.
    pub token: Token,
    /// Whether it is marked there as possibly shown before.
    pub marked: bool,
}

/// A request of a session's model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The session.
    pub seat: Seat,
    /// The origin.
    pub asker: Asker,
    /// The time at which it arrived.
    pub at: Timestamp,
    /// How and when it ended.
    pub ended: Option<(Fate, Timestamp)>,
    /// The messages in it, in order, with every copy.
    pub standing: Vec<Standing>,
}

/// A period in which a session's client reported that it was idle, with no dialog or screen open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idle {
    /// The session.
    pub seat: Seat,
    /// The start.
    pub from: Timestamp,
    /// The end.
    pub to: Timestamp,
}

/// The consequence of a person's action for messages that were shown before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// Messages on their way may have been lost, so that they come again with a mark.
    Disturbs,
    /// The next conversation contains no messages that were shown before.
    Renews,
}

/// An action of a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed {
    /// The session.
    pub seat: Seat,
    /// Its name.
    pub name: String,
    /// The start.
    pub from: Timestamp,
    /// The end.
    pub to: Timestamp,
    /// Its consequence.
    pub effect: Effect,
}

/// An entry of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The stage.
    pub stage: String,
    /// The way by which it was reached.
    pub via: Option<String>,
    /// The time.
    pub at: Timestamp,
    /// The recipient's session and context, as the coordinator numbers them.
    pub session: Option<String>,
}

/// Everything that happened in a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The messages, in the order of their acceptance.
    pub sent: Vec<Sent>,
    /// The requests, in the order of their arrival.
    pub requests: Vec<Request>,
    /// The idle periods.
    pub idle: Vec<Idle>,
    /// The actions of people.
    pub deeds: Vec<Deed>,
    /// When a model answered or acknowledged each message.
    pub settled: BTreeMap<Token, Timestamp>,
    /// At the end: the history of each message.
    pub histories: BTreeMap<Token, Vec<Step>>,
    /// At the end: the messages that are still in an inbox.
    pub left: BTreeSet<Token>,
    /// For each session, the last message that was sent to it; its last context was shown this message.
    pub last: BTreeMap<Seat, Token>,
    /// Text on a screen that must never be there.
    pub screens: Vec<(Seat, String)>,
    /// The end of the run.
    pub over: Timestamp,
}

/// A violated guarantee.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    /// A receipt reports a message as seen before a request with it was answered.
    Unseen { token: Token, via: String },
    /// A receipt reports a message as in a session, but no request of the session contained it.
    NeverThere { token: Token, via: String },
    /// No request with the message was answered.
    Lost { token: Token },
    /// One request contains a message twice, and the later copy is not marked.
    Twice {
        token: Token,
        copies: usize,
        asker: Asker,
    },
    /// A message is marked as possibly shown before, but nothing happened that could explain it.
    FalselyMarked { token: Token },
    /// A receipt reports a message as in the last context, but its conversation does not contain it.
    Missing { token: Token, stage: String },
    /// A message is still in the inbox, but the last context was not shown it.
    Forgotten { token: Token },
    /// A session was idle for that many seconds although a message could have started a turn.
    LeftIdle { token: Token, seconds: u64 },
    /// A screen showed something that must never be there.
    Screen { seat: Seat, text: String },
}

impl Finding {
    /// Returns the message that the finding is about.
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
                write!(
                    f,
                    "unseen: {token} is seen by {via}, and no answered request held it"
                )
            }
            Self::NeverThere { token, via } => write!(
                f,
                "never there: {token} is in_session by {via}, in no request"
            ),
            Self::Lost { token } => write!(f, "lost: no request with {token} was answered"),
            Self::Twice {
                token,
                copies,
                asker,
            } => {
                write!(
                    f,
                    "twice: {token} stands {copies} times in one request of the {asker:?}, unmarked"
                )
            }
            Self::FalselyMarked { token } => {
                write!(f, "falsely marked: {token} was certainly not shown before")
            }
            Self::Missing { token, stage } => {
                write!(
                    f,
                    "missing: {token} is {stage} in the last context, and not there"
                )
            }
            Self::Forgotten { token } => write!(
                f,
                "forgotten: {token} is in the inbox, not in the last context"
            ),
            Self::LeftIdle { token, seconds } => {
                write!(
                    f,
                    "left idle: {token} waited beside an idle session, {seconds} s"
                )
            }
            Self::Screen { seat, text } => write!(f, "screen of session {seat}: {text}"),
        }
    }
}

/// The result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The accepted messages that may start a turn.
    pub questions: usize,
    /// The other messages.
    pub news: usize,
    /// The numbers of requests that were answered, failed, and were cut off.
    pub requests: [usize; 3],
    /// The number of actions, by name.
    pub deeds: BTreeMap<String, usize>,
    /// The messages with more than one copy in a request, all marked.
    pub repeated: usize,
    /// The most copies of one message in one request.
    pub most: usize,
    /// The longest time for which a message waited while the session was idle.
    pub longest: Duration,
    /// The violated guarantees.
    pub findings: Vec<Finding>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [answered, failed, cut_off] = self.requests;
        let Self {
            questions,
            news,
            repeated,
            most,
            longest,
            findings,
            ..
        } = self;
        writeln!(
            f,
            "{questions} questions and {news} news; {answered} requests answered, {failed} failed, {cut_off} cut off; \
             {repeated} messages repeated in one context, one of them {most} times; the longest wait beside an idle \
             session {:.1} s; {} findings",
            longest.as_secs_f64(),
            findings.len()
        )?;
        let deeds: Vec<_> = self
            .deeds
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        writeln!(f, "  actions: {}", deeds.join(", "))?;
        findings
            .iter()
            .try_for_each(|finding| writeln!(f, "  {finding}"))
    }
}

/// Checks the whole record.
pub fn check(record: &Record) -> Report {
    let mut report = rules::counted(record);
    report
        .findings
        .extend(rules::receipts_before_requests(record));
    report.findings.extend(rules::losses(record));
    report.findings.extend(rules::repeats(record));
    report.findings.extend(rules::last_contexts(record));
    let waits = rules::waits(record);
    report.longest = waits
        .iter()
        .map(|wait| wait.length)
        .max()
        .unwrap_or_default();
    report
        .findings
        .extend(waits.iter().filter_map(rules::Wait::finding));
    report.findings.sort();
    report.findings.dedup();
    report
}
