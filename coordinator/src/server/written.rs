//! Response bodies that report when the connection took their last bytes, and are charged until then.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use c3po_shared::refusal::Refusal;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use crate::auth::Stay;
use crate::unfinished::{Budget, Charge, Room};

/// The longest frame of a body, in bytes. A connection takes a whole frame at once, however slowly its client reads.
const FRAGMENT: usize = 4 << 10;

/// The time in which every charged answer may be read.
const READ_WITHIN: Duration = Duration::from_secs(60);
/// The bytes per second that a client has to read of a charged answer after that.
const READ_PER_SECOND: usize = 2 << 10;

/// Marks a response that is not charged when it is made: it already is, or its call has changed something, so that its client
/// must get it.
#[derive(Debug, Clone)]
pub(super) struct Paid(Option<Arc<Charge>>);

impl Paid {
    /// Marks a response with the charge to hold until it is written, if it has one.
    pub(super) fn mark(charge: Option<Charge>, mut response: Response) -> Response {
        response.extensions_mut().insert(Self(charge.map(Arc::new)));
        response
    }
}

/// Charges the response to its key, and counts the request, until the client has read it. A body that is made while it is read
/// is charged part by part, and ends with an error if a part finds no room.
///
/// Errors: `RATE_LIMITED` if too many answers are unread.
pub(super) fn until_written(
    budget: &Budget,
    stay: Arc<Stay>,
    mut response: Response,
) -> Result<Response, Refusal> {
    let paid = response.extensions_mut().remove::<Paid>();
    let length = response.body().size_hint().exact();
    let held = match (paid, length) {
        (Some(Paid(charge)), _) => charge,
        (None, Some(length)) => {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            budget
                .room_for_answer(stay.principal().room(), length)?
                .map(Arc::new)
        }
        (None, None) => {
            let meter = Meter {
                budget: budget.clone(),
                room: stay.principal().room().clone(),
                held: None,
            };
            return Ok(response.map(|body| watched(body, Some(meter), None, move || drop(stay))));
        }
    };
    let pace = held.is_some().then(Pace::begin);
    Ok(response.map(|body| watched(body, None, pace, move || drop((stay, held)))))
}

/// Ends an answer that is read too slowly, whose charge others of the key need.
struct Pace {
    begun: Instant,
    taken: usize,
}

impl Pace {
    fn begin() -> Self {
        Self {
            begun: Instant::now(),
            taken: 0,
        }
    }

    /// Counts bytes that the connection took. Returns whether the client reads fast enough.
    fn takes(&mut self, bytes: usize) -> bool {
        self.taken += bytes;
        let seconds = u64::try_from(self.taken / READ_PER_SECOND).unwrap_or(u64::MAX);
        self.begun.elapsed() <= READ_WITHIN.saturating_add(Duration::from_secs(seconds))
    }
}

/// Charges the parts of a body that is made while it is read.
struct Meter {
    budget: Budget,
    room: Room,
    /// The charge of the present part.
    held: Option<Charge>,
}

impl Meter {
    fn charge(&mut self, bytes: usize) -> Result<(), Refusal> {
        self.held = None;
        self.held = self.budget.room_for_answer(&self.room, bytes)?;
        Ok(())
    }
}

/// Returns the body, which calls `written` after its last byte was taken. If it is dropped earlier, it drops `written`
/// without a call.
pub(super) fn on_written(body: Body, written: impl FnOnce() + Send + 'static) -> Body {
    watched(body, None, None, written)
}

fn watched(
    body: Body,
    meter: Option<Meter>,
    pace: Option<Pace>,
    written: impl FnOnce() + Send + 'static,
) -> Body {
    Body::new(Watched {
        body,
        rest: Bytes::new(),
        meter,
        pace,
        written: Some(Box::new(written)),
    })
}

struct Watched {
    body: Body,
    /// The part of a long frame that is not taken yet.
    rest: Bytes,
    meter: Option<Meter>,
    pace: Option<Pace>,
    written: Option<Box<dyn FnOnce() + Send>>,
}

impl Watched {
    fn complete(&mut self) {
        if let Some(written) = self.written.take() {
            written();
        }
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match Pin::new(&mut this.body)
                .poll_frame(cx)
                .map_ok(Frame::into_data)
            {
                Poll::Ready(Some(Ok(Ok(data)))) => {
                    if let Some(Err(refusal)) =
                        this.meter.as_mut().map(|meter| meter.charge(data.len()))
                    {
                        return Poll::Ready(Some(Err(axum::Error::new(refusal))));
                    }
                    this.rest = data;
                }
                Poll::Ready(Some(Ok(Err(other)))) => return Poll::Ready(Some(Ok(other))),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    this.complete();
                    return Poll::Ready(None);
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        // Copied, because a part of the frame in the connection's buffer would keep all of it.
        let part = Bytes::copy_from_slice(&this.rest.split_to(this.rest.len().min(FRAGMENT)));
        if this
            .pace
            .as_mut()
            .is_some_and(|pace| !pace.takes(part.len()))
        {
            return Poll::Ready(Some(Err(axum::Error::new(io::Error::from(
                io::ErrorKind::TimedOut,
            )))));
        }
        if this.is_end_stream() {
            this.complete();
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use axum::body::to_bytes;
    use c3po_shared::limits::FRAME_MAX;
    use futures_util::StreamExt;

    use super::*;
    use crate::auth::{Principal, Reach};

    #[tokio::test]
    async fn a_long_body_is_written_when_its_last_short_frame_is_taken() {
        let written = Arc::new(AtomicBool::new(false));
        let (text, flag) = ("x".repeat(3 * FRAGMENT + 1), Arc::clone(&written));
        let body = on_written(Body::from(text.clone()), move || {
            flag.store(true, Ordering::Relaxed)
        });
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        let mut frames = body.into_data_stream();
        let mut taken = 0;
        while let Some(frame) = frames.next().await {
            let length = frame.expect("a body").len();
            assert!(length <= FRAGMENT, "{length}");
            taken += length;
            assert_eq!(
                written.load(Ordering::Relaxed),
                taken == text.len(),
                "{taken}"
            );
        }
        assert_eq!(taken, text.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_charged_answer_has_a_slowest_pace() {
        let mut pace = Pace::begin();
        tokio::time::advance(READ_WITHIN).await;
        assert!(pace.takes(READ_PER_SECOND));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(pace.takes(READ_PER_SECOND));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(!pace.takes(READ_PER_SECOND));
    }

    #[tokio::test]
    async fn unread_responses_of_a_key_are_bounded() {
        let (budget, principal) = (
            Budget::within(Some(512 << 20)),
            Arc::new(Principal::anybody(Reach::Network)),
        );
        let answer = || {
            let stay = Arc::new(Principal::enter(&principal).expect("it has room"));
            until_written(
                &budget,
                stay,
                Response::new(Body::from(vec![b'x'; FRAME_MAX])),
            )
        };
        let mut unread = Vec::new();
        while let Ok(response) = answer() {
            unread.push(response);
            assert!(
                unread.len() * FRAME_MAX <= budget.most(),
                "nothing refuses it"
            );
        }
        let read = to_bytes(
            unread.pop().expect("one is allowed").into_body(),
            usize::MAX,
        )
        .await
        .expect("a body");
        assert_eq!(read.len(), FRAME_MAX);
        answer().expect("one was read");
    }
}
