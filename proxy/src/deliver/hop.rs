//! Every decision about the last hop, as pure as it can be: events and messages in, texts and receipts out.
//!
//! One message goes by one way at a time, and no stage of a receipt is said before its evidence is here.

use std::collections::VecDeque;
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Progress, Stage, Via};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Priority, State};
use c3po_shared::wire::SessionChange;
use tokio::time::Instant;

use super::entering::{Entering, Prompted};
use super::note::Note;
use super::offers::Offers;
use super::proof::{Shown, is_step};
use super::push::{CONFIRM, CONFIRM_BUSY, InboxSocket, Push, Pushes, Todo};
use super::turn::Turn;
use super::waiting::{Claim, Waiting};
use super::ways::{Way, Ways};
use super::writing::Writing;
use super::{answer, render};
use crate::local::MARK;
use crate::local::protocol::{Answer, Event, Name};

/// After how long without any hook a second tool call shows that the session has none.
const HOOKS_DUE: Duration = Duration::from_secs(10);
/// How many conversations that the session left are remembered: their hooks are late by seconds at the most.
const LEFT_MAX: usize = 8;

/// What is known of one session, and what follows from it.
#[derive(Debug)]
pub(super) struct Hop {
    wished: AgentId,
    agent: AgentId,
    generation: u64,
    /// Whether the session was told that it has another name than the wished one.
    knows_name: bool,
    /// Whether hooks are to be expected: then a tool call alone proves nothing.
    expects_hooks: bool,
    /// When a tool was called first without any hook before it.
    called: Option<Instant>,
    session_id: Option<String>,
    /// The conversations before this one.
    left: VecDeque<String>,
    context: u64,
    waiting: Waiting,
    writing: Writing,
    shown: Shown,
    turn: Turn,
    ways: Ways,
    offers: Offers,
    entering: Entering,
    pushes: Pushes,
    receipts: Vec<Progress>,
}

impl Hop {
    pub(super) fn new(wished: AgentId, inbox: Option<InboxSocket>, channel: bool, expects_hooks: bool) -> Self {
        Self {
            agent: wished.clone(),
            wished,
            generation: 0,
            knows_name: false,
            expects_hooks,
            called: None,
            session_id: None,
            left: VecDeque::new(),
            context: 0,
            waiting: Waiting::default(),
            writing: Writing::default(),
            shown: Shown::default(),
            turn: Turn::new(),
            ways: Ways::default(),
            offers: Offers::default(),
            entering: Entering::default(),
            pushes: Pushes::new(inbox, channel),
            receipts: Vec::new(),
        }
    }

    /// The link is up, or the session took another name: then the generation is 0, for it is not known yet.
    ///
    /// Another session of an agent, or another agent, has been shown nothing.
    pub(super) fn begins(&mut self, agent: &AgentId, generation: u64) {
        let renamed = generation == 0;
        let is_same = self.agent == *agent && (renamed || self.generation == 0 || self.generation == generation);
        if !is_same {
            self.waiting = Waiting::default();
            self.entering = Entering::default();
            self.forget_context();
        }
        if renamed {
            self.wished = agent.clone();
        }
        self.agent = agent.clone();
        self.generation = generation;
    }

