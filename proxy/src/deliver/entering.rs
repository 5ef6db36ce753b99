//! What came with a prompt, until a step of the turn that the prompt began shows that it is in the session.
//!
//! Another hook may refuse a prompt, and a person may take it back: then what came with it is gone, and nobody is told.

use std::time::Duration;

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::Via;
use tokio::time::Instant;

use super::ways::Way;

/// How long a turn may take to its first step. A prompt that a person took back never leads to one.
///
/// A client's own tools end before that.
const STEP_MAX: Duration = Duration::from_secs(900);

/// Messages that came with one prompt.
#[derive(Debug)]
pub(super) struct Prompted {
    pub(super) ids: Vec<MessageId>,
    pub(super) via: Via,
    /// The way of the push that made the prompt, if one did.
    pub(super) way: Option<Way>,
    /// The client's name for the turn.
    turn: Option<String>,
    until: Instant,
}

/// Everything that came with a prompt that has not led to anything yet.
#[derive(Debug, Default)]
pub(super) struct Entering {
    prompted: Vec<Prompted>,
}

impl Entering {
    /// A hook added messages to a prompt of that turn.
    pub(super) fn add(&mut self, ids: Vec<MessageId>, via: Via, turn: Option<String>, now: Instant) {
        self.prompted.push(Prompted { ids, via, way: None, turn, until: now + STEP_MAX });
    }

    /// A push made the prompt of that turn.
    pub(super) fn add_pushed(&mut self, ids: Vec<MessageId>, way: Way, turn: Option<String>, now: Instant) {
        self.prompted.push(Prompted { ids, via: way.via(), way: Some(way), turn, until: now + STEP_MAX });
    }

    /// Takes what a step of that turn decides: what is in the session, and what came with prompts that led to nothing.
    pub(super) fn decided_by(&mut self, turn: Option<&str>) -> (Vec<Prompted>, Vec<Prompted>) {
        let of_it = |one: &Prompted| turn.is_none() || one.turn.is_none() || one.turn.as_deref() == turn;
        std::mem::take(&mut self.prompted).into_iter().partition(of_it)
    }

    /// The session shows that it goes on.
    pub(super) fn goes_on(&mut self, now: Instant) {
        for one in &mut self.prompted {
            one.until = now + STEP_MAX;
        }
    }

    /// Takes the messages of these that came with a prompt, each group by its way.
    pub(super) fn take_known(&mut self, known: &[MessageId]) -> Vec<(Vec<MessageId>, Via)> {
        let mut taken = Vec::new();
        for one in &mut self.prompted {
            let ids: Vec<_> = one.ids.extract_if(.., |id| known.contains(id)).collect();
            if !ids.is_empty() {
                taken.push((ids, one.via));
            }
        }
        self.prompted.retain(|one| !one.ids.is_empty());
        taken
    }

    /// Takes everything.
    pub(super) fn take(&mut self) -> Vec<Prompted> {
        std::mem::take(&mut self.prompted)
    }

    /// Takes what came with prompts that have led to nothing for too long.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<Prompted> {
        self.prompted.extract_if(.., |one| one.until <= now).collect()
    }

    /// Returns when something is overdue next.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.prompted.iter().map(|one| one.until).min()
    }
}
