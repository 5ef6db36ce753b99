//! The messages that are on this host and not in the session, and the one way by which each is under way there.
//!
//! This table is the only place that knows it. A message without a flight is free; its flight ends when the message is in
//! the session, when its way gave it up, or at its deadline.

use std::collections::HashSet;
use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::limits::INBOX_MAX;
use c3po_shared::receipt::Via;
use c3po_shared::vocabulary::Priority;
use tokio::time::Instant;

use super::note::Note;
use super::ways::Way;

/// How many messages the table holds: an inbox full of mail, and those that rewinds bring back, which no store delivers again.
const HELD_MAX: usize = 2 * INBOX_MAX;
/// How long a hook may take to print. It ends by itself before that.
const PRINT_MAX: Duration = Duration::from_secs(5);
/// How long a result may be on its way to the client.
const WRITE_MAX: Duration = Duration::from_secs(5);
/// How long a session may take to read on in a message that comes in parts.
const PARTS_MAX: Duration = Duration::from_secs(300);
/// How long reading the client's transcript may take.
pub(super) const READ_MAX: Duration = Duration::from_secs(10);
/// How long a turn may take to its first step. A prompt that a person took back never leads to one.
///
/// A client's own tools end before that.
pub(super) const STEP_MAX: Duration = Duration::from_secs(900);

/// The channel by which a message is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// The hook that was given it under that number, and has not printed it yet.
    Hook(u64),
    /// The push under way, which no prompt shows yet.
    Push,
    /// A prompt, of whose turn there was no step yet. It may be refused by another hook, or taken back by a person.
    Prompt,
    /// The result of a tool that is being written.
    Result,
    /// Results that hold it part by part, and have not come to its end.
    Parts,
    /// The conversation, as far as is known: the client's transcript has to show it.
    Unsure,
}

/// Returns whether that is the result of a tool.
pub(super) fn is_of_result(via: Via) -> bool {
    matches!(
        via,
        Via::WaitForMessage | Via::GetMessages | Via::GetThread | Via::AskUser
    )
}

/// How one message is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) channel: Channel,
    /// The name of the way in receipts.
    pub(super) via: Via,
    /// The way of the push that made the prompt, if one did.
    pub(super) way: Option<Way>,
    /// The client's name for the turn, where it is known.
    pub(super) turn: Option<String>,
    /// The use of the tool in whose result the message came, where that is to be proven.
    pub(super) tool_use: Option<String>,
    /// Whether a step of that turn has followed.
    pub(super) has_stepped: bool,
    /// When the way counts as failed.
    pub(super) until: Instant,
}

impl Flight {
    /// A hook of that turn was given the message.
    pub(super) fn by_hook(number: u64, via: Via, turn: Option<String>, now: Instant) -> Self {
        Self {
            channel: Channel::Hook(number),
            via,
            way: None,
            turn,
            tool_use: None,
            has_stepped: false,
            until: now + PRINT_MAX,
        }
    }

    /// A push was made, which has to show by then.
    pub(super) fn by_push(way: Way, until: Instant) -> Self {
        Self {
            channel: Channel::Push,
            via: way.via(),
            way: Some(way),
            turn: None,
            tool_use: None,
            has_stepped: false,
            until,
        }
    }

    /// The message stands with the prompt of that turn.
    pub(super) fn by_prompt(
        via: Via,
        way: Option<Way>,
        turn: Option<String>,
        now: Instant,
    ) -> Self {
        Self {
            channel: Channel::Prompt,
            via,
            way,
            turn,
            tool_use: None,
            has_stepped: false,
            until: now + STEP_MAX,
        }
    }

    /// The message may stand in the conversation by that way.
    pub(super) fn unsure(via: Via, turn: Option<String>, now: Instant) -> Self {
        Self {
            channel: Channel::Unsure,
            via,
            way: None,
            turn,
            tool_use: None,
            has_stepped: false,
            until: now + READ_MAX,
        }
    }

    /// The message may stand in the conversation by the result of that use of a tool.
    pub(super) fn of_use(via: Via, tool_use: Option<String>, now: Instant) -> Self {
        Self {
            tool_use,
            ..Self::unsure(via, None, now)
        }
    }

    /// Returns whether it is open that the message comes at all: a push may show yet, and a prompt may have been taken back,
    /// unless it began one of these turns.
    fn is_open(&self, turns: &[Option<&str>]) -> bool {
        match self.channel {
            Channel::Push => true,
            Channel::Prompt => !turns.contains(&self.turn.as_deref()),
            Channel::Unsure => self.turn.is_none() || !turns.contains(&self.turn.as_deref()),
            Channel::Hook(_) | Channel::Result | Channel::Parts => false,
        }
    }

    /// Returns whether the result of a tool brought the message, to whomever.
    pub(super) fn was_result(&self) -> bool {
        self.turn.is_none() && is_of_result(self.via)
    }

    /// Results hold the message part by part, and its end has not been in one.
    pub(super) fn in_parts(now: Instant) -> Self {
        Self {
            channel: Channel::Parts,
            until: now + PARTS_MAX,
            ..Self::by_result(now)
        }
    }

