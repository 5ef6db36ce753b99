//! Proofs by the client's own record: which messages the conversation holds, and which were taken out of it.

use std::collections::HashSet;
use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, Via};
use tokio::time::Instant;

use super::Hop;
use crate::deliver::client::ClientState;
use crate::deliver::evidence::WRITTEN;
use crate::deliver::in_flight::{Channel, Flight, READ_MAX, STEP_MAX};
use crate::deliver::proof::Proven;
use crate::deliver::push::CONFIRM;
use crate::deliver::transcript::Recorded;
use crate::deliver::turn::BUSY_SILENCE;
use crate::deliver::ways::Way;
use crate::local::protocol::{Event, Name};

/// How old a prompt is at least that an idle client has dealt with.
const SETTLED: Duration = Duration::from_secs(10);
/// How soon the client may have written a turn that its hooks report: mostly. It is looked for again.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(300);
/// How long after the time for it the answer of a turn may be written, on a busy machine.
const ANSWERED_LATE: Duration = Duration::from_secs(5);
/// A message that the transcript has not named so long after the doubt is not in the conversation.
const MISSING_FOR: Duration = WRITTEN.saturating_mul(2);

impl Hop {
    /// Messages may stand in the conversation, or not: the client's transcript decides. Where there is none they come again.
    pub(super) fn doubt(&mut self, ids: Vec<MessageId>, now: Instant) {
        if ids.is_empty() {
            return;
        }
        if self.is_one_shot || !self.evidence.is_there() {
            self.in_flight.repeat(&ids);
            return;
        }
        let is_of_a_turn = ids.iter().any(|id| self.in_flight.flight(id).is_some());
        self.evidence
            .want(if is_of_a_turn { now + FIRST_LOOK } else { now });
        for id in ids {
            let flight = self.in_flight.flight(&id);
            let (via, turn) = flight.map_or((Via::Transcript, None), |flight| {
                (flight.via, flight.turn.clone())
            });
            self.in_flight
                .launch(&[id], &Flight::unsure(via, turn, now));
        }
    }

    /// Something came into the conversation, where the transcript is to show it.
    pub(super) fn look_soon(&mut self, now: Instant) {
        if !self.is_one_shot {
            self.evidence.want(now + WRITTEN);
        }
    }

    /// Returns until when at the latest it is open whether the message stands in the conversation, if it is.
    pub(in crate::deliver) fn doubted_until(&self, id: &MessageId) -> Option<Instant> {
        self.in_flight
            .flight(id)
            .filter(|flight| flight.channel == Channel::Unsure)
            .map(|flight| flight.until)
    }

    /// The client's own file reports the state of its session, also without a hook.
    pub(super) fn client_is(&mut self, client: ClientState, now: Instant) {
        if let Some(is_busy) = client.is_busy {
            self.turn.client_says(is_busy, now);
        }
        if client.is_busy == Some(true) && self.turn.is_idle() && self.is_push_late(now) {
            self.turn.is_kept(now);
        }
        if client.is_busy == Some(true) && self.evidence.has_transcript() && !self.turn.compacts() {
            // A background agent may be all that works.
            let old = self
                .in_flight
                .overdue(now + STEP_MAX - BUSY_SILENCE, |channel| {
                    channel == Channel::Prompt
                });
            self.doubt(old, now);
        }
        if client.is_busy == Some(false) {
            // A turn that ended without a step was broken off: its prompt stands in the conversation, or was taken back.
            let broken_off = self.in_flight.overdue(now + STEP_MAX - SETTLED, |channel| {
                channel == Channel::Prompt
            });
            self.doubt(broken_off, now);
            // A push that waited for the end of the turn shows soon.
            let soon = now + CONFIRM;
            if self.push_until().is_some_and(|until| until > soon) {
                self.in_flight.push_until(soon);
            }
            self.give_up_parts();
            if self.turn_is_over(SETTLED, now) {
                self.evidence.want(now);
            }
        }
        self.follow_client(client, now);
        if self.ways.hooks && self.evidence.has_transcript() && self.push_until().is_some() {
            // The hook that would confirm it may be lost, or switched off.
            self.evidence.want(now);
        }
        if !self.evidence.has_transcript() {
            self.have_no_record(now);
        }
    }

    /// The session is in the conversation of the client's file. Hooks report another one first: where the one of a push is
    /// late and they named another, they were switched off before.
    fn follow_client(&mut self, client: ClientState, now: Instant) {
        let mut pushed = Vec::new();
        if self.is_push_late(now) && self.evidence.leaves_hooks(&client) {
            let ids = self
                .in_flight
                .under_way(|flight| flight.channel == Channel::Push);
            pushed = self.by_way(ids.clone());
            self.in_flight.free_again(&ids);
        }
        if self.evidence.answered(client) {
            self.begin_conversation(now);
        }
        for (via, ids) in pushed {
            self.evidence.want(now);
            self.in_flight.launch(&ids, &Flight::unsure(via, None, now));
        }
    }

