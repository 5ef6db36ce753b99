//! The messages that were put before the model, and the proof that the model went on after them.

mod claims;
mod notices;
mod steps;
#[cfg(test)]
mod tests;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::limits::INBOX_MAX;
use c3po_shared::receipt::Via;
use tokio::time::Instant;

use super::note::Note;
use notices::Notice;

/// How many ids are remembered as shown: an inbox full of mail, several times over.
const SHOWN_MAX: usize = 4 * INBOX_MAX;
/// How many presentations wait for their proof: beyond it the oldest stays unproven.
const UNPROVEN_MAX: usize = INBOX_MAX;
/// How many texts are kept: a rewind takes the last few prompts back, whose latest 200 are promised. It is noticed only after
/// the next prompt, which may bring as many again.
const NOTES_MAX: usize = 400;
/// How long other hooks may look at a result before it stands in the conversation.
const RESULT_LATE: Duration = Duration::from_secs(20);
/// How long after its writing a cancelled result may be written into the transcript.
const CANCELLED_LATE: Duration = Duration::from_secs(2);
/// How many tool uses are remembered as over: a few steps of a model.
const ENDED_MAX: usize = 256;

/// The messages in the present context of the session.
#[derive(Debug, Default)]
pub(super) struct Shown {
    ids: HashSet<MessageId>,
    /// The same, oldest first.
    order: VecDeque<MessageId>,
    /// The messages that the session has dealt with in this context.
    settled: HashSet<MessageId>,
    /// The messages of earlier contexts of the session.
    before: HashSet<MessageId>,
    unproven: VecDeque<Unproven>,
    /// The messages that the transcript has named.
    standing: HashSet<MessageId>,
    /// The texts of the latest ones, as long as the session may lose them.
    notes: VecDeque<Note>,
    /// The texts of hooks that the receipt claims once the transcript names them, oldest first.
    printed: VecDeque<Printed>,
    /// Tool uses whose step is over, oldest first.
    ended: VecDeque<String>,
    /// Whether the session's model was given nothing that hooks report since its tools ended.
    has_only_results: bool,
}

/// A client drops the text of a hook where a tool ends the turn.
#[derive(Debug)]
struct Printed {
    ids: Vec<MessageId>,
    via: Via,
    since: Instant,
}

#[derive(Debug)]
struct Unproven {
    ids: Vec<MessageId>,
    awaits: Awaits,
    since: Instant,
    /// The use of the tool in whose result they came.
    tool_use: Option<String>,
    /// The tool, while the receipt does not claim them yet.
    unclaimed: Option<Via>,
    /// The prompt that brings them, while they wait in the client.
    notice: Option<Notice>,
    /// Whether the client cancelled that use before the model had the result, or its turn is over.
    is_cancelled: bool,
}

/// The event after which messages count as seen.
#[derive(Debug, PartialEq)]
enum Awaits {
    /// The end of the step to which the tool use belongs, where that is known; then the next step.
    EndOf(Option<String>),
    /// The next thing that the session's model is given; then the next step.
    NextInput,
    /// Its name in the transcript, until which it waits in the client as the result of a tool; then the next step. Without a
    /// transcript, a step of the turn of the client's notice.
    Queue(Via),
    /// The next step of that agent: of a subagent, or of the session itself in the same turn.
    StepOf(Option<String>),
    /// The next step of the session, in whichever turn.
    AnyStep,
    /// An answer below it in the transcript: a person may take the turn back in which it came.
    Answer,
    /// The same, or the next thing that the model is given: a tool may have ended the turn, or the client is about to write the
    /// answer.
    LateAnswer,
    /// Its name in the transcript: hooks have shown the step after it.
    Record,
    /// An answer below it in the transcript: hooks have shown a step of a later turn, before which a person may have gone back.
    LaterRecord,
}

/// The messages that a step proves to be seen, if they stand in the conversation.
#[derive(Debug, Default)]
pub(super) struct Proven {
    /// Messages that came in the turn of the step.
    pub(super) of_turn: Vec<MessageId>,
    /// Messages that came in an earlier turn.
    pub(super) of_earlier: Vec<MessageId>,
}

impl Shown {
    /// Returns whether the message is in the present context, or needs not be.
    pub(super) fn holds(&self, id: &MessageId) -> bool {
        self.ids.contains(id) || self.settled.contains(id)
    }

    /// Returns whether an earlier context of the session held the message.
    pub(super) fn held_before(&self, id: &MessageId) -> bool {
        self.before.contains(id)
    }

    /// The context is another one: nothing is in it. Returns the texts that the receipt has not claimed.
    pub(super) fn forget(&mut self) -> Vec<Note> {
        let unclaimed: HashSet<_> = self.printed.drain(..).flat_map(|text| text.ids).collect();
        let notes = self.notes.drain(..);
        let unclaimed = notes.filter(|note| unclaimed.contains(&note.id)).collect();
        let mut before = std::mem::take(&mut self.before);
        if before.len() >= SHOWN_MAX {
            before.clear();
        }
        before.extend(self.order.drain(..));
        *self = Self {
            before,
            // A tool that runs in the background goes on in the next context.
            ended: std::mem::take(&mut self.ended),
            ..Self::default()
        };
        unclaimed
    }

