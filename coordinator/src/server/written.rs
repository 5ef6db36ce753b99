//! A response body that reports when the connection took its last byte.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};

/// Returns the body, which calls `written` after its last byte was taken. If it is dropped earlier, it drops `written`
/// without a call.
pub(super) fn on_written(body: Body, written: impl FnOnce() + Send + 'static) -> Body {
    Body::new(Watched { body, written: Some(Box::new(written)) })
}

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
