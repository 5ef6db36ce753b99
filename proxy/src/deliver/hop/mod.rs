//! Every decision about the last hop, as pure as it can be: an [`Input`] goes in, its [`Effects`] come out.
//!
//! [`Hop::on`] has the one match over everything that can happen. `hooks` answers hooks, `results` follows the results of
//! tools, `pushing` decides when to wake the session, `conversation` evaluates the client's own record. One message goes by
//! one way at a time, and no stage of a receipt is reported before its evidence is here.

mod conversation;
mod hooks;
mod input;
mod pushing;
mod results;

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::vocabulary::Priority;
use c3po_shared::wire::{Arriving, SessionChange};
use tokio::time::Instant;

use super::evidence::Evidence;
use super::in_flight::{Channel, InFlight, is_of_result};
use super::note::Note;
use super::proof::Shown;
use super::push::{InboxSocket, Pushes, Reminders};
use super::turn::Turn;
use super::ways::{Way, Ways};
use crate::local::protocol::{Event, Name};
pub(crate) use input::{Effects, Input, Presented};

/// How many conversations that the session left are remembered: their hooks are late by seconds at the most.
const LEFT_MAX: usize = 8;
/// How long after a turn of a headless session nothing is pushed: a program that had one question ends it meanwhile.
const PAUSE: Duration = Duration::from_secs(2);

/// A use of a tool, as the hook before it reported it.
#[derive(Debug)]
struct ToolUse {
    id: String,
    by_subagent: bool,
}

/// The state of one session's last hop.
#[derive(Debug)]
pub(super) struct Hop {
    wished: AgentId,
    agent: AgentId,
    generation: u64,
    /// Whether the session was shown that its name differs from the wished one.
    knows_name: bool,
    /// Whether the session answers one prompt and ends: it gets the results of its own tool calls and nothing else.
    is_one_shot: bool,
    /// Whether a program reads the session's answers: no turn is prolonged for the question of another agent.
    is_headless: bool,
    /// The latest uses of our tools that hooks have reported.
    uses: VecDeque<ToolUse>,
    /// When a subagent reported last.
    subagent_at: Option<Instant>,
    /// Messages in whose middle the session reads, and whose beginning is not in its context.
    beheaded: HashSet<MessageId>,
    /// Answers of which the session was shown only that they exist.
    pointers: HashSet<MessageId>,
    /// Whether the session ran before this proxy, which then does not know the content of its conversation.
    joined: bool,
    /// When the present context began, or the session went on with it: an older part of the conversation is no evidence for it.
    since: Option<Instant>,
    /// Whether hooks are to be expected: then a tool call alone proves nothing.
    expects_hooks: bool,
    session_id: Option<String>,
    /// The conversations before this one.
    left: VecDeque<String>,
    context: u64,
    in_flight: InFlight,
    shown: Shown,
    turn: Turn,
    ways: Ways,
    pushes: Pushes,
    /// How many hooks were given something to print.
    prints: u64,
    /// The latest of them that was given the session's name.
    naming: Option<u64>,
    evidence: Evidence,
    /// Messages in the conversation whose turn broke off by a failure of the model's service.
    stalled: Vec<MessageId>,
    reminders: Reminders,
    receipts: Vec<Progress>,
}

impl Hop {
    pub(super) fn new(
        wished: AgentId,
        inbox: Option<InboxSocket>,
        channel: bool,
        expects_hooks: bool,
    ) -> Self {
        Self {
            is_one_shot: false,
            is_headless: false,
            uses: VecDeque::new(),
            subagent_at: None,
            beheaded: HashSet::new(),
            pointers: HashSet::new(),
            joined: false,
            since: None,
            agent: wished.clone(),
            wished,
            generation: 0,
            knows_name: false,
            expects_hooks,
            session_id: None,
            left: VecDeque::new(),
            context: 0,
            in_flight: InFlight::default(),
            shown: Shown::default(),
            turn: Turn::new(),
            ways: Ways::default(),
            pushes: Pushes::new(inbox, channel),
            prints: 0,
            naming: None,
            evidence: Evidence::default(),
            stalled: Vec::new(),
            reminders: Reminders::default(),
            receipts: Vec::new(),
        }
    }

