//! The messages that are on this host and not in the session, and by which way each is being put there.

use c3po_shared::ids::MessageId;
use c3po_shared::limits::INBOX_MAX;
use c3po_shared::time::Timestamp;

use super::note::Note;

/// By which way a message is under way into the session. It goes by one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Claim {
    /// By a hook that was given it to print.
    Offer(u64),
    /// By a push that is not confirmed yet.
    Push,
    /// By a prompt that has not led to anything yet.
    Prompt,
    /// By the result of a tool that is being written.
    Tool,
}

#[derive(Debug)]
struct Held {
    note: Note,
    claim: Option<Claim>,
}

/// The messages that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    held: Vec<Held>,
}

impl Waiting {
    /// Adds a message once.
    pub(super) fn add(&mut self, note: Note) {
        match self.held.iter_mut().find(|held| held.note.id == note.id) {
            // The store does not know what only this host knows.
            Some(held) => held.note.repeated |= note.repeated,
            None => self.held.push(Held { note, claim: None }),
        }
        if self.held.len() > INBOX_MAX {
            // The store holds no more than that either: what came first was settled elsewhere.
            self.held.remove(0);
        }
    }

    /// Returns what is free to be put into the session: urgent first, else as it came.
    pub(super) fn free(&self, wanted: impl Fn(&Note) -> bool) -> Vec<&Note> {
        let free = self.held.iter().filter(|held| held.claim.is_none() && wanted(&held.note));
        let mut notes: Vec<_> = free.map(|held| &held.note).collect();
        notes.sort_by_key(|note| std::cmp::Reverse(note.priority));
        notes
    }

    /// Returns how many messages wait in all.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns whether the message waits, and what has it if anything has.
    pub(super) fn claim_of(&self, id: &MessageId) -> Option<Option<Claim>> {
        self.held.iter().find(|held| held.note.id == *id).map(|held| held.claim)
    }

    /// Gives messages to a way.
    pub(super) fn claim(&mut self, ids: &[MessageId], claim: Claim) {
        for held in self.held.iter_mut().filter(|held| ids.contains(&held.note.id)) {
            held.claim = Some(claim);
        }
    }

    /// Takes messages back from a way that did not get them there.
    pub(super) fn release(&mut self, claim: Claim) {
        for held in self.held.iter_mut().filter(|held| held.claim == Some(claim)) {
            held.claim = None;
        }
    }

    /// Takes one message back, whatever has it.
    pub(super) fn release_one(&mut self, id: &MessageId) {
        for held in self.held.iter_mut().filter(|held| held.note.id == *id) {
            held.claim = None;
        }
    }

    /// Takes messages back that the session may have already.
    pub(super) fn repeat(&mut self, ids: &[MessageId]) {
        for held in self.held.iter_mut().filter(|held| ids.contains(&held.note.id)) {
            held.claim = None;
            held.note.repeated = true;
        }
    }

    /// Nothing is under way any more, but by that way.
    pub(super) fn release_all_but(&mut self, claim: Claim) {
        for held in self.held.iter_mut().filter(|held| held.claim != Some(claim)) {
            held.claim = None;
        }
    }

    /// Forgets messages that are in the session.
    pub(super) fn remove(&mut self, ids: &[MessageId]) {
        self.held.retain(|held| !ids.contains(&held.note.id));
    }

    /// Forgets messages whose time is over, unless they are under way.
    pub(super) fn expire(&mut self, now: Timestamp) {
        self.held.retain(|held| held.claim.is_some() || held.note.expires_at > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deliver::testing::{id, note};
    use c3po_shared::vocabulary::Priority;

    fn numbers(waiting: &Waiting) -> Vec<MessageId> {
        waiting.free(|_| true).into_iter().map(|note| note.id.clone()).collect()
    }

    #[test]
    fn urgent_ones_come_first_else_they_keep_their_order() {
        let mut waiting = Waiting::default();
        for number in 1..=3 {
            waiting.add(note(number, "x"));
        }
        waiting.add(Note { priority: Priority::Urgent, ..note(4, "x") });
        waiting.add(Note { priority: Priority::Low, ..note(5, "x") });
        assert_eq!(numbers(&waiting), [id(4), id(1), id(2), id(3), id(5)]);
    }

    #[test]
    fn one_way_at_a_time_has_a_message() {
        let mut waiting = Waiting::default();
        waiting.add(note(1, "x"));
        waiting.add(note(2, "x"));
        waiting.claim(&[id(1)], Claim::Offer(7));
        waiting.add(note(1, "x"));
        assert_eq!((numbers(&waiting), waiting.claim_of(&id(1))), (vec![id(2)], Some(Some(Claim::Offer(7)))));
        waiting.release(Claim::Push);
        assert_eq!(numbers(&waiting), [id(2)]);
        waiting.release(Claim::Offer(7));
        assert_eq!(numbers(&waiting), [id(1), id(2)]);
        waiting.remove(&[id(1)]);
        assert_eq!((waiting.len(), waiting.claim_of(&id(1))), (1, None));
    }

    #[test]
    fn what_is_over_is_forgotten_and_the_rest_bounded() {
        let mut waiting = Waiting::default();
        waiting.add(Note { expires_at: Timestamp::from_millis(10), ..note(1, "x") });
        waiting.add(note(2, "x"));
        waiting.expire(Timestamp::from_millis(11));
        assert_eq!(numbers(&waiting), [id(2)]);
        for number in 0..1_500 {
            waiting.add(note(number, "x"));
        }
        assert_eq!(waiting.len(), INBOX_MAX);
    }
}