    /// Another context may have been shown these.
    pub(super) fn remember(&mut self, ids: Vec<MessageId>) {
        self.before.extend(ids);
    }

    /// Returns the messages that no step of the model has followed, and that may start a turn.
    pub(super) fn unanswered(&self) -> Vec<MessageId> {
        self.pressing(|_| true)
    }

    /// Returns the messages of that age in the conversation that may start a turn, and that no answer of the model has followed
    /// there: of turns that a tool ended, or also of others.
    pub(super) fn left_unread(
        &self,
        also_others: bool,
        age: Duration,
        now: Instant,
    ) -> Vec<MessageId> {
        let is_unread = |awaits: &Awaits| {
            let is_other = matches!(awaits, Awaits::Answer | Awaits::LaterRecord);
            *awaits == Awaits::LateAnswer || (also_others && is_other)
        };
        self.pressing(|unproven| is_unread(&unproven.awaits) && unproven.since + age <= now)
            .into_iter()
            .filter(|id| self.standing.contains(id))
            .collect()
    }

    fn pressing(&self, which: impl Fn(&Unproven) -> bool) -> Vec<MessageId> {
        let ids = self.unproven.iter().filter(|unproven| which(unproven));
        let waiting: HashSet<_> = ids.flat_map(|unproven| &unproven.ids).collect();
        let notes = self.notes.iter().filter(|note| note.presses());
        notes
            .filter(|note| waiting.contains(&note.id))
            .map(|note| note.id.clone())
            .collect()
    }

    /// Returns whether the time of a message is over, as far as its text is known.
    pub(super) fn is_expired(&self, id: &MessageId, now: Instant) -> bool {
        self.notes
            .iter()
            .any(|note| note.id == *id && note.expires_at <= now)
    }

    /// Returns whether nothing is in the present context.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Keeps the texts of messages that come into the context.
    pub(super) fn keep(&mut self, notes: Vec<Note>) {
        self.notes.extend(notes);
        let excess = self.notes.len().saturating_sub(NOTES_MAX);
        self.notes.drain(..excess);
    }

    /// The conversation names these messages. Returns those of results that waited in the client until now, with their tools:
    /// the next step proves that they were seen. A client writes each result of a step as soon as it is there, so any other
    /// still awaits the end of its step.
    pub(super) fn stand_in(&mut self, named: &HashSet<MessageId>) -> Vec<(Vec<MessageId>, Via)> {
        self.standing.extend(self.ids.intersection(named).cloned());
        let mut given = Vec::new();
        for unproven in &mut self.unproven {
            if let Awaits::Queue(via) = unproven.awaits
                && unproven.ids.iter().all(|id| named.contains(id))
            {
                given.push((unproven.ids.clone(), via));
                unproven.awaits = Awaits::AnyStep;
                unproven.is_cancelled = false;
            }
        }
        given
    }

    /// Returns the messages that the conversation named and does not any more.
    pub(super) fn taken_out(&self, named: &HashSet<MessageId>) -> Vec<MessageId> {
        self.standing.difference(named).cloned().collect()
    }

    /// Returns the messages of results whose step has not ended for long, of turns that were broken off, and of steps that
    /// hooks alone have shown, which the conversation does not name, and when to look for others. A result may wait in the
    /// client until the session is idle, unless its call was cancelled.
    pub(super) fn unwritten(
        &self,
        named: &HashSet<MessageId>,
        is_idle: bool,
        now: Instant,
    ) -> (Vec<MessageId>, Option<Instant>) {
        let is_open = |unproven: &&Unproven| match unproven.awaits {
            _ if unproven.is_cancelled => true,
            Awaits::EndOf(Some(_))
            | Awaits::Answer
            | Awaits::LateAnswer
            | Awaits::Record
            | Awaits::LaterRecord => true,
            Awaits::Queue(_) => is_idle,
            Awaits::EndOf(None) | Awaits::NextInput | Awaits::StepOf(_) | Awaits::AnyStep => false,
        };
        let open = self.unproven.iter().filter(is_open);
        let (mut dropped, mut next) = (Vec::new(), None);
        for unproven in open {
            let mut missing = unproven
                .ids
                .iter()
                .filter(|id| !named.contains(*id))
                .peekable();
            let patience = if unproven.is_cancelled {
                CANCELLED_LATE
            } else {
                RESULT_LATE
            };
            let until = unproven.since + patience;
            if until <= now {
                dropped.extend(missing.cloned());
            } else if missing.peek().is_some()
                || matches!(unproven.awaits, Awaits::LateAnswer | Awaits::LaterRecord)
            {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
            }
        }
        (dropped, next)
    }

    /// Keeps the text of a message that came into the context without it.
    pub(super) fn keep_once(&mut self, note: Note) {
        if !self.notes.iter().any(|kept| kept.id == note.id) {
            self.keep(vec![note]);
        }
    }