    /// Returns the last hop of a session that answers one prompt and ends.
    pub(super) fn of_one_shot(self) -> Self {
        Self {
            is_one_shot: true,
            ..self
        }
    }

    /// Returns the last hop of a session whose answers a program reads.
    pub(super) fn headless(mut self) -> Self {
        self.is_headless = true;
        self.turn.pauses_for(PAUSE);
        self
    }

    /// Returns the last hop of a session that ran before it.
    pub(super) fn joined(self) -> Self {
        Self {
            joined: true,
            ..self
        }
    }

    /// Returns the last hop of a session whose client began then.
    pub(super) fn since(self, began: Option<Instant>) -> Self {
        Self {
            since: began,
            ..self
        }
    }

    /// Applies an input, and returns its effects.
    pub(super) fn on(&mut self, input: Input, now: Instant) -> Effects {
        let mut effects = Effects::default();
        match input {
            Input::Begins(agent, generation) => self.begins(agent, generation),
            Input::Arrived(messages) => self.arrived(messages, now),
            Input::TypedInto => self.turn.is_unreported(now),
            Input::Hook(event) => {
                effects.answer = self.heard(&event, now);
                effects.granted = self.may_wait(&event);
            }
            Input::Printed(offer) => self.printed(offer, now),
            Input::NotPrinted(offer) => self.not_printed(offer),
            Input::WaiterGone => self.pushes.waiter = false,
            Input::Called(named) => self.called(&named, now),
            Input::Taken(id) => effects.granted = self.takes(id, now),
            Input::InParts {
                ids,
                read_on,
                tool_use,
            } => {
                self.begins_parts(&ids, read_on.as_ref());
                self.in_parts(ids, tool_use.as_ref(), now);
            }
            Input::Presented(presented) => self.presented(presented, now),
            Input::Cancelled(tool_use) => self.cancelled(tool_use, now),
            Input::Settled(ids) => self.settled(&ids),
            Input::Status(state) => self.turn.said(state),
            Input::ClientState(client) => self.client_is(client, now),
            Input::Conversation(standing) => self.conversation(standing.as_ref(), now),
            Input::NotPushed(way) => self.not_pushed(way, now),
            Input::Look => effects.todo = self.next(now),
        }
        effects.receipts = std::mem::take(&mut self.receipts);
        effects.launched = self.in_flight.take_launched();
        effects
    }

    /// Another session of an agent, or another agent, has been shown nothing.
    fn begins(&mut self, agent: AgentId, generation: u64) {
        let renamed = generation == 0;
        let is_same = self.agent == agent
            && (renamed || self.generation == 0 || self.generation == generation);
        if !is_same {
            self.forget_context();
            // The session may come back to that name.
            self.shown.remember(self.in_flight.forget());
        }
        if renamed {
            self.wished = agent.clone();
        }
        self.agent = agent;
        self.generation = generation;
    }

    fn arrived(&mut self, messages: Vec<Arriving>, now: Instant) {
        for arriving in messages {
            let is_shown = self.shown.holds(&arriving.message.id);
            let mut note = Note::of(arriving, now);
            if note.points && !is_shown {
                self.pointers.insert(note.id.clone());
            }
            if is_shown {
                // The result of a wait was faster than its text, which a rewind needs.
                self.shown.keep_once(note);
                continue;
            }
            // The store learns of it by a receipt, which may come there after the new context.
            note.repeated |= self.shown.held_before(&note.id);
            let doubted = (note.repeated && self.joined).then(|| note.id.clone());
            self.in_flight.add(note);
            self.doubt(doubted.into_iter().collect(), now);
        }
    }