    /// A turn is over, which may have been broken off. Returns whether the transcript is to decide about messages of that age.
    pub(super) fn turn_is_over(&mut self, age: Duration, now: Instant) -> bool {
        let results = self.shown.results_broke_off(age, now);
        if self.evidence.has_transcript() {
            return self.shown.broke_off(age, now) || results;
        }
        if results {
            self.claim_texts(None, now);
        }
        false
    }

    /// These messages stand in the conversation; `None` where the transcript could not be read.
    pub(super) fn conversation(&mut self, standing: Option<&Recorded>, now: Instant) {
        self.claim(standing, now);
        let is_elsewhere = standing.is_some_and(|recorded| self.evidence.is_elsewhere(recorded));
        let standing = standing.filter(|recorded| self.evidence.is_current(recorded, now));
        // The client writes its transcript a little later than it runs its hooks.
        let old = self
            .in_flight
            .overdue(now + READ_MAX - MISSING_FOR, |channel| {
                channel == Channel::Unsure
            });
        let old = old.into_iter().collect::<HashSet<_>>();
        let doubted = self
            .in_flight
            .under_way(|flight| flight.channel == Channel::Unsure);
        // A person took the prompt back before any answer: the client leaves it at the end of the file until the next one.
        let is_taken_back =
            |standing: &Recorded, id: &MessageId| self.turn.is_idle() && standing.open.contains(id);
        let is_named = |id: &MessageId| {
            standing.is_some_and(|standing| {
                standing.named.contains(id)
                    && !is_taken_back(standing, id)
                    && !self.is_of_before(standing, id, now)
            })
        };
        let (mut there, missing): (Vec<_>, Vec<_>) = doubted.into_iter().partition(is_named);
        // A push is there as well, whether a hook confirmed it or not. A reminder names what stands there anyway.
        let pushed = self
            .in_flight
            .under_way(|flight| flight.channel == Channel::Push);
        let is_new = |id: &MessageId| is_named(id) && !self.shown.holds(id);
        there.extend(pushed.into_iter().filter(is_new));
        self.are_missing(missing, &old, standing.is_some() || is_elsewhere, now);
        if is_elsewhere {
            return;
        }
        self.claim_texts(standing, now);
        let recorded = self
            .shown
            .recorded(standing.map(|standing| &standing.named));
        self.say(recorded, Stage::Seen, Via::Hook);
        if let Some(standing) = standing {
            self.stand_there(there, &old, &standing.answered, now);
            self.compare(standing, now);
        }
    }

    /// The receipt claims the texts of hooks that the conversation has. Where the transcript is of no use, a step proves them, and
    /// those that the client may have dropped come again.
    fn claim_texts(&mut self, standing: Option<&Recorded>, now: Instant) {
        let claimed = match standing {
            Some(standing) => self.shown.take_printed(|id| standing.named.contains(id)),
            None => self.shown.claim_proven(),
        };
        for (ids, via) in claimed {
            self.say(ids, Stage::InSession, via);
        }
        if self.shown.has_unclaimed(now) {
            self.evidence.want(now + WRITTEN);
        }
        if standing.is_none() {
            for (ids, via) in self.shown.take_noticed() {
                self.receipt(ids, Stage::InSession, via, Some(Via::Hook));
            }
            let (dropped, next) = self.shown.dropped(!self.turn.is_busy(), now);
            if let Some(next) = next {
                self.evidence.want(next);
            }
            if !dropped.is_empty() {
                let mut rest = self.shown.claimed();
                rest.retain(|id| !dropped.contains(id));
                self.lose(&dropped, rest, Via::Hook, now);
            }
        }
    }

    /// Returns whether all copies of a message that comes again were in the conversation before the session went on with it.
    fn is_of_before(&self, standing: &Recorded, id: &MessageId, now: Instant) -> bool {
        let age = standing.ages.get(id);
        let is_older = |since| age.is_none_or(|age| *age > now.duration_since(since));
        self.in_flight.comes_again(id) && self.since.is_some_and(is_older)
    }

    /// A step of the model proves these to be seen, if they stood in the conversation: another plugin may have taken them out
    /// of a result before. The transcript decides, where there is one.
    pub(super) fn seen_by_hook(&mut self, event: &Event, proven: Proven, now: Instant) {
        let Proven {
            of_turn: mut seen,
            of_earlier,
        } = proven;
        let has_transcript = self.evidence.has_transcript();
        let mut is_open = event.agent_id.is_none()
            && (event.name == Name::Stop && self.shown.may_be_left(&mut seen, has_transcript, now)
                || has_transcript && self.shown.unrecorded(&mut seen, now));
        if !has_transcript {
            seen.extend(of_earlier);
        } else if !of_earlier.is_empty() {
            self.shown.await_record(&of_earlier, now);
            is_open = true;
        }
        if is_open {
            // A one-shot session may end at any moment, and its client has written the result long ago.
            self.evidence
                .want(if self.is_one_shot { now } else { now + WRITTEN });
        }
        self.say(seen, Stage::Seen, Via::Hook);
    }