    /// Messages have come to this host.
    pub(super) fn arrived(&mut self, messages: Vec<Message>) {
        for message in messages {
            if self.shown.holds(&message.id) {
                continue;
            }
            let mut note = Note::from(message);
            // The store learns of it by a receipt, which may come there after the new context.
            note.repeated |= self.shown.held_before(&note.id);
            let id = note.id.clone();
            self.waiting.add(note);
            if self.writing.holds(&id) {
                self.waiting.claim(&[id], Claim::Tool);
            }
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
        // One that comes in the middle of a turn may wait in the client, and be taken back there.
        let begins = event.name == Name::UserPromptSubmit && !self.turn.is_busy();
        if let Some(veto) = self.veto(event) {
            return veto;
        }
        self.turn.on(event, now);
        let seen = self.shown.proven_by(event);
        self.say(seen, Stage::Seen, Via::Hook);
        if event.name != Name::UserPromptSubmit {
            self.entering.goes_on(now);
        }
        if event.agent_id.is_some() || event.name == Name::SubagentStop {
            return Answer::default();
        }
        if is_step(event) {
            self.enter(event.prompt_id.as_deref());
        }
        self.pushes.on(event, now);
        match event.name {
            Name::SessionStart => self.give(event, |_| false),
            Name::UserPromptSubmit => self.on_prompt(event, begins, now),
            Name::PostToolBatch => self.give(event, |_| true),
            Name::Stop => self.on_stop(event),
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
        let Some(offer) = self.offers.take(number) else { return };
        self.knows_name |= offer.names;
        if offer.via == Via::UserPromptSubmit {
            self.waiting.claim(&offer.ids, Claim::Prompt);
            self.entering.add(offer.ids, offer.via, offer.turn, now);
            return;
        }
        self.waiting.remove(&offer.ids);
        self.shown.by_hook(&offer.ids);
        self.say(offer.ids, Stage::InSession, offer.via);
    }

    /// The hook went away: what it was given goes another way. It may have died after it printed.
    pub(super) fn not_printed(&mut self, number: u64) {
        if let Some(offer) = self.offers.take(number) {
            self.waiting.repeat(&offer.ids);
        }
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
        let goes_another_way =
            matches!(self.waiting.claim_of(id), Some(Some(Claim::Offer(_) | Claim::Push | Claim::Prompt)));
        if goes_another_way || self.shown.holds(id) {
            return false;
        }
        self.writing.add(id, now);
        self.waiting.claim(std::slice::from_ref(id), Claim::Tool);
        true
    }

    /// The result of a tool was written, with these messages in it.
    pub(super) fn presented(&mut self, ids: Vec<MessageId>, via: Via, tool_use: Option<String>) {
        self.writing.written(&ids);
        self.waiting.remove(&ids);
        self.shown.by_tool(&ids, tool_use);
        self.say(ids, Stage::InSession, via);
    }

    /// The model names these messages in a call: it has read them, by whichever way they were put before it.
    pub(super) fn named(&mut self, ids: &[MessageId]) {
        for (known, via) in self.entering.take_known(ids) {
            self.has_entered(known, via, Via::ToolCall);
        }
        let seen = self.shown.proven_by_knowing(ids);
        self.say(seen, Stage::Seen, Via::ToolCall);
    }

    /// The session dealt with these messages: it needs them no more.
    pub(super) fn settled(&mut self, ids: &[MessageId]) {
        self.waiting.remove(ids);
        // One that is on its way to this host comes too late.
        self.shown.and_seen(ids);
    }

    /// The session said itself what it does.
    pub(super) fn said_status(&mut self, state: State) {
        self.turn.said(state);
    }

    /// Returns what is to be done now for a session that nothing else reaches, or when to look again.
    pub(super) fn next(&mut self, now: Instant, clock: Timestamp) -> Todo {
        self.release(now);
        self.waiting.expire(clock);
        if let Some(given_up) = self.pushes.overdue(now) {
            self.ways.failed(given_up, now);
            self.waiting.release(Claim::Push);
        }
        if let Some(deadline) = self.pushes.under_way() {
            return Todo::Look(Some(deadline));
        }
        let away = self.turn.is_away();
        let pressing = self.waiting.free(|note| presses(note, away));
        let quiet_at = if self.turn.is_idle() { Some(now) } else { self.turn.silent_at() };
        match quiet_at {
            _ if pressing.is_empty() => return Todo::Look(self.next_release()),
            None => return Todo::Look(self.next_release()),
            Some(at) if at > now => return Todo::Look(Some(at)),
            Some(_) => {}
        }
        let Some(way) = self.ways.next(|way| self.pushes.has(way), now) else {
            return Todo::Look(self.ways.next_at(|way| self.pushes.has(way)));
        };
        let shown = render::text(&self.agent, &pressing, self.waiting.len());
        let ids: Vec<_> = pressing[..shown.held].iter().map(|note| note.id.clone()).collect();
        self.waiting.claim(&ids, Claim::Push);
        let time = if self.turn.is_idle() { CONFIRM } else { CONFIRM_BUSY };
        let push = Push::new(way, ids, self.pushes.told_apart(shown.text), now + time);
        self.pushes.begin(push)
    }

    /// A push could not even be made.
    pub(super) fn not_pushed(&mut self, way: Way, now: Instant) {
        self.pushes.abandon();
        self.ways.failed(way, now);
        self.waiting.release(Claim::Push);
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
        self.waiting.len()
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
        for prompted in self.entering.take() {
            self.waiting.repeat(&prompted.ids);
        }
    }

    /// What came with a prompt survives a compaction, and nothing else does.
    fn forget_context(&mut self) {
        self.knows_name = false;
        self.shown.forget();
        self.offers.clear();
        self.writing.clear();
        self.waiting.release_all_but(Claim::Prompt);
        self.pushes.forget();
    }

    /// Returns the answer that keeps a push out whose messages went another way meanwhile: one that was given up and
    /// comes after all, or one whose messages were all read.
    fn veto(&mut self, event: &Event) -> Option<Answer> {
        let prompt = event.prompt.as_deref().filter(|_| event.name == Name::UserPromptSubmit)?;
        if self.pushes.is_under_way_as(prompt) {
            let is_gone = |id: &MessageId| self.waiting.claim_of(id).is_none();
            let read = self.pushes.confirmed_if(prompt, |push| push.ids.iter().all(is_gone))?;
            self.ways.worked(read.way);
        } else {
            let is_elsewhere = |id: &MessageId| self.waiting.claim_of(id) != Some(None);
            self.pushes.take_late(prompt, |late| late.ids.iter().any(is_elsewhere))?;
        }
        Some(Answer { stdout: answer::refused_prompt(), ..Answer::default() })
    }

    fn on_prompt(&mut self, event: &Event, begins: bool, now: Instant) -> Answer {
        if let Some(prompt) = &event.prompt {
            let confirmed = self.pushes.confirmed_if(prompt, |_| true);
            if let Some(push) = &confirmed {
                self.ways.worked(push.way);
            }
            if let Some(push) = confirmed.or_else(|| self.pushes.take_late(prompt, |_| true)) {
                self.waiting.claim(&push.ids, Claim::Prompt);
                self.entering.add_pushed(push.ids, push.way, event.prompt_id.clone(), now);
            }
        }
        if begins { self.give(event, |_| true) } else { Answer::default() }
    }

    /// The model did something in that turn: what came with its prompt is in the session, and seen.
    fn enter(&mut self, turn: Option<&str>) {
        let (entered, led_nowhere) = self.entering.decided_by(turn);
        for Prompted { ids, via, .. } in entered {
            self.has_entered(ids, via, Via::Hook);
        }
        for prompted in led_nowhere {
            self.waiting.repeat(&prompted.ids);
        }
    }

    /// What came with a prompt by that way is in the session, and seen by that proof.
    fn has_entered(&mut self, ids: Vec<MessageId>, via: Via, proof: Via) {
        self.waiting.remove(&ids);
        self.shown.and_seen(&ids);
        self.receipt(ids, Stage::InSession, via, Some(proof));
    }

    /// The model's service failed: nobody may be there to begin the turn again, so what made it is pushed again later.
    fn on_failure(&mut self, now: Instant) {
        for prompted in self.entering.take() {
            self.waiting.repeat(&prompted.ids);
            if let Some(way) = prompted.way {
                self.ways.failed(way, now);
            }
        }
    }

    fn on_stop(&mut self, event: &Event) -> Answer {
        let away = self.turn.is_away();
        if self.turn.can_be_kept() {
            // Context keeps a turn from ending as a refusal to end does, and is put before the model once, not twice.
            let kept = self.give(event, |note| presses(note, away));
            if kept.offer.is_some() {
                return kept;
            }
        }
        self.turn.ends();
        Answer::default()
    }

    /// Adds what is wanted of the messages that wait to the session's context, if there is anything.
    fn give(&mut self, event: &Event, wanted: impl Fn(&Note) -> bool) -> Answer {
        let Some((text, offer)) = self.offer(event, wanted) else { return Answer::default() };
        Answer { stdout: answer::context(event.name, &text), offer: Some(offer), ..Answer::default() }
    }

    /// Returns a text for a hook, and the number under which the hook says that it printed it.
    fn offer(&mut self, event: &Event, wanted: impl Fn(&Note) -> bool) -> Option<(String, u64)> {
        let notes = self.waiting.free(wanted);
        let tells_name = !self.knows_name && self.generation > 0 && event.name != Name::Stop;
        let named = (tells_name && self.agent != self.wished)
            .then(|| format!("{MARK} This session is {} here: another one is {}.\n", self.agent, self.wished));
        if notes.is_empty() && named.is_none() {
            return None;
        }
        let (ids, text) = if notes.is_empty() {
            (Vec::new(), String::new())
        } else {
            let shown = render::text(&self.agent, &notes, self.waiting.len());
            (notes[..shown.held].iter().map(|note| note.id.clone()).collect(), shown.text)
        };
        let number = self.offers.next_number();
        self.waiting.claim(&ids, Claim::Offer(number));
        if let Some(oldest) = self.offers.add(ids, answer::via(event.name), event.prompt_id.clone(), named.is_some()) {
            self.waiting.repeat(&oldest.ids);
        }
        Some((named.unwrap_or_default() + &text, number))
    }

    /// Takes back what a result or a prompt was to hold that never came to anything.
    fn release(&mut self, now: Instant) {
        for id in self.writing.overdue(now) {
            self.waiting.release_one(&id);
        }
        for prompted in self.entering.overdue(now) {
            self.waiting.repeat(&prompted.ids);
        }
    }

    /// Returns when something is taken back next.
    fn next_release(&self) -> Option<Instant> {
        self.writing.next_at().into_iter().chain(self.entering.next_at()).min()
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