    /// A result that is about to be written holds the message.
    pub(super) fn by_result(now: Instant) -> Self {
        Self {
            channel: Channel::Result,
            via: Via::WaitForMessage,
            way: None,
            turn: None,
            tool_use: None,
            has_stepped: false,
            until: now + WRITE_MAX,
        }
    }
}

/// One message. Its text may not have come yet: a wait may return a message before it is delivered to this host.
#[derive(Debug)]
struct Held {
    id: MessageId,
    note: Option<Note>,
    flight: Option<Flight>,
    /// Whether the session, or a subagent of it, may have been shown it before its text came.
    is_repeated: bool,
    /// Whether another way than a push offered it, and the conversation may have it from there.
    is_offered: bool,
}

impl Held {
    fn of(id: MessageId) -> Self {
        Self {
            id,
            note: None,
            flight: None,
            is_repeated: false,
            is_offered: false,
        }
    }
}

/// The table, in the order in which the messages came.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    held: Vec<Held>,
    /// Messages given to hooks and pushes since the last request for them.
    launched: Vec<MessageId>,
}

impl InFlight {
    /// Adds a message once.
    pub(super) fn add(&mut self, mut note: Note) {
        match self.held.iter_mut().find(|held| held.id == note.id) {
            Some(Held {
                note: Some(known), ..
            }) => known.repeated |= note.repeated,
            Some(held) => {
                note.repeated |= held.is_repeated;
                held.note = Some(note);
            }
            None => {
                let held = Held::of(note.id.clone());
                self.held.push(Held {
                    note: Some(note),
                    ..held
                });
            }
        }
        if self.held.len() > HELD_MAX {
            // The oldest was settled elsewhere.
            self.held.remove(0);
        }
    }

    /// Returns the free messages: the wanted ones, and earlier ones of their senders. They are sorted by priority, then by
    /// arrival. Until it is known whether a message arrived, later messages of its sender wait, except urgent ones. `turns`
    /// are the ones whose prompts are in the session.
    pub(super) fn free(
        &self,
        turns: &[Option<&str>],
        wanted: impl Fn(&Note) -> bool,
    ) -> Vec<&Note> {
        let (mut free, mut held_up) = (Vec::new(), HashSet::new());
        for held in &self.held {
            let Some(note) = &held.note else { continue };
            match &held.flight {
                None if note.priority == Priority::Urgent || !held_up.contains(&note.from) => {
                    free.push(note)
                }
                Some(flight) if flight.is_open(turns) => {
                    held_up.insert(&note.from);
                }
                _ => {}
            }
        }
        let (mut notes, mut senders) = (Vec::new(), HashSet::new());
        for note in free.into_iter().rev() {
            if wanted(note) || senders.contains(&note.from) {
                senders.insert(&note.from);
                notes.push(note);
            }
        }
        notes.reverse();
        notes.sort_by_key(|note| std::cmp::Reverse(note.priority));
        notes
    }

    /// Returns how many messages are not in the session.
    pub(super) fn len(&self) -> usize {
        self.held.iter().filter(|held| held.note.is_some()).count()
    }

    /// Returns how the message is under way, if it is.
    pub(super) fn flight(&self, id: &MessageId) -> Option<&Flight> {
        self.held
            .iter()
            .find(|held| held.id == *id)?
            .flight
            .as_ref()
    }

    /// Returns whether the message is in the table.
    pub(super) fn holds(&self, id: &MessageId) -> bool {
        self.held.iter().any(|held| held.id == *id)
    }

    /// Sends messages on their way, in place of any other. One whose text has not come is in the table from now on.
    pub(super) fn launch(&mut self, ids: &[MessageId], flight: &Flight) {
        if matches!(flight.channel, Channel::Hook(_) | Channel::Push) {
            self.launched.extend_from_slice(ids);
        }
        let offers = !matches!(flight.channel, Channel::Push | Channel::Unsure);
        for id in ids {
            let at = self.held.iter().position(|held| held.id == *id);
            let at = at.unwrap_or_else(|| {
                self.held.push(Held::of(id.clone()));
                self.held.len() - 1
            });
            self.held[at].flight = Some(flight.clone());
            self.held[at].is_offered |= offers;
        }
    }

    /// Returns whether another way than a push offered it, and the conversation may have it from there.
    pub(super) fn is_offered(&self, id: &MessageId) -> bool {
        self.held
            .iter()
            .any(|held| held.id == *id && held.is_offered)
    }

    /// Returns whether the session was shown the message before, and is to be shown it again.
    pub(super) fn comes_again(&self, id: &MessageId) -> bool {
        let mut notes = self.held.iter().filter_map(|held| held.note.as_ref());
        notes.any(|note| note.id == *id && note.repeated)
    }

    /// The conversation lacks these.
    pub(super) fn are_not_there(&mut self, ids: &[MessageId]) {
        for held in self.held.iter_mut().filter(|held| ids.contains(&held.id)) {
            held.is_offered = false;
        }
    }

