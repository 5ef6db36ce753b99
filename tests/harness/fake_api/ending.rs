//! How a request ended: with an answer, with an error, or with a client that went away.

use std::sync::{Arc, OnceLock};

use c3po_shared::time::Timestamp;

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was answered, whole.
    Answered,
    /// It was answered with an error.
    Failed,
    /// The client went away before the answer.
    CutOff,
}

/// Knows how one request ended, once it has. Clones know the same.
#[derive(Debug, Clone, Default)]
pub struct Ending(Arc<OnceLock<(Fate, Timestamp)>>);

impl Ending {
    /// Returns what became of the request, and when; nothing while it is open.
    pub fn known(&self) -> Option<(Fate, Timestamp)> {
        self.0.get().copied()
    }

    /// Returns what ends the request as cut off when it is dropped, unless it has ended before.
    pub(super) fn open(&self) -> Open {
        Open(self.clone())
    }
}

/// A request without an answer.
#[derive(Debug)]
pub(super) struct Open(Ending);

impl Open {
    /// Ends the request.
    pub(super) fn ends(self, fate: Fate) {
        // Only the first end counts, and this is it: whoever has this value ends the request.
        let _ = self.0.0.set((fate, Timestamp::now()));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // It has ended already where it was answered.
        let _ = self.0.0.set((Fate::CutOff, Timestamp::now()));
    }
}