    /// Returns whether the event is of a conversation that the session has left: its hooks may be late.
    fn is_of_left(&self, event: &Event) -> bool {
        !decides_session(event)
            && event
                .session_id
                .as_ref()
                .is_some_and(|id| self.left.contains(id))
    }

    /// Returns whether a hook that waits beside the session is of use.
    pub(super) fn needs_waiter(&self) -> bool {
        self.pushes.waiter && !self.ways.works(Way::Inbox)
    }

    /// Returns the state of the session as other agents see it.
    pub(super) fn facts(&self) -> SessionChange {
        SessionChange {
            state: self.turn.state(),
            session_id: self.session_id.clone(),
            reach: Some(self.ways.reach()),
            context: Some(self.context),
            // The link knows whether a prompt is still to be reported.
            prompted: false,
        }
    }

    /// Returns which of these the session, or a subagent of it, may have been shown before. A result that reads on in a
    /// message does not repeat its beginning.
    pub(super) fn repeated(
        &self,
        ids: &[MessageId],
        read_on: Option<&MessageId>,
    ) -> Vec<MessageId> {
        let (mut repeated, mut others): (Vec<_>, Vec<_>) =
            ids.iter().cloned().partition(|id| self.shown.holds(id));
        others.retain(|id| Some(id) != read_on || !self.is_begun(id));
        repeated.extend(self.in_flight.repeated(&others));
        repeated
    }

    /// Returns the messages of which the session is to be reminded.
    #[cfg(test)]
    pub(super) fn stalled(&self) -> &[MessageId] {
        &self.stalled
    }

    /// Returns how many messages wait on this host.
    pub(super) fn unread(&self) -> usize {
        self.in_flight.len()
    }

    /// Records the session's conversation. A new one holds no message of the one before.
    ///
    /// Returns whether the event is of this conversation. Several hooks report the beginning of one, in any order: only
    /// the deciding one begins it.
    fn follow_session(&mut self, event: &Event, now: Instant) -> bool {
        let other = matches!((&self.session_id, &event.session_id), (Some(known), Some(named)) if known != named);
        if other && !decides_session(event) {
            return false;
        }
        // A subagent's context is compacted without the session's.
        let is_own = event.agent_id.is_none();
        let compacted = is_own
            && event.name == Name::SessionStart
            && event.source.as_deref() == Some("compact");
        if other {
            self.evidence = Evidence::default();
            self.begin_conversation(now);
        } else if compacted {
            self.begin_context(now);
        }
        if event.session_id.is_some() {
            // A person may come back to a conversation.
            self.left
                .retain(|left| event.session_id.as_ref() != Some(left));
            self.session_id.clone_from(&event.session_id);
        }
        true
    }

    /// The session is in another conversation, which holds no message that it was shown in this one.
    fn begin_conversation(&mut self, now: Instant) {
        self.leave_session();
        self.begin_context(now);
    }

    /// The lines before are of another context. The client writes a compaction later than it runs its hooks.
    fn begin_context(&mut self, now: Instant) {
        self.joined = false;
        self.since = Some(now);
        self.context += 1;
        self.forget_context();
    }

    fn leave_session(&mut self) {
        self.left.extend(self.session_id.take());
        if self.left.len() > LEFT_MAX {
            self.left.pop_front();
        }
        let prompted = self.prompted(|_| true);
        self.in_flight.repeat(&prompted);
    }

    /// Messages of a prompt survive a compaction; all others are lost. The new context may hold those that were on their way
    /// into the old one: the client leaves its latest lines in the conversation.
    fn forget_context(&mut self) {
        self.knows_name = false;
        for note in self.shown.forget() {
            let repeated = true;
            self.in_flight.add(Note { repeated, ..note });
        }
        let lost = self
            .in_flight
            .under_way(|flight| flight.channel != Channel::Prompt);
        self.in_flight.repeat(&lost);
        self.stalled.clear();
        self.beheaded.clear();
        self.pushes.give_up();
    }

