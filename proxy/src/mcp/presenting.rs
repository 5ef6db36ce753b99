//! Which messages the results on their way to the client put before the model, by request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::RequestId;

use crate::deliver::Presented;

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
