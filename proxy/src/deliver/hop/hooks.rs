//! The reports of hooks, and the text that they print.

use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, Via};
use tokio::time::Instant;

use super::conversation::FIRST_LOOK;
use super::{Hop, ToolUse, presses};
use crate::deliver::in_flight::{Channel, Flight};
use crate::deliver::note::Note;
use crate::deliver::transcript::in_background;
use crate::deliver::turn::is_step;
use crate::deliver::ways::Way;
use crate::deliver::{answer, render};
use crate::local::MARK;
use crate::local::protocol::{Answer, Event, Name};

/// How many uses of tools are remembered: more are never under way.
const USES_MAX: usize = 256;

impl Hop {
    /// Handles the report of a hook. Returns its answer.
    pub(super) fn heard(&mut self, event: &Event, now: Instant) -> Answer {
        self.release(now);
        self.ways.hooks = true;
        if self.is_of_left(event) || !self.follow_session(event, now) {
            return Answer::default();
        }
        if event.agent_id.is_some() {
            self.subagent_at = Some(now);
        }
        self.pushes.learn(event);
        self.evidence.learn(event, now);
        let begins = self.turn.begins_with(event);
        if let Some(veto) = self.veto(event) {
            self.turn.refused(event);
            return veto;
        }
        self.turn.on(event, now);
        self.take_evidence(event, begins, now);
        if event.agent_id.is_some() || event.name == Name::SubagentStop {
            return Answer::default();
        }
        if is_step(event) {
            self.enter(event.prompt_id.as_deref(), now);
        }
        if self.is_one_shot {
            return Answer::default();
        }
        if is_step(event) {
            self.evidence.step(event, self.shown.is_empty(), now);
        }
        if let Some(until) = self.pushes.deadline_after(event.name, now) {
            self.in_flight.push_until(until);
        }
        match event.name {
            Name::SessionStart => self.give(event, |_| false, now),
            Name::UserPromptSubmit => self.on_prompt(event, begins, now),
            Name::PostToolBatch => self.give(event, |_| true, now),
            Name::Stop => self.on_stop(event, now),
            Name::StopFailure => {
                self.on_failure(now);
                Answer::default()
            }
            _ => Answer::default(),
        }
    }

    /// Notes the proofs in an event: of the messages that were seen, and of those that may have been lost.
    fn take_evidence(&mut self, event: &Event, begins: bool, now: Instant) {
        if is_step(event) && event.agent_id.is_none() && self.evidence.begins_another(event) {
            self.turn_is_over(Duration::ZERO, now);
        }
        self.results_given_up(&event.given_up, now);
        self.claim(None, now);
        if event.name != Name::UserPromptSubmit || begins {
            let seen = self.shown.proven_by(event);
            self.seen_by_hook(event, seen, now);
        }
        if event.name == Name::PostToolBatch {
            // The results of the step are in the conversation from here on.
            self.claim(None, now);
        }
        if event.name != Name::UserPromptSubmit {
            self.in_flight.goes_on(now);
        }
        if event.name == Name::PreToolUse {
            self.note_uses(event);
        }
        if event.name == Name::UserPromptSubmit
            && let Some(prompt) = &event.prompt
        {
            self.shown.noticed(&in_background(prompt), event);
        }
        if matches!(
            event.name,
            Name::UserPromptSubmit | Name::PostToolBatch | Name::Stop
        ) {
            self.look_for_queued(now);
        }
        if matches!(event.name, Name::PostToolBatch | Name::Stop) && self.push_until().is_some() {
            // Here the client takes the pushes that wait. The hook of its prompt may be lost.
            self.look_soon(now);
        }
    }

    /// Returns whether the hook is to wait beside the session: it asks for that, is of this conversation, and nothing better
    /// wakes the session.
    pub(super) fn may_wait(&mut self, event: &Event) -> bool {
        if event.name != Name::Wait || self.is_of_left(event) {
            return false;
        }
        self.pushes.waiter = !self.ways.works(Way::Inbox);
        self.pushes.waiter
    }

    /// The offer is in the session, or comes with a prompt that is about to be.
    pub(super) fn printed(&mut self, number: u64, now: Instant) {
        self.knows_name |= self.naming == Some(number);
        let ids = self
            .in_flight
            .under_way(|flight| flight.channel == Channel::Hook(number));
        let Some(flight) = ids
            .first()
            .and_then(|id| self.in_flight.flight(id))
            .cloned()
        else {
            return;
        };
        if flight.via == Via::UserPromptSubmit {
            self.in_flight
                .launch(&ids, &Flight::by_prompt(flight.via, None, flight.turn, now));
            return;
        }
        let notes = self.in_flight.remove(&ids);
        self.shown.keep(notes);
        self.shown.by_hook(&ids, now);
        if self.evidence.has_transcript() {
            self.shown.claim_named(&ids, flight.via, now);
            self.evidence.want(now + FIRST_LOOK);
            return;
        }
        // A person may break the turn off, of which no hook reports, and go back before it.
        self.look_soon(now);
        self.say(ids, Stage::InSession, flight.via);
    }

