//! Tool calls of the session, and the messages in their results.

use std::collections::HashSet;
use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::wire::Arriving;
use tokio::time::Instant;

use super::{Hop, Presented};
use crate::deliver::evidence::WRITTEN;
use crate::deliver::in_flight::{Channel, Flight};
use crate::deliver::note::Note;
use crate::deliver::transcript::Recorded;

/// How long after its latest report a subagent may still work.
const SUBAGENT_LASTS: Duration = Duration::from_secs(600);

/// Returns the text of a message that a wait returned, if it is one of these.
fn text_of(ids: &[MessageId], waited: Option<Box<Arriving>>, now: Instant) -> Option<Note> {
    waited
        .filter(|waited| ids.contains(&waited.message.id))
        .map(|waited| Note::of(*waited, now))
}

impl Hop {
    /// The model has read the messages that a call names, whichever way they came. A call proves nothing of others: the
    /// model may have made it together with the call whose result showed them.
    pub(super) fn called(&mut self, named: &[MessageId], now: Instant) {
        if !self.ways.hooks && self.evidence.has_transcript() {
            self.evidence.want(now + WRITTEN);
        }
        let known: Vec<_> = self
            .prompted(|_| true)
            .into_iter()
            .filter(|id| named.contains(id))
            .collect();
        if self.evidence.has_transcript() && !self.is_one_shot {
            // A subagent may have read them by itself.
            self.doubt(known, now);
        } else {
            self.have_entered(known, Via::ToolCall);
        }
        let has_subagent = self
            .subagent_at
            .is_some_and(|at| now.duration_since(at) < SUBAGENT_LASTS);
        if has_subagent && self.evidence.has_transcript() && !self.is_one_shot {
            self.evidence.want(now + WRITTEN);
            return;
        }
        let named = named.iter().cloned().collect::<HashSet<_>>();
        let mut claimed = self.shown.claim_known(&named);
        claimed.extend(self.shown.take_printed(|id| named.contains(id)));
        for (ids, via) in claimed {
            self.say(ids, Stage::InSession, via);
        }
        let seen = self.shown.proven_by_knowing(&named);
        self.say(seen, Stage::Seen, Via::ToolCall);
    }

    /// Returns whether the result of a wait may hold the message: not where it goes by another way already.
    pub(super) fn takes(&mut self, id: MessageId, now: Instant) -> bool {
        self.release(now);
        // A push that nothing has confirmed may stand in the client's queue until this very wait ends.
        let is_free = |channel| matches!(channel, Channel::Result | Channel::Parts | Channel::Push);
        let goes_another_way = self
            .in_flight
            .flight(&id)
            .is_some_and(|flight| !is_free(flight.channel));
        if goes_another_way || self.shown.holds(&id) {
            return false;
        }
        let ids = [id];
        let repeated = self.repeated(&ids, None);
        self.in_flight.repeat(&repeated);
        self.in_flight.launch(&ids, &Flight::by_result(now));
        true
    }

    /// Results hold parts of these messages: from the beginning, but for the one that is read on. A context that lacks the
    /// beginning of that one does not have the message with its end.
    pub(super) fn begins_parts(&mut self, parts: &[MessageId], read_on: Option<&MessageId>) {
        self.beheaded
            .retain(|id| Some(id) == read_on || !parts.contains(id));
        if let Some(id) = read_on
            && !self.is_begun(id)
        {
            self.beheaded.insert(id.clone());
        }
    }

    /// Returns whether results hold the message part by part, and its end has not been in one.
    pub(super) fn is_begun(&self, id: &MessageId) -> bool {
        self.in_flight
            .flight(id)
            .is_some_and(|flight| flight.channel == Channel::Parts)
    }

    /// No hook and no push shows messages beside the results that hold them part by part.
    /// One that came with a prompt, or stands in the conversation perhaps, is proven there. A subagent reads for itself alone.
    pub(super) fn in_parts(
        &mut self,
        mut ids: Vec<MessageId>,
        tool_use: Option<&String>,
        now: Instant,
    ) {
        ids.retain(|id| !self.shown.holds(id));
        if self.is_of_subagent(tool_use) {
            ids.retain(|id| self.in_flight.flight(id).is_none());
            self.in_flight.repeat(&ids);
            return;
        }
        let is_proven =
            |flight: &Flight| matches!(flight.channel, Channel::Prompt | Channel::Unsure);
        ids.retain(|id| !self.in_flight.flight(id).is_some_and(is_proven));
        self.in_flight.launch(&ids, &Flight::in_parts(now));
    }

    fn is_of_subagent(&self, tool_use: Option<&String>) -> bool {
        self.user(tool_use) == Some(true)
    }

    /// Returns whether a subagent used the tool; `None` if no hook has reported that use.
    fn user(&self, tool_use: Option<&String>) -> Option<bool> {
        let used = self
            .uses
            .iter()
            .rev()
            .find(|used| Some(&used.id) == tool_use)?;
        Some(used.by_subagent)
    }

    /// The session does not read on in messages that came part by part.
    pub(super) fn give_up_parts(&mut self) {
        let begun = self
            .in_flight
            .under_way(|flight| flight.channel == Channel::Parts);
        self.in_flight.repeat(&begun);
        self.beheaded.clear();
    }

    /// Returns whether the transcript has to show that a result came to the session itself: no hook has reported the use of
    /// its tool, which may be a subagent's or another plugin's.
    fn is_uncertain(&self, tool_use: Option<&String>) -> bool {
        let has_record = !self.is_one_shot && self.evidence.is_there();
        // Without the plugin there are no hooks, and a client that names the uses of its tools may have subagents.
        has_record && (self.expects_hooks || tool_use.is_some()) && self.user(tool_use).is_none()
    }