    /// Takes messages out of the context. Returns the texts that are known.
    pub(super) fn take_back(&mut self, ids: &[MessageId]) -> Vec<Note> {
        for id in ids {
            self.ids.remove(id);
            self.standing.remove(id);
            self.before.insert(id.clone());
        }
        self.order.retain(|id| !ids.contains(id));
        self.take(|_| true, |id| ids.contains(id));
        self.take_printed(|id| ids.contains(id));
        self.notes
            .iter()
            .filter(|note| ids.contains(&note.id))
            .cloned()
            .collect()
    }

    /// Returns which of these messages are in the context, oldest first.
    pub(super) fn among(&self, named: &HashSet<MessageId>) -> Vec<MessageId> {
        self.order
            .iter()
            .filter(|id| named.contains(*id))
            .cloned()
            .collect()
    }

    /// The session dealt with messages: it is not shown them again, also where it loses them.
    pub(super) fn settle(&mut self, ids: &[MessageId]) {
        if self.settled.len() >= SHOWN_MAX {
            self.settled.clear();
        }
        self.settled.extend(ids.iter().cloned());
        self.notes.retain(|note| !ids.contains(&note.id));
        self.take(|_| true, |id| ids.contains(id));
        self.take_printed(|id| ids.contains(id));
    }

    /// Messages came into the context by the result of a tool.
    pub(super) fn by_tool(&mut self, ids: &[MessageId], tool_use: Option<String>, now: Instant) {
        let is_over = self.has_ended(tool_use.as_ref());
        // A result that comes after its step was moved to the background, and is given to the model later.
        let awaits = if is_over {
            Awaits::NextInput
        } else {
            Awaits::EndOf(tool_use.clone())
        };
        self.add_result(ids, awaits, tool_use, now);
    }

    /// The latest messages came in the result of that use of a tool.
    pub(super) fn came_of(&mut self, tool_use: Option<String>) {
        if let Some(latest) = self.unproven.back_mut() {
            latest.tool_use = tool_use;
        }
    }

    /// Returns whether the step of that tool use is over.
    pub(super) fn has_ended(&self, tool_use: Option<&String>) -> bool {
        tool_use.is_some_and(|tool_use| self.ended.contains(tool_use))
    }

    /// Messages wait in the client, in the result of a tool whose step is over.
    pub(super) fn by_queue(
        &mut self,
        ids: &[MessageId],
        via: Via,
        tool_use: Option<String>,
        now: Instant,
    ) {
        self.add_result(ids, Awaits::Queue(via), tool_use, now);
    }

    /// Returns whether messages wait in the client.
    pub(super) fn has_queued(&self) -> bool {
        self.unproven.iter().any(Unproven::is_queued)
    }

    /// Messages came into the session's own context by a hook.
    pub(super) fn by_hook(&mut self, ids: &[MessageId], now: Instant) {
        self.add(ids, Awaits::StepOf(None), now);
    }

    /// Without a transcript, returns the messages of cancelled uses of tools and of blocked notices, those of hooks that the
    /// client may have dropped that long ago, and those that an idle client should have brought. Returns also when to look
    /// for others.
    pub(super) fn dropped(&self, is_idle: bool, now: Instant) -> (Vec<MessageId>, Option<Instant>) {
        let (mut dropped, mut next) = (Vec::new(), None);
        for unproven in &self.unproven {
            if unproven.is_cancelled || unproven.is_blocked() {
                dropped.extend(unproven.ids.iter().cloned());
                continue;
            }
            let mut missing = unproven
                .ids
                .iter()
                .filter(|id| match unproven.awaits {
                    Awaits::Queue(_) => is_idle,
                    Awaits::Answer => self.is_unclaimed(id),
                    _ => false,
                })
                .peekable();
            let until = unproven.since + RESULT_LATE;
            if until <= now {
                dropped.extend(missing.cloned());
            } else if missing.peek().is_some() {
                next = Some(next.map_or(until, |next: Instant| next.min(until)));
            }
        }
        (dropped, next)
    }

    /// Messages stand in the conversation, and no answer of the model below them.
    pub(super) fn by_transcript(&mut self, ids: &[MessageId], now: Instant) {
        self.add(ids, Awaits::Answer, now);
    }

    fn add_result(
        &mut self,
        ids: &[MessageId],
        awaits: Awaits,
        tool_use: Option<String>,
        since: Instant,
    ) {
        self.add(ids, awaits, since);
        self.came_of(tool_use);
    }

    fn add(&mut self, ids: &[MessageId], awaits: Awaits, since: Instant) {
        self.hold(ids);
        self.unproven.push_back(Unproven {
            ids: ids.to_vec(),
            awaits,
            since,
            tool_use: None,
            unclaimed: None,
            notice: None,
            is_cancelled: false,
        });
        if self.unproven.len() > UNPROVEN_MAX {
            self.unproven.pop_front();
        }
    }

    /// Messages are in the context.
    pub(super) fn hold(&mut self, ids: &[MessageId]) {
        for id in ids {
            if self.ids.insert(id.clone()) {
                self.order.push_back(id.clone());
            }
        }
        while self.order.len() > SHOWN_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.ids.remove(&oldest);
            }
        }
    }
}