    /// The conversation lacks these: they come again once that has lasted.
    fn are_missing(
        &mut self,
        ids: Vec<MessageId>,
        old: &HashSet<MessageId>,
        is_read: bool,
        now: Instant,
    ) {
        let (mut gone, fresh): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| old.contains(id));
        if !fresh.is_empty() {
            self.evidence.want(now + WRITTEN / 2);
        }
        if !is_read {
            // The hooks are all the evidence that there is. The next turn may have begun meanwhile.
            let had_step = |id: &MessageId| {
                let flight = self.in_flight.flight(id);
                flight.is_some_and(|flight| flight.has_stepped) || self.has_stepped(id)
            };
            let by_hooks = gone.extract_if(.., |id| had_step(id)).collect();
            self.have_entered(by_hooks, Via::Hook);
        } else {
            self.in_flight.are_not_there(&gone);
        }
        // A push that no hook has shown may stand in the client's queue yet.
        self.in_flight.repeat(&gone);
    }

    /// The conversation has these. An answer of the model below them proves that it read them.
    fn stand_there(
        &mut self,
        ids: Vec<MessageId>,
        old: &HashSet<MessageId>,
        answered: &HashSet<MessageId>,
        now: Instant,
    ) {
        self.have_worked(&ids);
        let (read, mut unread): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| answered.contains(id));
        self.have_entered(read, Via::Transcript);
        // The answer of their turn is there, by its hooks, and not written yet; or their prompt waits for the turn after.
        let unwritten = unread
            .extract_if(.., |id| self.has_stepped(id) && !old.contains(id))
            .count();
        if unwritten > 0 {
            self.evidence.want(now + WRITTEN / 2);
        } else if unread
            .iter()
            .any(|id| !self.turn.has_failed() || self.has_stepped(id))
        {
            self.evidence.want(now + ANSWERED_LATE);
        }
        for (via, ids) in self.by_way(unread) {
            let notes = self.in_flight.remove(&ids);
            // An earlier process of the session was shown them, and this one does not go on by itself.
            let is_left = via == Via::Transcript && self.turn.is_idle();
            if self.turn.has_failed() || is_left {
                self.stalls(
                    notes
                        .iter()
                        .filter(|note| note.presses())
                        .map(|note| note.id.clone())
                        .collect(),
                );
            }
            self.shown.keep(notes);
            self.shown.by_transcript(&ids, now);
            self.say(ids, Stage::InSession, via);
        }
    }

    /// The conversation has these. A push that brought one of them worked, although no hook confirmed it. Without hooks
    /// nothing is pushed again.
    fn have_worked(&mut self, ids: &[MessageId]) {
        let flights = ids.iter().filter_map(|id| self.in_flight.flight(id));
        let unreported = flights.filter(|flight| self.ways.hooks && flight.turn.is_none());
        let ways: Vec<_> = unreported
            .filter_map(|flight| Way::named(flight.via))
            .collect();
        for way in ways {
            self.ways.worked(way);
        }
    }

    /// Compares the conversation with the messages that the session was shown: a person may have taken a part of it back.
    fn compare(
        &mut self,
        Recorded {
            named,
            answered,
            is_stopped,
            ..
        }: &Recorded,
        now: Instant,
    ) {
        for (ids, via) in self.shown.stand_in(named) {
            self.say(ids, Stage::InSession, via);
        }
        let seen = self.shown.proven_by_knowing(answered);
        self.say(seen, Stage::Seen, Via::Transcript);
        let mut taken_out = self.shown.taken_out(named);
        // A person broke a tool off while other hooks looked at its result: the client puts a refusal in its place.
        let (dropped, next) = self.shown.unwritten(named, !self.turn.is_busy(), now);
        taken_out.extend(dropped);
        if let Some(next) = next {
            let again = if self.is_one_shot {
                FIRST_LOOK
            } else {
                ANSWERED_LATE
            };
            self.evidence.want(next.min(now + again));
        }
        if !taken_out.is_empty() {
            let rest = self.shown.among(named);
            self.lose(&taken_out, rest, Via::Transcript, now);
        }
        if self.turn.is_idle() {
            // The turn ended before the model read them. A person sees that, unless it was by a limit, a tool or a hook.
            let also_others = self.is_headless || *is_stopped;
            self.stalls(self.shown.left_unread(also_others, SETTLED, now));
        }
    }

    /// Returns whether the latest step was one of the turn that the message came in.
    fn has_stepped(&self, id: &MessageId) -> bool {
        let turn = self
            .in_flight
            .flight(id)
            .and_then(|flight| flight.turn.as_deref());
        turn.is_some() && turn == self.evidence.turn()
    }

    /// The conversation has these messages no more, or never had them: they come again, marked. To the store that is another
    /// context, which was shown the rest. It delivers again the messages whose texts are not kept here.
    pub(super) fn lose(
        &mut self,
        lost: &[MessageId],
        rest: Vec<MessageId>,
        via: Via,
        now: Instant,
    ) {
        self.context += 1;
        self.stalled.retain(|id| !lost.contains(id));
        for mut note in self.shown.take_back(lost) {
            note.repeated = true;
            if note.expires_at > now {
                self.in_flight.add(note);
            }
        }
        self.say(rest, Stage::InSession, via);
    }
}
