//! Every decision about the last hop, as pure as it can be: events and messages in, texts and receipts out.
//!
//! `pushing` decides what wakes the session, `conversation` what the client's own record proves. One message goes by one way at a time, and no stage of a receipt is said before its evidence is here.

mod conversation;
mod pushing;

use std::collections::VecDeque;
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::vocabulary::{Priority, State};
use c3po_shared::wire::Arriving;
use c3po_shared::wire::SessionChange;
use tokio::time::Instant;

use super::evidence::Evidence;
use super::in_flight::{Channel, Flight, InFlight};
use super::note::Note;
use super::proof::{Shown, is_step};
use super::push::{self, InboxSocket, Pushes};
use super::turn::Turn;
use super::ways::{Way, Ways};
use super::{answer, render};
use crate::local::MARK;
use crate::local::protocol::{Answer, Event, Name};

/// After how long without any hook a second tool call shows that the session has none.
const HOOKS_DUE: Duration = Duration::from_secs(10);
/// How many conversations that the session left are remembered: their hooks are late by seconds at the most.
const LEFT_MAX: usize = 8;

/// How many tool calls of subagents are remembered: more are never under way.
const SUBAGENT_CALLS_MAX: usize = 256;

/// What is known of one session, and what follows from it.
#[derive(Debug)]
pub(super) struct Hop {
    wished: AgentId,
    agent: AgentId,
    generation: u64,
    /// Whether the session was told that it has another name than the wished one.
    knows_name: bool,
    /// Whether the session answers one prompt and ends: nothing is put into it but what it asks for.
    is_one_shot: bool,
    /// The latest uses of our tools by subagents.
    of_subagents: VecDeque<String>,
    /// Whether the session ran before this proxy, which does not know what its conversation holds.
    joined: bool,
    /// Whether hooks are to be expected: then a tool call alone proves nothing.
    expects_hooks: bool,
    /// When a tool was called first without any hook before it.
    called: Option<Instant>,
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
    receipts: Vec<Progress>,
}

impl Hop {
    pub(super) fn new(wished: AgentId, inbox: Option<InboxSocket>, channel: bool, expects_hooks: bool) -> Self {
        Self {
            is_one_shot: false,
            of_subagents: VecDeque::new(),
            joined: false,
            agent: wished.clone(),
            wished,
            generation: 0,
            knows_name: false,
            expects_hooks,
            called: None,
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
            receipts: Vec::new(),
        }
    }

    /// Returns the last hop of a session that answers one prompt and ends.
    pub(super) fn of_one_shot(self) -> Self {
        Self { is_one_shot: true, ..self }
    }

    /// Returns the last hop of a session that ran before it.
    pub(super) fn joined(self) -> Self {
        Self { joined: true, ..self }
    }

    /// The link is up, or the session took another name: then the generation is 0, for it is not known yet.
    ///
    /// Another session of an agent, or another agent, has been shown nothing.
    pub(super) fn begins(&mut self, agent: &AgentId, generation: u64) {
        let renamed = generation == 0;
        let is_same = self.agent == *agent && (renamed || self.generation == 0 || self.generation == generation);
        if !is_same {
            self.in_flight = InFlight::default();
            self.forget_context();
        }
        if renamed {
            self.wished = agent.clone();
        }
        self.agent = agent.clone();
        self.generation = generation;
    }

    /// Messages have come to this host.
    pub(super) fn arrived(&mut self, messages: Vec<Arriving>, now: Instant) {
        for arriving in messages {
            if self.shown.holds(&arriving.message.id) {
                continue;
            }
            let mut note = Note::of(arriving, now);
            // The store learns of it by a receipt, which may come there after the new context.
            note.repeated |= self.shown.held_before(&note.id);
            let doubted = (note.repeated && self.joined).then(|| note.id.clone());
            self.in_flight.add(note);
            self.doubt(doubted.into_iter().collect(), now);
        }
    }

