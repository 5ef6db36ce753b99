//! Waking a session that nothing else reaches, and blocking pushes that come too late.

use std::time::Duration;

use c3po_shared::ids::MessageId;
use tokio::time::Instant;

use super::{Hop, presses};
use crate::deliver::answer::{self, Needless};
use crate::deliver::in_flight::{Channel, Flight};
use crate::deliver::note::Note;
use crate::deliver::push::{CONFIRM, CONFIRM_BUSY, Push, Todo};
use crate::deliver::render;
use crate::deliver::ways::Way;
use crate::local::protocol::{Answer, Event, Name};

impl Hop {
    /// Returns the next action for a session that nothing else reaches, or when to look again.
    pub(super) fn next(&mut self, now: Instant) -> Todo {
        self.release(now);
        self.stalled.retain(|id| !self.shown.is_expired(id, now));
        if self.is_push_late(now)
            && self.turn.is_idle()
            && self.pushes.asks()
            && let Some(todo) = self.evidence.ask(now)
        {
            return todo;
        }
        self.give_up_push(now);
        if let Some(todo) = self.evidence.next(&mut self.turn, now) {
            return todo;
        }
        let reads_at = self.evidence.reads_at(&mut self.turn, now);
        let look = |at: Option<Instant>| Todo::Look(at.into_iter().chain(reads_at).min());
        if let Some(deadline) = self.push_until() {
            return look(Some(deadline));
        }
        let is_reminder = self.pressing().is_empty();
        let nothing_presses = is_reminder && self.stalled.is_empty();
        if self.is_one_shot || nothing_presses || self.was_pushed_in_vain() {
            return look(self.next_release());
        }
        let way = self.ways.next(|way| self.pushes.has(way), now);
        // A person who types makes hooks run, and these bring the message before a way that fails is tried again.
        let has_failed = way.is_some_and(|way| self.ways.has_failed(way));
        let silence = if has_failed { CONFIRM } else { Duration::ZERO };
        let quiet_at = self.turn.quiet_at(silence, now);
        if quiet_at > now {
            return look(Some(quiet_at));
        }
        if is_reminder && let Some(at) = self.reminders.next_at().filter(|at| *at > now) {
            return look(Some(at));
        }
        match way {
            Some(way) => self.push(way, now),
            None => look(self.ways.next_at(|way| self.pushes.has(way))),
        }
    }

    /// Returns the messages that a push may bring.
    fn pressing(&self) -> Vec<&Note> {
        let away = self.turn.is_away();
        let stepped = [self.evidence.turn()];
        self.in_flight.free(&stepped, |note| presses(note, away))
    }

    /// Pushes the messages that press, or else a reminder of those whose turn failed.
    fn push(&mut self, way: Way, now: Instant) -> Todo {
        let pressing = self.pressing();
        let (ids, text) = if pressing.is_empty() {
            self.reminders.made(now);
            let text = render::reminder(&self.agent, &self.stalled);
            (self.stalled.clone(), text)
        } else {
            let waiting = self.in_flight.free(&[self.evidence.turn()], |_| true).len();
            let shown = render::text(&self.agent, &pressing, waiting);
            let held = &pressing[..shown.held];
            (
                held.iter().map(|note| note.id.clone()).collect(),
                shown.text,
            )
        };
        let is_busy = self.turn.is_busy();
        let until = now + if is_busy { CONFIRM_BUSY } else { CONFIRM };
        self.in_flight.launch(&ids, &Flight::by_push(way, until));
        let text = self.pushes.told_apart(text);
        self.pushes.begin(Push { way, ids, text })
    }

    /// Returns whether a push can have no proof: one was made, and no hook of this session ever reported.
    fn was_pushed_in_vain(&self) -> bool {
        !self.ways.hooks && self.pushes.was_given_up()
    }

    /// Returns when the time of the push under way is over, if there is one.
    pub(super) fn push_until(&self) -> Option<Instant> {
        self.in_flight
            .next_deadline(|channel| channel == Channel::Push)
    }

    /// Returns whether the time of the push under way is over.
    pub(super) fn is_push_late(&self, now: Instant) -> bool {
        self.push_until().is_some_and(|until| until <= now)
    }

    /// Gives the push under way up where nothing waits for it any more, or its time is over.
    fn give_up_push(&mut self, now: Instant) {
        let late = self
            .in_flight
            .overdue(now, |channel| channel == Channel::Push);
        let waits = self.turn.goes_on() && !self.pushes.was_passed_over();
        if !late.is_empty() && self.ways.hooks && waits {
            // It waits in the client until the end of the step, which may be a person's decision.
            self.in_flight.push_until(now + CONFIRM_BUSY);
            return;
        }
        let is_late = !late.is_empty();
        if self.ways.hooks && !self.evidence.is_there() {
            self.in_flight.free_again(&late);
        } else {
            // Its hook may have been late, as on a busy machine, or there is none.
            self.doubt(late, now);
        }
        if self.push_until().is_none()
            && let Some(way) = self.pushes.give_up()
            && is_late
        {
            self.ways.failed(way, now);
        }
    }

    /// Frees messages whose push could not be made.
    pub(super) fn not_pushed(&mut self, way: Way, now: Instant) {
        self.pushes.abandon();
        self.ways.failed(way, now);
        let ids = self
            .in_flight
            .under_way(|flight| flight.channel == Channel::Push);
        self.in_flight.free_again(&ids);
    }

    /// Returns the answer that keeps a push out whose messages the session has already: by a prompt, a hook or a result.
    /// One that is on no way, or by another push that nothing has confirmed, comes by this one. One that came with a prompt or
    /// in a result counts as there until the transcript lacks it; then it comes again. So does one that another way offered
    /// and no transcript decided about, if its text here has no mark: it comes again with one.
    pub(super) fn veto(&mut self, event: &Event) -> Option<Answer> {
        let prompt = event
            .prompt
            .as_deref()
            .filter(|_| event.name == Name::UserPromptSubmit)?;
        let push = self.pushes.made_by(prompt)?;
        let would_repeat =
            |id: &MessageId| self.in_flight.is_offered(id) && !render::is_marked(&push.text, id);
        let is_there = |id: &MessageId| match self.in_flight.flight(id) {
            Some(flight) => match flight.channel {
                Channel::Push => false,
                Channel::Unsure => flight.turn.is_some() || flight.was_result() || would_repeat(id),
                _ => true,
            },
            None => self.shown.holds(id) || would_repeat(id),
        };
        let there = push.ids.iter().filter(|id| is_there(id)).count();
        let is_gone = |id: &&MessageId| !self.in_flight.holds(id) && !self.shown.holds(id);
        let gone = push.ids.iter().filter(is_gone).count();
        let why = match push.ids.len() {
            _ if there + gone == 0 => return None,
            all if gone == all && push.ids.iter().any(|id| self.agent != id.to()) => {
                Needless::Renamed
            }
            all if gone == all => Needless::Expired,
            all if there + gone == all && !push.ids.iter().any(would_repeat) => Needless::Known,
            all if there + gone == all => Needless::Doubtful,
            _ => Needless::InPart,
        };
        let push = self.pushes.take(prompt)?;
        self.ways.worked(push.way);
        // Its other messages come again without those.
        let rest = self
            .in_flight
            .under_way(|flight| flight.channel == Channel::Push);
        let rest: Vec<_> = rest
            .into_iter()
            .filter(|id| push.ids.contains(id))
            .collect();
        self.in_flight.free_again(&rest);
        Some(Answer {
            stdout: answer::refused_prompt(why),
            ..Answer::default()
        })
    }
}
