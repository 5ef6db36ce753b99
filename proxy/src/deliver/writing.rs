//! Messages that the result of a tool holds, until the result is written or never will be.

use std::time::Duration;

use c3po_shared::ids::MessageId;
use tokio::time::Instant;

/// How long a result may be on its way to the client.
const WRITING: Duration = Duration::from_secs(5);

/// The messages, each since when.
#[derive(Debug, Default)]
pub(super) struct Writing {
    since: Vec<(MessageId, Instant)>,
}

impl Writing {
    /// A result that is about to be written holds the message.
    pub(super) fn add(&mut self, id: &MessageId, now: Instant) {
        self.since.push((id.clone(), now));
    }

    /// Returns whether such a result holds the message.
    pub(super) fn holds(&self, id: &MessageId) -> bool {
        self.since.iter().any(|(held, _)| held == id)
    }

    /// The result was written.
    pub(super) fn written(&mut self, ids: &[MessageId]) {
        self.since.retain(|(id, _)| !ids.contains(id));
    }

    /// Takes what never was written.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<MessageId> {
        self.since.extract_if(.., |(_, at)| now.duration_since(*at) >= WRITING).map(|(id, _)| id).collect()
    }

    /// Returns when something is overdue next.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.since.iter().map(|(_, at)| *at + WRITING).min()
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.since.clear();
    }
}
