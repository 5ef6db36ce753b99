//! The messages that unwritten results will show to the model, by request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;

use c3po_shared::ids::MessageId;

use crate::deliver::Presented;

/// Results that were made but not yet written. The server adds them, the transport removes them.
#[derive(Debug, Clone, Default)]
pub(super) struct Presenting {
    by_request: Arc<Mutex<HashMap<RequestId, Presented>>>,
}

impl Presenting {
    /// Records the messages in the result of a request. Returns those that results of other requests hold too.
    pub(super) fn add(&self, request: RequestId, presented: Presented) -> Vec<MessageId> {
        let mut by_request = self.by_request();
        let held: Vec<_> = by_request
            .values()
            .flat_map(|other| &other.ids)
            .cloned()
            .collect();
        let beside = presented
            .ids
            .iter()
            .filter(|id| held.contains(id))
            .cloned()
            .collect();
        by_request.insert(request, presented);
        beside
    }

    /// Returns the messages in the result of a request, if there are any.
    pub(super) fn of(&self, request: &RequestId) -> Option<Presented> {
        self.by_request().get(request).cloned()
    }

    /// Removes a request whose result was written, or that the client cancelled.
    pub(super) fn remove(&self, request: &RequestId) {
        self.by_request().remove(request);
    }

    fn by_request(&self) -> MutexGuard<'_, HashMap<RequestId, Presented>> {
        self.by_request
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
