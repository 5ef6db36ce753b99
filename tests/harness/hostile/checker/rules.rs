//! The rules of the checker, one function each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use c3po_shared::time::Timestamp;

use super::{Asker, Deed, Effect, Finding, Idle, Record, Report, Request, Seat, Sent, Standing};
use crate::fake_api::Fate;
use crate::hostile::token::Token;

/// How long a session may be idle while a message could start a turn.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// The precision of the idle periods.
const LOOK: Duration = Duration::from_secs(1);
/// After a failure of the model's service c3po leaves a session alone, first for 30 s, then for 60 s.
const FAILURE: Duration = Duration::from_secs(60);
/// Times have millisecond precision, and come from two processes.
const CLOCKS: Duration = Duration::from_millis(50);

/// Counts everything, and copies the violations that are already known.
pub(super) fn counted(record: &Record) -> Report {
    let of = |fate| {
        record
            .requests
            .iter()
            .filter(|request| request.ended.map(|(ended, _)| ended) == Some(fate))
            .count()
    };
    let mut deeds = BTreeMap::new();
    for deed in &record.deeds {
        *deeds.entry(deed.name.clone()).or_default() += 1;
    }
    let mut copies: BTreeMap<Token, usize> = BTreeMap::new();
    for (token, standing) in record.requests.iter().flat_map(by_message) {
        let most = copies.entry(token).or_default();
        *most = standing.len().max(*most);
    }
    let questions = record.sent.iter().filter(|sent| sent.presses).count();
    let screens = record.screens.iter().map(|(seat, text)| Finding::Screen {
        seat: *seat,
        text: text.clone(),
    });
    Report {
        questions,
        news: record.sent.len() - questions,
        requests: [Fate::Answered, Fate::Failed, Fate::CutOff].map(of),
        deeds,
        repeated: copies.values().filter(|most| **most > 1).count(),
        most: copies.values().copied().max().unwrap_or_default(),
        longest: Duration::ZERO,
        findings: screens.collect(),
    }
}

/// Finds receipts that reported more than was true at the time.
pub(super) fn receipts_before_requests(record: &Record) -> Vec<Finding> {
    let mut findings = Vec::new();
    for sent in &record.sent {
        let token = sent.token;
        for step in record.histories.get(&token).into_iter().flatten() {
            let via = step.via.clone().unwrap_or_default();
            let latest = step.at + CLOCKS;
            let was_answered = |request: &Request| answered(request).is_some_and(|at| at <= latest);
            match step.stage.as_str() {
                "seen" if !of_session(record, token).any(was_answered) => {
                    findings.push(Finding::Unseen { token, via });
                }
                "in_session" if !record.requests.iter().any(|request| holds(request, token)) => {
                    findings.push(Finding::NeverThere { token, via });
                }
                _ => {}
            }
        }
    }
    findings
}

/// Finds messages that no answered request contained.
pub(super) fn losses(record: &Record) -> Vec<Finding> {
    let is_lost =
        |sent: &&Sent| !of_session(record, sent.token).any(|request| answered(request).is_some());
    record
        .sent
        .iter()
        .filter(is_lost)
        .map(|sent| Finding::Lost { token: sent.token })
        .collect()
}

/// Finds repeated copies without a mark, and first copies with a wrong one.
///
/// A client that resumes a conversation may place the context of an earlier hook behind the next prompt. So the one copy
/// without a mark is the first one in the request, or stood there before the others came.
pub(super) fn repeats(record: &Record) -> Vec<Finding> {
    let (mut findings, mut known, mut twice) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let mut unmarked_before = BTreeSet::new();
    for request in record
        .requests
        .iter()
        .filter(|request| request.asker != Asker::Side)
    {
        for (token, standing) in by_message(request) {
            let unmarked = standing.iter().filter(|copy| !copy.marked).count();
            let is_older = !standing[0].marked || unmarked_before.contains(&token);
            if (unmarked > 1 || (unmarked == 1 && !is_older)) && twice.insert(token) {
                findings.push(Finding::Twice {
                    token,
                    copies: standing.len(),
                    asker: request.asker,
                });
            }
            if known.insert(token)
                && standing[0].marked
                && !may_have_been_shown(record, token, request.at)
            {
                findings.push(Finding::FalselyMarked { token });
            }
            if unmarked > 0 {
                unmarked_before.insert(token);
            }
        }
    }
    findings
}

/// Compares the last context of each session with its receipts.
pub(super) fn last_contexts(record: &Record) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (seat, last) in &record.last {
        let mut requests = record
            .requests
            .iter()
            .filter(|request| is_of(request, *seat));
        let Some(request) = requests.rfind(|request| answered(request).is_some()) else {
            continue;
        };
        let present: BTreeSet<Token> = request
            .standing
            .iter()
            .map(|standing| standing.token)
            .collect();
        let context = shown_in(record, *last);
        for sent in record
            .sent
            .iter()
            .filter(|sent| sent.token.seat == *seat && !present.contains(&sent.token))
        {
            let token = sent.token;
            let steps = record.histories.get(&token).into_iter().flatten();
            let mut claims =
                steps.filter(|step| context.is_some() && step.session.as_deref() == context);
            if let Some(step) =
                claims.rfind(|step| matches!(step.stage.as_str(), "seen" | "in_session"))
            {
                findings.push(Finding::Missing {
                    token,
                    stage: step.stage.clone(),
                });
            }
            if record.left.contains(&token) {
                findings.push(Finding::Forgotten { token });
            }
        }
    }
    findings
}

