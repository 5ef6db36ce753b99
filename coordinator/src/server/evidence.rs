//! Records that a response was written: its messages are in the session then.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, Via};

use super::written::on_written;
use super::{AppState, http_session};
use crate::request::Caller;

/// The messages that a response shows to its reader; set by the tool that makes the response.
#[derive(Debug, Clone, Default)]
pub(super) struct Presentation {
    content: Arc<Mutex<Option<PresentedIds>>>,
}

/// Unless the response is written, waits may return its messages again.
#[derive(Debug)]
struct PresentedIds {
    caller: Caller,
    /// The messages that stand in it to their end.
    messages: Vec<MessageId>,
    /// The messages that a wait took for it.
    handed: Vec<MessageId>,
    via: Via,
}

impl Drop for PresentedIds {
    fn drop(&mut self) {
        for id in &self.handed {
            self.caller.memory.take_back(id);
        }
    }
}

impl Presentation {
    /// Records the messages that the response will show, those of them that a wait took, and their reader.
    pub(super) fn set(
        &self,
        caller: Caller,
        messages: Vec<MessageId>,
        handed: Vec<MessageId>,
        via: Via,
    ) {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        *content = Some(PresentedIds {
            caller,
            messages,
            handed,
            via,
        });
    }

    fn take(&self) -> Option<PresentedIds> {
        self.content
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

/// Records `in_session` for the messages of a response, but only after the connection took all of it.
pub(super) async fn layer(
    State(server): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let shown = Presentation::default();
    request.extensions_mut().insert(shown.clone());
    let response = next.run(request).await;
    response.map(|body| {
        let written = move || {
            let Some(mut presented) = shown.take() else {
                return;
            };
            presented.handed.clear();
            let (caller, messages, via) = (
                presented.caller.clone(),
                std::mem::take(&mut presented.messages),
                presented.via,
            );
            let services = Arc::clone(&server.services);
            server.tasks.spawn(async move {
                http_session::note(&services, &caller, messages, Stage::InSession, via).await;
            });
        };
        on_written(body, written)
    })
}