    /// The offer goes another way.
    pub(super) fn not_printed(&mut self, number: u64) {
        let ids = self
            .in_flight
            .under_way(|flight| flight.channel == Channel::Hook(number));
        self.in_flight.repeat(&ids);
    }

    fn note_uses(&mut self, event: &Event) {
        let by_subagent = event.agent_id.is_some();
        self.uses
            .extend(event.tool_use_ids.iter().map(|id| ToolUse {
                id: id.clone(),
                by_subagent,
            }));
        let excess = self.uses.len().saturating_sub(USES_MAX);
        self.uses.drain(..excess);
    }

    fn on_prompt(&mut self, event: &Event, begins: bool, now: Instant) -> Answer {
        if let Some(push) = event
            .prompt
            .as_deref()
            .and_then(|prompt| self.pushes.take(prompt))
        {
            self.ways.worked(push.way);
            self.stalled.retain(|id| !push.ids.contains(id));
            let flight =
                Flight::by_prompt(push.way.via(), Some(push.way), event.prompt_id.clone(), now);
            self.in_flight.launch(&push.ids, &flight);
        }
        if begins {
            self.give(event, |_| true, now)
        } else {
            Answer::default()
        }
    }

    /// The model's service failed. Perhaps no person is there to repeat the turn, so a reminder of its message is pushed later.
    fn on_failure(&mut self, now: Instant) {
        let prompted = self.prompted(|_| true);
        let ways: Vec<Way> = prompted
            .iter()
            .filter_map(|id| self.in_flight.flight(id)?.way)
            .collect();
        self.doubt(prompted, now);
        self.stalls(self.shown.unanswered());
        if let Some(way) = ways.first() {
            self.ways.failed(*way, now);
        }
    }

    /// The turn of these messages broke off: the session is reminded of each once.
    pub(super) fn stalls(&mut self, mut ids: Vec<MessageId>) {
        ids.retain(|id| !self.stalled.contains(id));
        self.stalled.extend(ids);
    }

    fn on_stop(&mut self, event: &Event, now: Instant) -> Answer {
        let away = self.turn.is_away();
        self.give_up_parts();
        if self.turn.can_be_kept() && !self.is_headless {
            // Context keeps a turn from ending as a refusal to end does, and is put before the model once, not twice.
            let kept = self.give(event, |note| presses(note, away), now);
            if kept.offer.is_some() {
                return kept;
            }
        }
        self.turn.ends();
        self.stalled.clear();
        self.reminders.answered();
        Answer::default()
    }

    /// Adds the wanted ones of the free messages to the session's context, if there are any.
    fn give(&mut self, event: &Event, wanted: impl Fn(&Note) -> bool, now: Instant) -> Answer {
        // The prompt of the latest step's turn is in the session, too.
        let turns = [event.prompt_id.as_deref(), self.evidence.turn()];
        let notes = self.in_flight.free(&turns, wanted);
        let tells_name = !self.knows_name && self.generation > 0 && event.name != Name::Stop;
        let named = (tells_name && self.agent != self.wished).then(|| {
            format!(
                "{MARK} Your agent id is {}: another agent has {}.\n",
                self.agent, self.wished
            )
        });
        if notes.is_empty() && named.is_none() {
            return Answer::default();
        }
        self.prints += 1;
        if named.is_some() {
            self.naming = Some(self.prints);
        }
        let mut text = named.unwrap_or_default();
        if !notes.is_empty() {
            let shown = render::text(
                &self.agent,
                &notes,
                self.in_flight.free(&turns, |_| true).len(),
            );
            let ids: Vec<_> = notes[..shown.held]
                .iter()
                .map(|note| note.id.clone())
                .collect();
            text += &shown.text;
            let flight = Flight::by_hook(
                self.prints,
                answer::via(event.name),
                event.prompt_id.clone(),
                now,
            );
            self.in_flight.launch(&ids, &flight);
        }
        Answer {
            stdout: answer::context(event.name, &text),
            offer: Some(self.prints),
            ..Answer::default()
        }
    }
}
