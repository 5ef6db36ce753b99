//! Every decision about the last hop, as pure as it can be: events and messages in, texts and receipts out.
//!
//! One message goes by one way at a time, and no stage of a receipt is said before its evidence is here.

use std::collections::VecDeque;
use std::time::Duration;

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::Priority;
use tokio::time::Instant;

use super::note::Note;
use super::proof::{Shown, is_step};
use super::push::{InboxSocket, Push, Pushes, Todo};
use super::render;
use super::turn::Turn;
use super::waiting::{Claim, Waiting};
use super::ways::{Way, Ways};
use crate::link::Facts;
use crate::local::MARK;
use crate::local::protocol::{Answer, Event, Name};

/// How long the result of a tool may be on its way to the client.
const WRITING: Duration = Duration::from_secs(5);
/// How many offers may be under way: more hooks than that never run at once.
const OFFERS_MAX: usize = 64;
/// How many conversations that were left are remembered: hooks of older ones have long ended.
const LEFT_MAX: usize = 16;

/// A receipt to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) ids: Vec<MessageId>,
    pub(super) stage: Stage,
    pub(super) via: Via,
}

/// What a hook was given to print.
#[derive(Debug)]
struct Offer {
    number: u64,
    ids: Vec<MessageId>,
    via: Via,
    /// The turn that the hook is of.
    turn: Option<String>,
    /// Whether it says who the session is.
    names: bool,
}

/// What came with a prompt. Another hook may refuse the prompt, and a person may take it back: only a step of the
/// turn that it began tells.
#[derive(Debug)]
struct Entering {
    ids: Vec<MessageId>,
    via: Via,
    /// The turn; `None` where the client does not name turns.
    turn: Option<String>,
}

/// What is known of one session, and what follows from it.
#[derive(Debug)]
pub(super) struct Hop {
    wished: AgentId,
    agent: AgentId,
    generation: u64,
    /// Whether the session was told that it has another name than the wished one.
    named: bool,
    /// Whether hooks are to be expected: then a tool call alone proves nothing.
    expects_hooks: bool,
    session_id: Option<String>,
    /// Conversations that this process was in before, oldest first.
    left: VecDeque<String>,
    context: u64,
    waiting: Waiting,
    /// Messages that a tool's result holds, which is not written yet.
    being_written: Vec<(MessageId, Instant)>,
    shown: Shown,
    turn: Turn,
    ways: Ways,
    offers: VecDeque<Offer>,
    last_offer: u64,
    entering: Vec<Entering>,
    pushes: Pushes,
    said: Vec<Said>,
}

impl Hop {
    pub(super) fn new(wished: AgentId, inbox: Option<InboxSocket>, channel: bool, expects_hooks: bool) -> Self {
        Self {
            agent: wished.clone(),
            wished,
            generation: 0,
            named: false,
            expects_hooks,
            session_id: None,
            left: VecDeque::new(),
            context: 0,
            waiting: Waiting::default(),
            being_written: Vec::new(),
            shown: Shown::default(),
            turn: Turn::new(),
            ways: Ways::default(),
            offers: VecDeque::new(),
            last_offer: 0,
            entering: Vec::new(),
            pushes: Pushes::new(inbox, channel),
            said: Vec::new(),
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
            self.named = false;
            self.entering.clear();
            self.forget_context();
        }
        if renamed {
            self.wished = agent.clone();
        }
        self.agent = agent.clone();
        self.generation = generation;
    }

    /// Messages have come to this host.
    pub(super) fn arrived(&mut self, messages: Vec<Message>, now: Instant) {
        for message in messages {
            if self.shown.holds(&message.id) {
                continue;
            }
            let id = message.id.clone();
            let mut note = Note::from(message);
            note.repeated |= self.shown.held_earlier(&id);
            self.waiting.add(note);
            if self.is_being_written(&id, now) {
                self.waiting.claim(&[id], Claim::Tool);
            }
        }
    }

