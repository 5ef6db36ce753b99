//! The reading side of an HTTP connection: input that is not content, such as the sizes and extensions of chunks, is bounded
//! in proportion to the content, and long input takes turns with other connections. While a request that was read is worked
//! on, the end of its connection is noticed.
//!
//! hyper decodes the size of a chunk byte by byte, in one turn, and lets it begin with any number of zeros. It does not notice
//! the end of a connection once it has read a byte behind the request, nor once it stopped reading its body.

use std::convert::Infallible;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{FutureExt as _, TryFutureExt as _};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// How much a request may send beyond its head and its content before it waits for the end of its time, in bytes.
const BESIDE_CONTENT_MAX: usize = 2 << 10;
/// How much may be read for each byte of content, in bytes: a chunk of one byte has six.
const PER_CONTENT: usize = 8;
/// How much is read at once where the credit is smaller than the buffer, in bytes.
const PIECE_MAX: usize = 4 << 10;
/// How much that is not content may be read in one turn, in bytes. Decoding it takes less than a millisecond.
const TURN_MAX: usize = 8 << 10;
/// How often a connection that hyper does not read is looked at while its request is answered.
const LOOKED: Duration = Duration::from_secs(2);

/// How much more of a connection may be read.
#[derive(Debug)]
struct Meter(Mutex<Metering>);

#[derive(Debug)]
struct Metering {
    /// The number of bytes; `None` after an upgrade, whose messages have their own limits.
    credit: Option<usize>,
    /// Bytes that were read in this turn and are not used as content.
    in_turn: usize,
    /// Whether a request was read and is not answered yet.
    is_answering: bool,
    /// The reader that waits for more.
    waiting: Option<Waker>,
}

impl Meter {
    fn new(credit: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Metering {
            credit: Some(credit),
            in_turn: 0,
            is_answering: false,
            waiting: None,
        })))
    }

    fn metering(&self) -> MutexGuard<'_, Metering> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with a head or a body, with this credit; `None` ends metering.
    fn begin(&self, credit: Option<usize>) {
        let mut metering = self.metering();
        metering.credit = credit;
        metering.is_answering = false;
        metering.wake();
    }

    /// Records that the body was read, or is read no more.
    fn end_body(&self) {
        self.metering().is_answering = true;
    }

    /// Grants more for content that was used.
    fn grant(&self, content: usize) {
        let mut metering = self.metering();
        metering.credit = metering.credit.map(|credit| credit + PER_CONTENT * content);
        metering.in_turn = metering.in_turn.saturating_sub(content);
        metering.wake();
    }

    /// Waits for credit, and for the turns of others. Returns how much may be read at once; `None` if there is no limit.
    fn poll_credit(&self, cx: &Context<'_>) -> Poll<Option<usize>> {
        let mut metering = self.metering();
        if metering.credit.is_some() && metering.in_turn >= TURN_MAX {
            metering.in_turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if metering.credit == Some(0) {
            metering.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(metering.credit)
    }

    /// Records that so much was read, or that there is nothing to read and others have their turns.
    fn note(&self, read: Option<usize>) {
        let mut metering = self.metering();
        match read {
            Some(read) => {
                metering.credit = metering.credit.map(|credit| credit.saturating_sub(read));
                metering.in_turn += read;
            }
            None => metering.in_turn = 0,
        }
    }
}

impl Metering {
    fn wake(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }
}

/// Returns the stream with its reading side metered, and the service that grants what may be read: `head_max` bytes
/// for each head, and for each body in proportion to the content that was used.
pub(super) fn metered<S>(
    stream: S,
    routes: Router,
    head_max: usize,
) -> (
    Metered<S>,
    impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send>,
) {
    let meter = Meter::new(head_max);
    let stream = Metered {
        stream,
        meter: Arc::clone(&meter),
        is_read: false,
        look: None,
    };
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |request: Request<Incoming>| {
        let meter = Arc::clone(&meter);
        meter.begin(Some(BESIDE_CONTENT_MAX));
        let body = |content| MeteredBody::new(content, Arc::clone(&meter));
        let answering = routes.call(request.map(body));
        // A block would hold the future twice.
        answering.inspect_ok(move |response| {
            let is_upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            meter.begin((!is_upgraded).then_some(head_max));
        })
    });
    (stream, service)
}

/// The other side of a connection.
pub(super) trait Peer {
    /// Returns whether it has closed the connection, or its half, whatever it sent before and is not read yet.
    fn has_left(&self) -> bool;

    /// Begins the next turn of reading. Returns whether the one before is over, so that others go first.
    fn begin_turn(&mut self) -> bool {
        false
    }
}

impl Peer for TcpStream {
    fn has_left(&self) -> bool {
        let ready = self.ready(Interest::READABLE).now_or_never();
        ready.is_some_and(|ready| ready.map_or(true, Ready::is_read_closed))
    }
}

/// A stream of which only so much is read as its meter has credit.
pub(super) struct Metered<S> {
    stream: S,
    meter: Arc<Meter>,
    /// Whether a read waits since the last flush, and notices the end.
    is_read: bool,
    /// When the connection is looked at next.
    look: Option<Pin<Box<Sleep>>>,
}

impl<S: Peer> Metered<S> {
    /// Looks from time to time whether the client is there, while its request is answered and the connection is not read.
    ///
    /// Errors: it has left.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if mem::take(&mut self.is_read) || !self.meter.metering().is_answering {
            self.look = None;
            return Ok(());
        }
        loop {
            let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOKED)));
            if look.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.look = None;
            if self.stream.has_left() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
        }
    }
}