    /// Returns the messages that stand with a prompt whose turn is one of these.
    fn prompted(&self, of: impl Fn(Option<&str>) -> bool) -> Vec<MessageId> {
        self.in_flight
            .under_way(|flight| flight.channel == Channel::Prompt && of(flight.turn.as_deref()))
    }

    /// The model did something in that turn: its prompt is in the session, and seen with its mail. But a prompt with the name
    /// of this turn may wait in the client for the next one and be taken back there, or be refused by another hook. The
    /// transcript decides, where there is one.
    fn enter(&mut self, turn: Option<&str>, now: Instant) {
        if !self.evidence.has_transcript() {
            let entered = self.prompted(|of| turn.is_none() || of.is_none() || of == turn);
            self.have_entered(entered, Via::Hook);
        }
        let led_nowhere = self.prompted(|_| true);
        self.doubt(led_nowhere, now);
        self.in_flight.step_of(turn);
    }

    /// Messages of a prompt are in the session, and seen by that proof.
    fn have_entered(&mut self, mut ids: Vec<MessageId>, proof: Via) {
        // The session was reminded of these alone.
        let reminded: Vec<_> = ids.extract_if(.., |id| self.shown.holds(id)).collect();
        self.in_flight.remove(&reminded);
        for (via, ids) in self.by_way(ids) {
            let notes = self.in_flight.remove(&ids);
            self.shown.keep(notes);
            self.shown.hold(&ids);
            self.receipt(ids, Stage::InSession, via, Some(proof));
        }
    }

    /// Returns messages that are under way, by the names of their ways in receipts.
    fn by_way(&self, ids: Vec<MessageId>) -> Vec<(Via, Vec<MessageId>)> {
        let mut by_way: Vec<(Via, Vec<MessageId>)> = Vec::new();
        for id in ids {
            let Some(via) = self.in_flight.flight(&id).map(|flight| flight.via) else {
                continue;
            };
            match by_way.iter_mut().find(|(known, _)| *known == via) {
                Some((_, ids)) => ids.push(id),
                None => by_way.push((via, vec![id])),
            }
        }
        by_way
    }

    /// Frees the messages of hooks, results and prompts that led nowhere, and forgets those that have expired.
    fn release(&mut self, now: Instant) {
        // A result may still be on its way to a client that does not read.
        let may_be_shown = |channel| channel != Channel::Push && channel != Channel::Prompt;
        let unproven = self.in_flight.overdue(now, may_be_shown);
        self.in_flight.repeat(&unproven);
        let led_nowhere = self
            .in_flight
            .overdue(now, |channel| channel == Channel::Prompt);
        self.doubt(led_nowhere, now);
        self.in_flight.expire(now);
    }

    /// Returns when something is taken back next.
    fn next_release(&self) -> Option<Instant> {
        self.in_flight
            .next_deadline(|channel| channel != Channel::Push)
    }

    fn say(&mut self, ids: Vec<MessageId>, stage: Stage, via: Via) {
        self.receipt(ids, stage, via, None);
    }

    fn receipt(
        &mut self,
        mut message_ids: Vec<MessageId>,
        stage: Stage,
        via: Via,
        seen_via: Option<Via>,
    ) {
        // A text that only points to an answer is no evidence that the answer is in the session. Results have it whole.
        if is_of_result(via) {
            self.pointers.retain(|id| !message_ids.contains(id));
        } else {
            message_ids.retain(|id| !self.pointers.contains(id));
        }
        if !message_ids.is_empty() {
            self.receipts.push(Progress {
                message_ids,
                stage,
                via,
                seen_via,
                context: self.context,
            });
        }
    }
}

fn presses(note: &Note, away: bool) -> bool {
    if away {
        note.priority == Priority::Urgent
    } else {
        note.presses()
    }
}

/// Returns whether an event can prove that the session is in another conversation.
fn decides_session(event: &Event) -> bool {
    event.agent_id.is_none() && matches!(event.name, Name::SessionStart | Name::UserPromptSubmit)
}
