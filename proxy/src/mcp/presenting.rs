//! Which messages the results on their way to the client put before the model, by request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use c3po_shared::ids::MessageId;
use c3po_shared::receipt::Via;
use rmcp::model::RequestId;

/// What the result of one request puts before the model.
#[derive(Debug, PartialEq)]
pub(super) struct Presented {
    pub(super) ids: Vec<MessageId>,
    pub(super) via: Via,
    /// The client's name for the use of the tool.
    pub(super) tool_use: Option<String>,
}

/// The results that were made and not written yet. The server adds to it, the transport takes out of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Presenting {
    by_request: Arc<Mutex<HashMap<RequestId, Presented>>>,
}

impl Presenting {
    /// Notes what the result of a request puts before the model.
    pub(super) fn add(&self, request: RequestId, presented: Presented) {
        self.by_request().insert(request, presented);
    }

    /// Takes what the result of a request puts before the model, if it does: the result is about to be written, or the
    /// client has cancelled the request and gets none.
    pub(super) fn take(&self, request: &RequestId) -> Option<Presented> {
        self.by_request().remove(request)
    }

    fn by_request(&self) -> MutexGuard<'_, HashMap<RequestId, Presented>> {
        self.by_request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