/// A message that waited while the session was idle, with the time allowed.
pub(super) struct Wait {
    token: Token,
    pub(super) length: Duration,
    allowed: Duration,
}

impl Wait {
    pub(super) fn finding(&self) -> Option<Finding> {
        let seconds = self.length.as_secs();
        (self.length > self.allowed).then_some(Finding::LeftIdle {
            token: self.token,
            seconds,
        })
    }
}

/// Returns the idle periods in which a session had not been shown a message that starts a turn, or had lost it with a new
/// conversation.
pub(super) fn waits(record: &Record) -> Vec<Wait> {
    let mut waits = Vec::new();
    for sent in record.sent.iter().filter(|sent| sent.presses) {
        let settled = record
            .settled
            .get(&sent.token)
            .copied()
            .unwrap_or(record.over);
        let renewed = record
            .deeds
            .iter()
            .filter(|deed| deed.seat == sent.token.seat && deed.effect == Effect::Renews);
        // A message that needs no answer is settled when it is seen, and is not shown again.
        let renewed = renewed
            .filter(|deed| sent.wants_answer && deed.from > sent.at)
            .map(|deed| (deed.from, deed.to));
        for (from, begins) in std::iter::once((sent.at, sent.at)).chain(renewed) {
            let is_shown = |request: &&Request| {
                request.at >= from
                    && (fate(request) != Some(Fate::CutOff) || is_left(record, sent.token, request))
            };
            let shown = of_session(record, sent.token)
                .find(is_shown)
                .map_or(settled, |request| request.at);
            let ends = shown.min(settled);
            let idle = record
                .idle
                .iter()
                .filter(|idle| idle.seat == sent.token.seat);
            let lengths = idle.map(|idle| (idle, idle.to.min(ends).since(idle.from.max(begins))));
            waits.extend(
                lengths
                    .filter(|(_, length)| !length.is_zero())
                    .map(|(idle, length)| Wait {
                        token: sent.token,
                        length,
                        allowed: IDLE_MAX
                            + LOOK
                            + if follows_failure(record, idle) {
                                FAILURE
                            } else {
                                Duration::ZERO
                            },
                    }),
            );
        }
    }
    waits
}

/// Returns whether the person pressed Esc in a request with a message, and the conversation kept the message: it is not
/// shown again, and the person decides when the session goes on.
fn is_left(record: &Record, token: Token, request: &Request) -> bool {
    let is_escape = |at: Timestamp| {
        record.deeds.iter().any(|deed| {
            deed.seat == token.seat
                && deed.name.ends_with("escape")
                && (deed.from..=deed.to).contains(&at)
        })
    };
    let mut later = record.requests.iter().filter(|other| {
        other.asker == Asker::Session && other.seat == token.seat && other.at > request.at
    });
    request.ended.is_some_and(|(_, at)| is_escape(at))
        && later.next().is_some_and(|next| holds(next, token))
}

/// Returns whether the last event before that idle period was a failure of the model's service.
fn follows_failure(record: &Record, idle: &Idle) -> bool {
    let mut before = record
        .requests
        .iter()
        .filter(|request| is_of(request, idle.seat));
    before
        .rfind(|request| request.at <= idle.from)
        .is_some_and(|request| fate(request) == Some(Fate::Failed))
}

/// Returns whether any event between the sending of a message and `shown` may have shown the message before.
fn may_have_been_shown(record: &Record, token: Token, shown: Timestamp) -> bool {
    let Some(sent) = record.sent.iter().find(|sent| sent.token == token) else {
        return true;
    };
    let lies_between = |from: Timestamp, to: Timestamp| from <= shown && to >= sent.at;
    let disturbs = |deed: &Deed| deed.effect != Effect::None && lies_between(deed.from, deed.to);
    let broke_off = |request: &Request| {
        let ended = request
            .ended
            .is_some_and(|(fate, at)| fate != Fate::Answered && lies_between(request.at, at));
        request.asker != Asker::Side && request.seat == token.seat && ended
    };
    record
        .deeds
        .iter()
        .any(|deed| deed.seat == token.seat && disturbs(deed))
        || record.requests.iter().any(broke_off)
}

/// Returns the name of the last context in which a message was shown.
fn shown_in(record: &Record, token: Token) -> Option<&str> {
    let mut steps = record.histories.get(&token)?.iter();
    steps
        .rfind(|step| step.stage == "in_session")?
        .session
        .as_deref()
}

/// Returns the requests of the recipient's session that contain the message, without those of its subagents.
fn of_session(record: &Record, token: Token) -> impl Iterator<Item = &Request> {
    record
        .requests
        .iter()
        .filter(move |request| is_of(request, token.seat) && holds(request, token))
}

fn is_of(request: &Request, seat: Seat) -> bool {
    request.seat == seat && request.asker == Asker::Session
}

fn holds(request: &Request, token: Token) -> bool {
    request
        .standing
        .iter()
        .any(|standing| standing.token == token)
}

fn fate(request: &Request) -> Option<Fate> {
    request.ended.map(|(fate, _)| fate)
}

/// Returns when the request was answered.
fn answered(request: &Request) -> Option<Timestamp> {
    request
        .ended
        .and_then(|(fate, at)| (fate == Fate::Answered).then_some(at))
}

fn by_message(request: &Request) -> BTreeMap<Token, Vec<Standing>> {
    let mut by_message: BTreeMap<Token, Vec<Standing>> = BTreeMap::new();
    for standing in &request.standing {
        by_message
            .entry(standing.token)
            .or_default()
            .push(*standing);
    }
    by_message
}