    /// The session answered messages or took them out of its inbox: it need not be told of them any more.
    pub(super) fn settled(&mut self, ids: &[MessageId]) {
        self.waiting.remove(ids);
    }

    /// A hook says what happens, and gets what it has to do.
    pub(super) fn heard(&mut self, event: &Event, now: Instant) -> Answer {
        self.ways.hooks = true;
        self.pushes.learn(event);
        if self.is_left(event) {
            return Answer::default();
        }
        self.follow_session(event);
        // One that comes in the middle of a turn may wait in the client, and be taken back there.
        let begins = event.name == Name::UserPromptSubmit && !self.turn.is_busy();
        if let Some(veto) = self.veto(event) {
            return veto;
        }
        self.turn.on(event, now);
        let seen = self.shown.proven_by(event);
        self.say(seen, Stage::Seen, Via::Hook);
        if event.agent_id.is_some() {
            return Answer::default();
        }
        if is_step(event.name) {
            self.enter(event.prompt_id.as_deref());
        }
        self.pushes.on(event, now);
        match event.name {
            Name::SessionStart => self.give(Via::SessionStart, event, |_| false),
            Name::UserPromptSubmit => self.on_prompt(event, begins),
            Name::PostToolBatch => self.give(Via::PostToolBatch, event, |_| true),
            Name::Stop => self.on_stop(event),
            _ => Answer::default(),
        }
    }

    /// The hook has flushed that offer: it is in the session, or comes with a prompt that is about to be.
    pub(super) fn printed(&mut self, number: u64) {
        let Some(offer) = self.take_offer(number) else { return };
        self.named |= offer.names;
        if offer.via == Via::UserPromptSubmit {
            self.comes_with_prompt(offer.ids, offer.via, offer.turn);
            return;
        }
        self.waiting.remove(&offer.ids);
        self.shown.by_hook(&offer.ids);
        self.say(offer.ids, Stage::InSession, offer.via);
    }

    /// The hook went away: what it was given goes another way.
    pub(super) fn not_printed(&mut self, number: u64) {
        self.take_offer(number);
        self.waiting.release(Claim::Offer(number));
    }

