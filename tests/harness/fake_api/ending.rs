//! The end of a request: an answer, an error, or a client that disconnected.

use std::sync::{Arc, OnceLock};

use c3po_shared::time::Timestamp;

/// The way in which a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was answered completely.
    Answered,
    /// It was answered with an error.
    Failed,
    /// The client disconnected before the answer.
    CutOff,
}

/// Records how one request ended. Clones share the record.
#[derive(Debug, Clone, Default)]
pub struct Ending(Arc<OnceLock<(Fate, Timestamp)>>);

impl Ending {
    /// Returns how and when the request ended; `None` while it is open.
    pub fn known(&self) -> Option<(Fate, Timestamp)> {
        self.0.get().copied()
    }

    /// Returns a guard that records the request as cut off when dropped, unless it has ended before.
    pub(super) fn open(&self) -> Open {
        Open(self.clone())
    }
}

/// A request that has not been answered yet.
#[derive(Debug)]
pub(super) struct Open(Ending);

impl Open {
    /// Records the end of the request.
    pub(super) fn ends(self, fate: Fate) {
        // Only the first end counts, and this is the first: the owner of this guard ends the request.
        let _ = self.0.0.set((fate, Timestamp::now()));
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Has no effect if the request was answered.
        let _ = self.0.0.set((Fate::CutOff, Timestamp::now()));
    }
}