impl<S: AsyncRead + Peer + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.is_read = false;
        if this.stream.begin_turn() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(most) = ready!(this.meter.poll_credit(cx)) else {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        };
        let before = buffer.filled().len();
        let polled = if most >= buffer.remaining() {
            Pin::new(&mut this.stream).poll_read(cx, buffer)
        } else {
            // Not a part of the buffer: that would be initialized, and be used memory, before anything has come.
            let mut piece = [0; PIECE_MAX];
            let mut part = ReadBuf::new(&mut piece[..most.min(PIECE_MAX)]);
            let polled = Pin::new(&mut this.stream).poll_read(cx, &mut part);
            buffer.put_slice(part.filled());
            polled
        };
        let read = buffer.filled().len() - before;
        this.is_read = polled.is_pending();
        this.meter.note(polled.is_ready().then_some(read));
        polled
    }
}

impl<S: AsyncWrite + Peer + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes whenever the connection's task runs.
        self.look(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A body that grants more to be read for the content that was used.
struct MeteredBody {
    content: Incoming,
    meter: Arc<Meter>,
}

impl MeteredBody {
    fn new(content: Incoming, meter: Arc<Meter>) -> Self {
        if content.is_end_stream() {
            meter.end_body();
        }
        Self { content, meter }
    }
}

impl Drop for MeteredBody {
    fn drop(&mut self) {
        self.meter.end_body();
    }
}

impl Body for MeteredBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.content).poll_frame(cx));
        let used = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, Bytes::len),
            _ => 0,
        };
        self.meter.grant(used);
        if self.content.is_end_stream() {
            self.meter.end_body();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::{FromRequest as _, Request};
    use axum::routing::post;
    use futures_util::future::try_join_all;
    use hyper::server::conn::http1;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;
    use tokio_util::task::TaskTracker;

    use super::*;

    const HEAD: &str = "POST / HTTP/1.1\r\nhost: c3po\r\nconnection: close\r\n";
    const CHUNKED: &str = "transfer-encoding: chunked\r\n\r\n";
    const SOON: Duration = Duration::from_secs(20);

    /// Serves one connection that answers with the length of each body, and never to "wait". Returns the client's side of it.
    async fn serve(tasks: &TaskTracker) -> io::Result<TcpStream> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let theirs = TcpStream::connect(listener.local_addr()?).await?;
        let (ours, _) = listener.accept().await?;
        let length = async |request: Request| {
            let body = if request.headers().contains_key("x-unread") {
                drop(request);
                Bytes::from_static(b"wait")
            } else {
                Bytes::from_request(request, &()).await.expect("a body")
            };
            if body == "wait" {
                std::future::pending::<()>().await;
            }
            body.len().to_string()
        };
        let (stream, service) = metered(ours, Router::new().route("/", post(length)), 16 << 10);
        tasks.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        Ok(theirs)
    }

    /// Sends the request, and returns the last line of the answer.
    async fn answer(request: &[u8]) -> io::Result<String> {
        let tasks = TaskTracker::new();
        let (mut reading, mut writing) = serve(&tasks).await?.into_split();
        let mut answer = String::new();
        let both = async {
            tokio::try_join!(
                writing.write_all(request),
                reading.read_to_string(&mut answer)
            )
        };
        timeout(SOON, both).await??;
        Ok(answer.lines().last().unwrap_or_default().to_owned())
    }

    #[tokio::test]
    async fn sizes_and_extensions_of_chunks_without_end_are_not_read_on() -> io::Result<()> {
        // The buffers of the sockets take some megabytes.
        const MOST: usize = 64 << 20;
        for (size, end) in [("", "0"), ("1", " "), ("1;", "x")] {
            let tasks = TaskTracker::new();
            let mut theirs = serve(&tasks).await?;
            theirs
                .write_all(format!("{HEAD}{CHUNKED}{size}").as_bytes())
                .await?;
            let (more, mut written) = (end.repeat(1 << 20), 0);
            while written < MOST {
                let one = theirs.write_all(more.as_bytes());
                if timeout(Duration::from_millis(500), one).await.is_err() {
                    break;
                }
                written += more.len();
            }
            assert!(written < MOST, "{written} bytes of {size}{end} were read");
        }
        Ok(())
    }

    #[tokio::test]
    async fn the_end_of_a_connection_ends_a_wait_whatever_was_sent_behind_the_request()
    -> io::Result<()> {
        let wait = format!("{HEAD}content-length: 4\r\n\r\nwait");
        let requests = [
            format!("{wait}G"),
            wait.clone() + &"G".repeat(30 << 10),
            format!("{HEAD}{CHUNKED}4\r\nwait\r\n0\r\n\r\n\r\n"),
            format!("{HEAD}content-length: 400\r\nx-unread: yes\r\n\r\nwait"),
        ];
        let ends = requests.iter().map(async |request| {
            let tasks = TaskTracker::new();
            let mut theirs = serve(&tasks).await?;
            theirs.write_all(request.as_bytes()).await?;
            tasks.close();
            let waits = timeout(LOOKED + Duration::from_secs(1), tasks.wait()).await;
            assert!(waits.is_err(), "it waits: {}", request.len());
            drop(theirs);
            timeout(SOON, tasks.wait()).await?;
            Ok(())
        });
        try_join_all(ends).await.map(drop)
    }

    #[tokio::test]
    async fn bodies_arrive_whole_in_small_chunks_and_with_their_length() -> io::Result<()> {
        let text = "x".repeat(1 << 20);
        let plain = format!("{HEAD}content-length: {}\r\n\r\n{text}", text.len());
        assert_eq!(answer(plain.as_bytes()).await?, text.len().to_string());

        let chunks = "1\r\nx\r\n".repeat(50_000);
        let chunked = format!("{HEAD}{CHUNKED}{chunks}0\r\n\r\n");
        assert_eq!(answer(chunked.as_bytes()).await?, "50000");
        Ok(())
    }
}