    /// A written result is in the session, or in the subagent that used the tool.
    pub(super) fn presented(&mut self, presented: Presented, now: Instant) {
        let Presented {
            mut ids,
            via,
            tool_use,
            waited,
        } = presented;
        let beheaded = ids
            .extract_if(.., |id| self.beheaded.remove(id) && !self.shown.holds(id))
            .collect();
        self.in_parts(beheaded, tool_use.as_ref(), now);
        let by_subagent = self.is_of_subagent(tool_use.as_ref());
        if by_subagent || self.is_uncertain(tool_use.as_ref()) {
            // Those that are under way into the session itself go on.
            let is_by_result =
                |flight: &Flight| matches!(flight.channel, Channel::Result | Channel::Parts);
            ids.retain(|id| self.in_flight.flight(id).is_none_or(is_by_result));
            if by_subagent {
                self.in_flight.repeat(&ids);
            } else {
                self.evidence.want(now + WRITTEN);
                self.in_flight
                    .launch(&ids, &Flight::of_use(via, tool_use, now));
                if let Some(note) = text_of(&ids, waited, now) {
                    self.in_flight.add(note);
                }
            }
            return;
        }
        if let Some(note) = text_of(&ids, waited, now) {
            self.shown.keep_once(note);
        }
        self.came_by_result(ids, via, tool_use, now);
    }

    /// There is no record of the conversation to show whether a result came to the session: its writing is the evidence.
    pub(super) fn have_no_record(&mut self, now: Instant) {
        let doubted = self
            .in_flight
            .under_way(|flight| flight.channel == Channel::Unsure);
        let (mut by_result, others): (Vec<_>, Vec<_>) = doubted
            .into_iter()
            .partition(|id| self.in_flight.flight(id).is_some_and(Flight::was_result));
        self.in_flight.repeat(&others);
        let uses: Vec<_> = by_result.iter().map(|id| self.use_of(id)).collect();
        for tool_use in uses {
            let of_use = by_result
                .extract_if(.., |id| self.use_of(id) == tool_use)
                .collect();
            for (via, ids) in self.by_way(of_use) {
                // No hook may report the end of its step. The client may cancel it.
                self.came_by_result(ids, via, None, now);
                self.shown.came_of(tool_use.clone());
            }
        }
    }

    /// Returns the use of the tool in whose result a message that is under way came, if it is to be proven.
    fn use_of(&self, id: &MessageId) -> Option<String> {
        self.in_flight.flight(id)?.tool_use.clone()
    }

    fn came_by_result(
        &mut self,
        ids: Vec<MessageId>,
        via: Via,
        tool_use: Option<String>,
        now: Instant,
    ) {
        for note in self.in_flight.remove(&ids) {
            self.shown.keep_once(note);
        }
        self.look_soon(now);
        // The result of a tool that was moved to the background waits in the client, and a person may end the client before.
        let has_transcript = !self.is_one_shot && self.evidence.has_transcript();
        if has_transcript && self.shown.has_ended(tool_use.as_ref()) {
            self.shown.by_queue(&ids, via, tool_use, now);
            return;
        }
        let may_be_moved = has_transcript && tool_use.is_some();
        self.shown.by_tool(&ids, tool_use, now);
        if may_be_moved {
            self.shown.claim_later(via);
            self.evidence.want(now);
        } else {
            self.say(ids, Stage::InSession, via);
        }
    }

    /// The receipt claims the messages of results that the conversation may hold.
    pub(super) fn claim(&mut self, standing: Option<&Recorded>, now: Instant) {
        for (ids, via) in self.shown.claim(standing) {
            self.say(ids, Stage::InSession, via);
            self.look_soon(now);
        }
    }

    /// The client gave up the results of these uses of tools: their messages come again.
    pub(super) fn results_given_up(&mut self, uses: &[String], now: Instant) {
        let unproven = self.in_flight.under_way(|flight| {
            let of_use = flight.tool_use.as_ref();
            of_use.is_some_and(|of_use| uses.contains(of_use))
        });
        self.in_flight.repeat(&unproven);
        let given_up = self.shown.given_up(uses);
        if !given_up.is_empty() {
            let mut rest = self.shown.claimed();
            rest.retain(|id| !given_up.contains(id));
            self.lose(&given_up, rest, Via::Hook, now);
        }
    }

    /// The client cancelled a call whose result was written: it may have dropped that. Its transcript decides, if that can be
    /// read.
    pub(super) fn cancelled(&mut self, tool_use: String, now: Instant) {
        if self.evidence.has_transcript() {
            self.shown.cancelled(&tool_use);
            self.evidence.want(now);
        } else {
            self.results_given_up(&[tool_use], now);
        }
    }

    /// The model goes on: a result that waits in the client may be in the conversation.
    pub(super) fn look_for_queued(&mut self, now: Instant) {
        if self.shown.has_queued() {
            self.evidence.want(now + WRITTEN);
        }
    }

    /// The session needs these messages no more.
    pub(super) fn settled(&mut self, ids: &[MessageId]) {
        self.in_flight.remove(ids);
        self.pointers.retain(|id| !ids.contains(id));
        self.stalled.retain(|id| !ids.contains(id));
        // One that is on its way to this host comes too late.
        self.shown.settle(ids);
    }
}
