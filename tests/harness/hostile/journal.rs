//! The journal of a run, written by all its parts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use c3po_shared::time::Timestamp;

use super::checker::{Asker, Deed, Idle, Record, Request, Seat, Sent, Step};
use super::reading::{Reading, read};
use super::token::Token;
use crate::fake_api::{Asked, Ending, Fate};

/// A request, as received.
#[derive(Debug)]
struct Came {
    seat: Seat,
    at: Timestamp,
    ending: Ending,
    reading: Reading,
}

impl Came {
    fn request(&self) -> Request {
        let Reading {
            asker, standing, ..
        } = &self.reading;
        let Self { seat, at, .. } = *self;
        Request {
            seat,
            asker: *asker,
            at,
            ended: self.ending.known(),
            standing: standing.clone(),
        }
    }

    fn is_answered(&self) -> bool {
        self.ending
            .known()
            .is_some_and(|(fate, _)| fate == Fate::Answered)
    }
}

#[derive(Debug, Default)]
struct Pages {
    record: Record,
    came: Vec<Came>,
    numbers: BTreeMap<Seat, usize>,
}

/// All events of a run.
#[derive(Debug, Default)]
pub(super) struct Journal(Mutex<Pages>);

impl Journal {
    /// Returns the number of the next message to that session.
    pub(super) fn next_number(&self, seat: Seat) -> usize {
        let mut pages = self.pages();
        let number = pages.numbers.entry(seat).or_default();
        *number += 1;
        *number
    }

    pub(super) fn sent(&self, sent: Sent) {
        self.pages().record.sent.push(sent);
    }

    /// Records a request, and returns its content.
    pub(super) fn asked(&self, seat: Seat, asked: &Asked) -> Reading {
        let reading = read(asked);
        let came = Came {
            seat,
            at: Timestamp::now(),
            ending: asked.ending().clone(),
            reading: reading.clone(),
        };
        self.pages().came.push(came);
        reading
    }

    pub(super) fn deed(&self, deed: Deed) {
        self.pages().record.deeds.push(deed);
    }

    pub(super) fn idle(&self, idle: Idle) {
        self.pages().record.idle.push(idle);
    }

    /// Records text on a screen that must never be there, once for each session.
    pub(super) fn screen(&self, seat: Seat, text: &str) {
        let (mut pages, screen) = (self.pages(), (seat, text.to_owned()));
        if !pages.record.screens.contains(&screen) {
            pages.record.screens.push(screen);
        }
    }

    pub(super) fn history(&self, token: Token, steps: Vec<Step>) {
        self.pages().record.histories.insert(token, steps);
    }

    /// Records the messages that are still in an inbox at the end.
    pub(super) fn left(&self, tokens: impl IntoIterator<Item = Token>) {
        self.pages().record.left.extend(tokens);
    }

    /// Records the last message to a session.
    pub(super) fn last(&self, seat: Seat, token: Token) {
        self.pages().record.last.insert(seat, token);
    }

    /// Records that a model is about to answer or acknowledge that message.
    pub(super) fn settles(&self, token: Token) {
        self.pages()
            .record
            .settled
            .entry(token)
            .or_insert_with(Timestamp::now);
    }

    /// Returns the messages among these that no model has settled, with their ids.
    pub(super) fn unsettled(&self, tokens: &[Token]) -> Vec<(Token, String)> {
        let pages = self.pages();
        let open = pages
            .record
            .sent
            .iter()
            .filter(|sent| !pages.record.settled.contains_key(&sent.token));
        open.filter(|sent| tokens.contains(&sent.token))
            .map(|sent| (sent.token, sent.id.clone()))
            .collect()
    }

    /// Returns whether all these messages were in answered requests of the session.
    pub(super) fn are_shown(&self, seat: Seat, tokens: &[Token]) -> bool {
        let pages = self.pages();
        let of_session = |came: &&Came| came.seat == seat && came.reading.asker == Asker::Session;
        let answered = pages
            .came
            .iter()
            .filter(of_session)
            .filter(|came| came.is_answered());
        let shown: BTreeSet<_> = answered
            .flat_map(|came| &came.reading.standing)
            .map(|standing| standing.token)
            .collect();
        tokens.iter().all(|token| shown.contains(token))
    }

    /// Returns the messages to that session that may start a turn.
    pub(super) fn pressing(&self, seat: Seat) -> Vec<Token> {
        let pages = self.pages();
        let pressing = pages
            .record
            .sent
            .iter()
            .filter(|sent| sent.presses && sent.token.seat == seat);
        pressing.map(|sent| sent.token).collect()
    }

    /// Returns whether an answered request contained that typed prompt.
    pub(super) fn is_answered(&self, prompt: Token) -> bool {
        let prompt = prompt.to_string();
        let holds = |came: &&Came| {
            came.reading
                .prompt
                .as_ref()
                .is_some_and(|line| line.contains(&prompt))
        };
        self.pages()
            .came
            .iter()
            .filter(holds)
            .any(Came::is_answered)
    }

    /// Returns how each compaction of that session ended, `None` for one that is still open.
    pub(super) fn compactions(&self, seat: Seat) -> Vec<Option<Fate>> {
        let pages = self.pages();
        let of = pages
            .came
            .iter()
            .filter(|came| came.seat == seat && came.reading.asker == Asker::Compaction);
        of.map(|came| came.ending.known().map(|(fate, _)| fate))
            .collect()
    }

    /// Returns the current record.
    pub(super) fn record(&self) -> Record {
        let pages = self.pages();
        let requests = pages.came.iter().map(Came::request).collect();
        Record {
            requests,
            over: Timestamp::now(),
            ..pages.record.clone()
        }
    }

    /// Returns the new text of each request, in the order of the record's requests.
    pub(super) fn news(&self) -> Vec<String> {
        self.pages()
            .came
            .iter()
            .map(|came| came.reading.new.clone())
            .collect()
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