    /// Takes the messages that were given to hooks and pushes.
    pub(super) fn take_launched(&mut self) -> Vec<MessageId> {
        std::mem::take(&mut self.launched)
    }

    /// Returns the messages whose flight is one of these.
    pub(super) fn under_way(&self, which: impl Fn(&Flight) -> bool) -> Vec<MessageId> {
        let under_way = self
            .held
            .iter()
            .filter(|held| held.flight.as_ref().is_some_and(&which));
        under_way.map(|held| held.id.clone()).collect()
    }

    /// Frees messages that their way did not bring to the session.
    pub(super) fn free_again(&mut self, ids: &[MessageId]) {
        for held in self.held.iter_mut().filter(|held| ids.contains(&held.id)) {
            held.flight = None;
        }
        self.held
            .retain(|held| held.note.is_some() || held.flight.is_some() || held.is_repeated);
    }

    /// Frees messages that the session may have been shown.
    pub(super) fn repeat(&mut self, ids: &[MessageId]) {
        for held in self.held.iter_mut().filter(|held| ids.contains(&held.id)) {
            match &mut held.note {
                Some(note) => note.repeated = true,
                None => held.is_repeated = true,
            }
        }
        self.free_again(ids);
    }

    /// Returns which of these the session, or a subagent of it, may have been shown before, whole or in part. A push may stand
    /// in the client's queue, and the hook that would block it may be too late.
    pub(super) fn repeated(&self, ids: &[MessageId]) -> Vec<MessageId> {
        let was_shown = |held: &Held| {
            let is_there = |flight: &Flight| flight.channel != Channel::Result;
            let is_marked = held
                .note
                .as_ref()
                .map_or(held.is_repeated, |note| note.repeated);
            is_marked || held.flight.as_ref().is_some_and(is_there)
        };
        let repeated = self
            .held
            .iter()
            .filter(|held| ids.contains(&held.id) && was_shown(held));
        repeated.map(|held| held.id.clone()).collect()
    }

    /// Empties the table. Returns the messages that the session, or a subagent of it, may have been shown.
    pub(super) fn forget(&mut self) -> Vec<MessageId> {
        let ids: Vec<_> = self.held.iter().map(|held| held.id.clone()).collect();
        let repeated = self.repeated(&ids);
        self.held.clear();
        repeated
    }

    /// Takes messages that are in the session out of the table. Returns their texts, where they had come.
    pub(super) fn remove(&mut self, ids: &[MessageId]) -> Vec<Note> {
        self.held
            .extract_if(.., |held| ids.contains(&held.id))
            .filter_map(|held| held.note)
            .collect()
    }

    /// The model took a step of that turn.
    pub(super) fn step_of(&mut self, turn: Option<&str>) {
        let flights = self.held.iter_mut().filter_map(|held| held.flight.as_mut());
        for flight in flights.filter(|flight| turn.is_some() && flight.turn.as_deref() == turn) {
            flight.has_stepped = true;
        }
    }

    /// The session shows that it goes on: a prompt may lead to a step yet.
    pub(super) fn goes_on(&mut self, now: Instant) {
        let flights = self.held.iter_mut().filter_map(|held| held.flight.as_mut());
        for flight in flights.filter(|flight| flight.channel == Channel::Prompt) {
            flight.until = now + STEP_MAX;
        }
    }

    /// Gives the push under way another deadline.
    pub(super) fn push_until(&mut self, until: Instant) {
        let flights = self.held.iter_mut().filter_map(|held| held.flight.as_mut());
        for flight in flights.filter(|flight| flight.channel == Channel::Push) {
            flight.until = until;
        }
    }

    /// Returns the messages on that kind of way whose time is over.
    pub(super) fn overdue(&self, now: Instant, which: impl Fn(Channel) -> bool) -> Vec<MessageId> {
        self.under_way(|flight| flight.until <= now && which(flight.channel))
    }

    /// Returns when the next flight, or the next one on that kind of way, is overdue.
    pub(super) fn next_deadline(&self, which: impl Fn(Channel) -> bool) -> Option<Instant> {
        let flights = self.held.iter().filter_map(|held| held.flight.as_ref());
        flights
            .filter(|flight| which(flight.channel))
            .map(|flight| flight.until)
            .min()
    }

    /// Forgets messages whose time is over, unless they are under way.
    pub(super) fn expire(&mut self, now: Instant) {
        let lasts = |held: &Held| {
            held.note
                .as_ref()
                .map_or(held.is_repeated, |note| note.expires_at > now)
        };
        self.held
            .retain(|held| held.flight.is_some() || lasts(held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::testing::{id, note};

    #[test]
    fn messages_that_a_rewind_brings_back_stay_beside_a_full_inbox() {
        let mut table = InFlight::default();
        let inbox = u32::try_from(INBOX_MAX).unwrap();
        for number in 1..=inbox + 200 {
            table.add(note(number, "news"));
        }
        assert!(table.holds(&id(1)));
        assert_eq!(table.len(), INBOX_MAX + 200);
    }
}