    /// A client without hooks calls a tool: its model went on after what it was shown.
    pub(super) fn tool_called(&mut self) {
        if !self.ways.hooks && !self.expects_hooks {
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
        self.being_written.retain(|(_, at)| now.duration_since(*at) < WRITING);
        self.being_written.push((id.clone(), now));
        self.waiting.claim(std::slice::from_ref(id), Claim::Tool);
        true
    }

    /// The result of a tool was written, with these messages in it.
    pub(super) fn presented(&mut self, ids: Vec<MessageId>, via: Via, tool_use: Option<String>) {
        self.being_written.retain(|(id, _)| !ids.contains(id));
        self.waiting.remove(&ids);
        self.shown.by_tool(&ids, tool_use);
        self.say(ids, Stage::InSession, via);
    }

    /// The session said itself what it does.
    pub(super) fn said_status(&mut self, state: c3po_shared::vocabulary::State) {
        self.turn.said(state);
    }

    /// Returns what is to be done now for a session that nothing else reaches, or when to look again.
    pub(super) fn next(&mut self, now: Instant, clock: Timestamp) -> Todo {
        self.release_unwritten(now);
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
            _ if pressing.is_empty() => return Todo::Look(None),
            None => return Todo::Look(None),
            Some(at) if at > now => return Todo::Look(Some(at)),
            Some(_) => {}
        }
        let Some(way) = self.ways.next(|way| self.pushes.has(way), now) else {
            return Todo::Look(self.ways.next_at(|way| self.pushes.has(way)));
        };
        let shown = render::text(&self.agent, &pressing, self.waiting.len());
        let ids: Vec<_> = pressing[..shown.held].iter().map(|note| note.id.clone()).collect();
        self.waiting.claim(&ids, Claim::Push);
        let push = Push::new(way, ids, self.pushes.told_apart(shown.text));
        self.pushes.begin(push, self.turn.is_idle(), now)
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

    /// Returns which context of the session it is.
    pub(super) fn context(&self) -> u64 {
        self.context
    }

    /// Returns what others are told of the session.
    pub(super) fn facts(&self) -> Facts {
        Facts {
            state: self.turn.state(),
            session_id: self.session_id.clone(),
            reach: self.ways.reach(),
            context: self.context,
        }
    }

    /// Returns how many messages wait on this host.
    pub(super) fn unread(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the receipts that are to be sent, in order.
    pub(super) fn take_said(&mut self) -> Vec<Said> {
        std::mem::take(&mut self.said)
    }

    /// Returns whether the event is of a conversation that was left, as by `/clear`: its hooks may still run. Only a
    /// beginning or a prompt leads back to it.
    fn is_left(&mut self, event: &Event) -> bool {
        let Some(named) = &event.session_id else { return false };
        let Some(at) = self.left.iter().position(|left| left == named) else { return false };
        if matches!(event.name, Name::SessionStart | Name::UserPromptSubmit) {
            self.left.remove(at);
            return false;
        }
        true
    }

    /// Notes which conversation the session is in. A new one holds nothing of what the one before was shown.
    fn follow_session(&mut self, event: &Event) {
        let other = match (&self.session_id, &event.session_id) {
            (Some(known), Some(named)) => known != named,
            _ => false,
        };
        // Several hooks say the same beginning at the same time: only a compaction keeps the name of the session.
        let compacted = event.name == Name::SessionStart && event.source.as_deref() == Some("compact");
        let ends = event.name == Name::SessionEnd;
        if let Some(named) = event.session_id.clone().filter(|_| !ends) {
            self.left.extend(self.session_id.replace(named).filter(|_| other));
            self.left.drain(..self.left.len().saturating_sub(LEFT_MAX));
        }
        if (other && !ends) || compacted {
            if !compacted {
                self.forget_prompt();
            }
            self.context += 1;
            self.forget_context();
        }
    }

    /// What came with a prompt survives a compaction, and nothing else does.
    fn forget_context(&mut self) {
        self.shown.next_context();
        self.offers.clear();
        self.being_written.clear();
        self.waiting.release_all_but(Claim::Prompt);
        self.pushes.forget();
    }

    fn forget_prompt(&mut self) {
        for Entering { ids, .. } in std::mem::take(&mut self.entering) {
            self.waiting.repeat(&ids);
        }
    }

    /// Returns the answer that keeps a push out which was given up and comes after all, where its messages went
    /// another way meanwhile.
    fn veto(&mut self, event: &Event) -> Option<Answer> {
        let prompt = event.prompt.as_deref().filter(|_| event.name == Name::UserPromptSubmit)?;
        let is_elsewhere = |id: &MessageId| self.waiting.claim_of(id) != Some(None);
        let late = self.pushes.take_late(prompt, |late| late.ids.iter().any(is_elsewhere));
        // One that is in time, while the session has fetched all of it itself.
        late.or_else(|| self.pushes.confirmed_by(prompt, |push| push.ids.iter().all(|id| self.shown.holds(id))))?;
        Some(Answer { stdout: refuse_prompt(), ..Answer::default() })
    }

    fn on_prompt(&mut self, event: &Event, begins: bool) -> Answer {
        if let Some(prompt) = &event.prompt {
            if let Some(push) = self.pushes.confirmed_by(prompt, |_| true) {
                self.ways.worked(push.way);
                self.comes_with_prompt(push.ids, push.way.via(), event.prompt_id.clone());
            } else if let Some(late) = self.pushes.take_late(prompt, |_| true) {
                self.comes_with_prompt(late.ids, late.way.via(), event.prompt_id.clone());
            }
        }
        if begins { self.give(Via::UserPromptSubmit, event, |_| true) } else { Answer::default() }
    }

    fn comes_with_prompt(&mut self, ids: Vec<MessageId>, via: Via, turn: Option<String>) {
        self.waiting.claim(&ids, Claim::Prompt);
        self.entering.push(Entering { ids, via, turn });
    }

    /// The model did something in that turn: what came with its prompt is in the session, and seen.
    fn enter(&mut self, turn: Option<&str>) {
        for Entering { ids, via, turn: own } in std::mem::take(&mut self.entering) {
            let led_to_it = own.is_none() || turn.is_none() || own.as_deref() == turn;
            if led_to_it {
                self.waiting.remove(&ids);
                self.shown.and_seen(&ids);
                self.say(ids.clone(), Stage::InSession, via);
                self.say(ids, Stage::Seen, Via::Hook);
            } else {
                self.waiting.repeat(&ids);
            }
        }
    }

    fn on_stop(&mut self, event: &Event) -> Answer {
        let away = self.turn.is_away();
        if self.turn.can_be_kept() {
            // Context keeps a turn from ending as a refusal to end does, and is put before the model once, not twice.
            let kept = self.give(Via::Stop, event, |note| presses(note, away));
            if kept.offer.is_some() {
                return kept;
            }
        }
        self.turn.ends();
        Answer::default()
    }

    /// Adds what is wanted of the messages that wait to the session's context, if there is anything.
    fn give(&mut self, via: Via, event: &Event, wanted: impl Fn(&Note) -> bool) -> Answer {
        let Some((text, offer)) = self.offer(via, event, wanted) else { return Answer::default() };
        Answer { stdout: context(via, &text), offer: Some(offer), ..Answer::default() }
    }

    /// Returns a text for a hook, and the number under which the hook says that it printed it.
    fn offer(&mut self, via: Via, event: &Event, wanted: impl Fn(&Note) -> bool) -> Option<(String, u64)> {
        let notes = self.waiting.free(wanted);
        let named = (self.agent != self.wished && !self.named && self.generation > 0 && via != Via::Stop)
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
        self.last_offer += 1;
        let number = self.last_offer;
        self.waiting.claim(&ids, Claim::Offer(number));
        let turn = event.prompt_id.clone();
        self.offers.push_back(Offer { number, ids, via, turn, names: named.is_some() });
        if self.offers.len() > OFFERS_MAX
            && let Some(oldest) = self.offers.pop_front()
        {
            self.waiting.release(Claim::Offer(oldest.number));
        }
        Some((named.unwrap_or_default() + &text, number))
    }

    fn take_offer(&mut self, number: u64) -> Option<Offer> {
        let at = self.offers.iter().position(|offer| offer.number == number)?;
        self.offers.remove(at)
    }

    fn is_being_written(&self, id: &MessageId, now: Instant) -> bool {
        self.being_written.iter().any(|(written, at)| written == id && now.duration_since(*at) < WRITING)
    }

    /// Takes back what a tool's result was to hold that never was written.
    fn release_unwritten(&mut self, now: Instant) {
        let is_late = |at: &Instant| now.duration_since(*at) >= WRITING;
        for (id, _) in self.being_written.extract_if(.., |(_, at)| is_late(at)) {
            self.waiting.release_one(&id);
        }
    }

    fn say(&mut self, ids: Vec<MessageId>, stage: Stage, via: Via) {
        if !ids.is_empty() {
            self.said.push(Said { ids, stage, via });
        }
    }
}

fn presses(note: &Note, away: bool) -> bool {
    if away { note.priority == Priority::Urgent } else { note.presses() }
}

/// Returns what keeps a prompt from the model without showing it to a person.
fn refuse_prompt() -> String {
    serde_json::json!({
        "decision": "block",
        "reason": "c3po: the session has this message already",
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "suppressOriginalPrompt": true},
    })
    .to_string()
}

/// Returns what adds a text to the context of a session.
fn context(via: Via, text: &str) -> String {
    let event = match via {
        Via::SessionStart => "SessionStart",
        Via::UserPromptSubmit => "UserPromptSubmit",
        Via::Stop => "Stop",
        _ => "PostToolBatch",
    };
    serde_json::json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}).to_string()
}