    /// A hook says what happens, and gets what it has to do.
    pub(super) fn heard(&mut self, event: &Event, now: Instant) -> Answer {
        self.release(now);
        self.ways.hooks = true;
        if self.is_of_left(event) || !self.follow_session(event) {
            return Answer::default();
        }
        self.pushes.learn(event);
        self.evidence.learn(event);
        // One that comes in the middle of a turn may wait in the client, and be taken back there.
        let begins = event.name == Name::UserPromptSubmit && !self.turn.is_busy();
        if let Some(veto) = self.veto(event) {
            return veto;
        }
        self.turn.on(event, now);
        let seen = self.shown.proven_by(event);
        self.say(seen, Stage::Seen, Via::Hook);
        if event.name != Name::UserPromptSubmit {
            self.in_flight.goes_on(now);
        }
        if event.agent_id.is_some() || event.name == Name::SubagentStop {
            if event.name == Name::PreToolUse {
                self.of_subagents.extend(event.tool_use_ids.iter().cloned());
                let excess = self.of_subagents.len().saturating_sub(SUBAGENT_CALLS_MAX);
                self.of_subagents.drain(..excess);
            }
            return Answer::default();
        }
        if is_step(event) {
            self.enter(event.prompt_id.as_deref(), now);
            self.evidence.step(event, self.shown.is_empty(), now);
        }
        if self.is_one_shot {
            return Answer::default();
        }
        if let Some(until) = push::deadline_after(event.name, now) {
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

    /// Returns whether the event is of a conversation that the session has left: its hooks may be late.
    pub(super) fn is_of_left(&self, event: &Event) -> bool {
        !decides_session(event) && event.session_id.as_ref().is_some_and(|id| self.left.contains(id))
    }

    /// The hook has flushed that offer: it is in the session, or comes with a prompt that is about to be.
    pub(super) fn printed(&mut self, number: u64, now: Instant) {
        self.knows_name |= self.naming == Some(number);
        let ids = self.in_flight.under_way(|flight| flight.channel == Channel::Hook(number));
        let Some(flight) = ids.first().and_then(|id| self.in_flight.flight(id)).cloned() else { return };
        if flight.via == Via::UserPromptSubmit {
            self.in_flight.launch(&ids, &Flight::by_prompt(flight.via, None, flight.turn, now));
            return;
        }
        let notes = self.in_flight.remove(&ids);
        self.shown.keep(notes);
        self.shown.by_hook(&ids);
        self.say(ids, Stage::InSession, flight.via);
    }

    /// The hook went away: what it was given goes another way. It may have died after it printed.
    pub(super) fn not_printed(&mut self, number: u64) {
        let ids = self.in_flight.under_way(|flight| flight.channel == Channel::Hook(number));
        self.in_flight.repeat(&ids);
    }

    /// A client without hooks calls a tool: its model went on after what it was shown.
    pub(super) fn tool_called(&mut self, now: Instant) {
        if self.ways.hooks {
            return;
        }
        let first = *self.called.get_or_insert(now);
        if !self.expects_hooks || now.duration_since(first) >= HOOKS_DUE {
            let seen = self.shown.proven_by_call();
            self.say(seen, Stage::Seen, Via::ToolCall);
        }
    }

    /// Returns whether the result of a wait may hold the message: not where it goes by another way already.
    pub(super) fn takes(&mut self, id: &MessageId, now: Instant) -> bool {
        self.release(now);
        let goes_another_way = self.in_flight.flight(id).is_some_and(|flight| flight.channel != Channel::Result);
        if goes_another_way || self.shown.holds(id) {
            return false;
        }
        self.in_flight.launch(std::slice::from_ref(id), &Flight::by_result(now));
        true
    }

    /// A result holds a part of these messages, and not their end: no hook and no push shows them beside that.
    pub(super) fn in_parts(&mut self, ids: &[MessageId], now: Instant) {
        let new: Vec<_> = ids.iter().filter(|id| !self.shown.holds(id)).cloned().collect();
        self.in_flight.launch(&new, &Flight::in_parts(now));
    }

    /// The result of a tool was written, with these messages in it.
    pub(super) fn presented(&mut self, ids: Vec<MessageId>, via: Via, tool_use: Option<String>) {
        if tool_use.as_ref().is_some_and(|tool_use| self.of_subagents.contains(tool_use)) {
            // A subagent has it, and the session has not.
            self.in_flight.repeat(&ids);
            return;
        }
        let notes = self.in_flight.remove(&ids);
        self.shown.keep(notes);
        self.shown.by_tool(&ids, tool_use);
        self.say(ids, Stage::InSession, via);
    }

    /// The model names these messages in a call: it has read them, by whichever way they were put before it.
    pub(super) fn named(&mut self, ids: &[MessageId]) {
        let known: Vec<_> = self.prompted(|_| true).into_iter().filter(|id| ids.contains(id)).collect();
        self.have_entered(known, Via::ToolCall);
        let seen = self.shown.proven_by_knowing(ids);
        self.say(seen, Stage::Seen, Via::ToolCall);
    }

    /// The session dealt with these messages: it needs them no more.
    pub(super) fn settled(&mut self, ids: &[MessageId]) {
        self.in_flight.remove(ids);
        // One that is on its way to this host comes too late.
        self.shown.and_seen(ids);
    }

    /// The session said itself what it does.
    pub(super) fn said_status(&mut self, state: State) {
        self.turn.said(state);
    }

    /// A hook waits beside the session, or does no longer. Returns whether it is needed.
    pub(super) fn waiter_is(&mut self, there: bool) -> bool {
        let needed = there && !self.ways.works(Way::Inbox);
        self.pushes.waiter = needed;
        needed
    }

    /// Returns whether a hook that waits beside the session is of use.
    pub(super) fn needs_waiter(&self) -> bool {
        self.pushes.waiter && !self.ways.works(Way::Inbox)
    }

    /// Returns what others are told of the session.
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

    /// Returns how many messages wait on this host.
    pub(super) fn unread(&self) -> usize {
        self.in_flight.len()
    }

    /// Takes the receipts that are to be sent, in order.
    pub(super) fn take_receipts(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.receipts)
    }

    /// Notes which conversation the session is in. A new one holds nothing of what the one before was shown.
    ///
    /// Returns whether the event is of this conversation. Several hooks tell the beginning of one, in any order: only
    /// the one that decides begins it.
    fn follow_session(&mut self, event: &Event) -> bool {
        let other = matches!((&self.session_id, &event.session_id), (Some(known), Some(named)) if known != named);
        if other && !decides_session(event) {
            return false;
        }
        let compacted = event.name == Name::SessionStart && event.source.as_deref() == Some("compact");
        if other || compacted {
            if other {
                self.leave_session();
                self.evidence = Evidence::default();
                self.joined = false;
            }
            self.context += 1;
            self.forget_context();
        }
        if event.session_id.is_some() {
            self.session_id.clone_from(&event.session_id);
        }
        true
    }

    fn leave_session(&mut self) {
        self.left.extend(self.session_id.take());
        if self.left.len() > LEFT_MAX {
            self.left.pop_front();
        }
        let prompted = self.prompted(|_| true);
        self.in_flight.repeat(&prompted);
    }

    /// What came with a prompt survives a compaction, and nothing else does.
    fn forget_context(&mut self) {
        self.knows_name = false;
        self.shown.forget();
        let lost = self.in_flight.under_way(|flight| flight.channel != Channel::Prompt);
        self.in_flight.free_again(&lost);
        self.stalled.clear();
        self.pushes.give_up();
    }

    fn on_prompt(&mut self, event: &Event, begins: bool, now: Instant) -> Answer {
        if let Some(push) = event.prompt.as_deref().and_then(|prompt| self.pushes.take(prompt)) {
            self.ways.worked(push.way);
            self.stalled.retain(|id| !push.ids.contains(id));
            let flight = Flight::by_prompt(push.way.via(), Some(push.way), event.prompt_id.clone(), now);
            self.in_flight.launch(&push.ids, &flight);
        }
        if begins { self.give(event, |_| true, now) } else { Answer::default() }
    }

    /// Returns the messages that stand with a prompt whose turn is one of these.
    fn prompted(&self, of: impl Fn(Option<&str>) -> bool) -> Vec<MessageId> {
        self.in_flight.under_way(|flight| flight.channel == Channel::Prompt && of(flight.turn.as_deref()))
    }

    /// The model did something in that turn: what came with its prompt is in the session, and seen.
    fn enter(&mut self, turn: Option<&str>, now: Instant) {
        let entered = self.prompted(|of| turn.is_none() || of.is_none() || of == turn);
        self.have_entered(entered, Via::Hook);
        let led_nowhere = self.prompted(|_| true);
        self.doubt(led_nowhere, now);
    }

    /// What came with a prompt is in the session, and seen by that proof.
    fn have_entered(&mut self, mut ids: Vec<MessageId>, proof: Via) {
        // The session was reminded of these alone.
        let reminded: Vec<_> = ids.extract_if(.., |id| self.shown.holds(id)).collect();
        self.in_flight.remove(&reminded);
        for (via, ids) in self.by_way(ids) {
            let notes = self.in_flight.remove(&ids);
            self.shown.keep(notes);
            self.shown.and_seen(&ids);
            self.receipt(ids, Stage::InSession, via, Some(proof));
        }
    }

    /// Returns messages that are under way, by the names of their ways in receipts.
    fn by_way(&self, ids: Vec<MessageId>) -> Vec<(Via, Vec<MessageId>)> {
        let mut by_way: Vec<(Via, Vec<MessageId>)> = Vec::new();
        for id in ids {
            let Some(via) = self.in_flight.flight(&id).map(|flight| flight.via) else { continue };
            match by_way.iter_mut().find(|(known, _)| *known == via) {
                Some((_, ids)) => ids.push(id),
                None => by_way.push((via, vec![id])),
            }
        }
        by_way
    }

    /// The model's service failed: nobody may be there to begin the turn again, so the message that made it is pushed again later.
    fn on_failure(&mut self, now: Instant) {
        let prompted = self.prompted(|_| true);
        let ways: Vec<Way> = prompted.iter().filter_map(|id| self.in_flight.flight(id)?.way).collect();
        self.doubt(prompted, now);
        self.stalled.extend(self.shown.unanswered());
        if let Some(way) = ways.first() {
            self.ways.failed(*way, now);
        }
    }

    fn on_stop(&mut self, event: &Event, now: Instant) -> Answer {
        let away = self.turn.is_away();
        if self.turn.can_be_kept() {
            // Context keeps a turn from ending as a refusal to end does, and is put before the model once, not twice.
            let kept = self.give(event, |note| presses(note, away), now);
            if kept.offer.is_some() {
                return kept;
            }
        }
        self.turn.ends();
        self.stalled.clear();
        Answer::default()
    }

    /// Adds the wanted ones of the free messages to the session's context, if there are any.
    fn give(&mut self, event: &Event, wanted: impl Fn(&Note) -> bool, now: Instant) -> Answer {
        let notes = self.in_flight.free(wanted);
        let tells_name = !self.knows_name && self.generation > 0 && event.name != Name::Stop;
        let named = (tells_name && self.agent != self.wished)
            .then(|| format!("{MARK} This session is {} here: another one is {}.\n", self.agent, self.wished));
        if notes.is_empty() && named.is_none() {
            return Answer::default();
        }
        self.prints += 1;
        if named.is_some() {
            self.naming = Some(self.prints);
        }
        let mut text = named.unwrap_or_default();
        if !notes.is_empty() {
            let shown = render::text(&self.agent, &notes, self.in_flight.len());
            let ids: Vec<_> = notes[..shown.held].iter().map(|note| note.id.clone()).collect();
            text += &shown.text;
            let flight = Flight::by_hook(self.prints, answer::via(event.name), event.prompt_id.clone(), now);
            self.in_flight.launch(&ids, &flight);
        }
        Answer { stdout: answer::context(event.name, &text), offer: Some(self.prints), ..Answer::default() }
    }

    /// Takes back what a hook, a result or a prompt was to hold that never came to anything.
    fn release(&mut self, now: Instant) {
        let unwritten = self.in_flight.overdue(now, |channel| channel == Channel::Result);
        self.in_flight.free_again(&unwritten);
        let may_be_shown = |channel| matches!(channel, Channel::Hook(_) | Channel::Prompt | Channel::Unsure);
        let unproven = self.in_flight.overdue(now, may_be_shown);
        self.in_flight.repeat(&unproven);
    }

    /// Returns when something is taken back next.
    fn next_release(&self) -> Option<Instant> {
        self.in_flight.next_deadline(|channel| channel != Channel::Push)
    }

    fn say(&mut self, ids: Vec<MessageId>, stage: Stage, via: Via) {
        self.receipt(ids, stage, via, None);
    }

    fn receipt(&mut self, message_ids: Vec<MessageId>, stage: Stage, via: Via, seen_via: Option<Via>) {
        if !message_ids.is_empty() {
            self.receipts.push(Progress { message_ids, stage, via, seen_via, context: self.context });
        }
    }
}

fn presses(note: &Note, away: bool) -> bool {
    if away { note.priority == Priority::Urgent } else { note.presses() }
}

/// Returns whether an event may say that the session is in another conversation.
fn decides_session(event: &Event) -> bool {
    event.agent_id.is_none() && matches!(event.name, Name::SessionStart | Name::UserPromptSubmit)
}
