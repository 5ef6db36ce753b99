//! Detects when a response has been written: the body reports that the connection took its last byte.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, Via};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::{AppState, http_session};
use crate::request::Caller;

/// The messages that a response shows to its reader; set by the tool that makes the response.
#[derive(Debug, Clone, Default)]
pub(super) struct Presentation {
    content: Arc<Mutex<Option<PresentedIds>>>,
}

#[derive(Debug)]
struct PresentedIds {
    caller: Caller,
    messages: Vec<MessageId>,
    via: Via,
}

impl Presentation {
    /// Records the messages that the response will show, with its reader.
    pub(super) fn set(&self, caller: Caller, messages: Vec<MessageId>, via: Via) {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        *content = Some(PresentedIds { caller, messages, via });
    }

    fn take(&self) -> Option<PresentedIds> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Records `in_session` for the messages of a response, but only after the connection took all of it.
pub(super) async fn layer(State(server): State<AppState>, mut request: Request, next: Next) -> Response {
    let shown = Presentation::default();
    request.extensions_mut().insert(shown.clone());
    let response = next.run(request).await;
    response.map(|body| {
        let written = move || {
            let Some(PresentedIds { caller, messages, via }) = shown.take() else { return };
            let services = Arc::clone(&server.services);
            server.tasks.spawn(async move {
                http_session::note(&services, &caller, messages, Stage::InSession, via).await;
            });
        };
        Body::new(Watched { body, written: Some(Box::new(written)) })
    })
}

/// A body that reports when its last byte was taken. If it is dropped earlier, it reports nothing.
struct Watched {
    body: Body,
    written: Option<Box<dyn FnOnce() + Send>>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        let complete = match &polled {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => this.body.is_end_stream(),
            Poll::Ready(Some(Err(_))) | Poll::Pending => false,
        };
        if complete && let Some(written) = this.written.take() {
            written();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
