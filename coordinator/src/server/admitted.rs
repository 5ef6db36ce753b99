//! Connections with a slot. A slot is kept while the system holds bytes of the connection, also after it was closed.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use c3po_allocator::unacknowledged;
use prometheus_client::metrics::gauge::Gauge;
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::task::TaskTracker;

use super::metered::Peer;

/// How long a write may stall because the client does not read.
pub(super) const STALL_MAX: Duration = Duration::from_secs(30);
/// How long after the first look a connection that ended is looked at again, and the longest pause later.
const POLL_MIN: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_secs(1);
/// Why the stream of a connection is there.
const OPEN: &str = "it is open until it is dropped";

/// A number of slots, some of them taken.
pub(super) struct Slots {
    taken: AtomicUsize,
    bound: usize,
    /// The metric with the number of taken slots.
    shown: Gauge,
    /// Of connections that ended, and linger.
    lingering: TaskTracker,
}

impl Slots {
    pub(super) fn new(bound: usize, shown: Gauge) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicUsize::new(0),
            bound,
            shown,
            lingering: TaskTracker::new(),
        })
    }

    /// Returns their number.
    pub(super) fn bound(&self) -> usize {
        self.bound
    }

    /// Takes a slot, if one is free.
    pub(super) fn take(places: &Arc<Self>) -> Option<Slot> {
        let one_more = |taken| (taken < places.bound).then_some(taken + 1);
        let taken = places
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.ok().map(|_| {
            places.shown.inc();
            Slot(Arc::clone(places))
        })
    }
}

/// A slot, released when this is dropped.
pub(super) struct Slot(Arc<Slots>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.shown.dec();
    }
}

/// A connection with a slot, until it ends or its writes stall for too long.
pub(super) struct AdmittedStream {
    /// `None` only while this is dropped.
    open: Option<(TcpStream, Slot)>,
    /// The deadline of a stalled write.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl AdmittedStream {
    pub(super) fn new(stream: TcpStream, place: Slot) -> Self {
        Self {
            open: Some((stream, place)),
            stalled: None,
        }
    }

    fn stream(&self) -> &TcpStream {
        &self.open.as_ref().expect(OPEN).0
    }

    fn pinned(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.open.as_mut().expect(OPEN).0)
    }

    /// Waits for the first byte without consuming it. `None` means that the connection was closed.
    pub(super) async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut first = [0];
        Ok((self.stream().peek(&mut first).await? > 0).then_some(first[0]))
    }

    /// Returns the result of a write, or an error if all that is buffered was not written for too long. A client that reads a
    /// few bytes now and then holds an answer as well.
    fn in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            return written;
        }
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(STALL_MAX)));
        stalled
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for AdmittedStream {
    fn drop(&mut self) {
        let Some((stream, place)) = self.open.take() else {
            return;
        };
        // It may be closed already.
        let _ = rustix::net::shutdown(&stream, Shutdown::Write);
        if let (true, Ok(runtime)) = (is_held(&stream), Handle::try_current()) {
            let stalled = self.stalled.take().map(|stalled| stalled.deadline());
            let deadline = stalled.unwrap_or_else(|| Instant::now() + STALL_MAX);
            let lingering = place.0.lingering.clone();
            lingering.spawn_on(linger(stream, place, deadline), &runtime);
        }
    }
}

/// Returns whether the system holds bytes of a connection, besides its end. One that was reset has no peer.
fn is_held(stream: &TcpStream) -> bool {
    stream.peer_addr().is_ok() && unacknowledged(stream.as_fd()).is_ok_and(|bytes| bytes > 1)
}

/// Holds the slot of a connection that was closed until the system of its client has all that was sent: ours has it in memory
/// until then. A client that takes too long loses the rest.
async fn linger(stream: TcpStream, place: Slot, deadline: Instant) {
    let mut pause = POLL_MIN;
    while is_held(&stream) {
        if Instant::now() >= deadline {
            // The connection is reset.
            let _ = stream.set_zero_linger();
            break;
        }
        sleep(pause).await;
        pause = POLL_MAX.min(2 * pause);
    }
    drop((stream, place));
}

impl Peer for AdmittedStream {
    fn has_left(&self) -> bool {
        self.stream().has_left()
    }
}

impl AsyncRead for AdmittedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.pinned().poll_read(cx, buffer)
    }
}

impl AsyncWrite for AdmittedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.pinned().poll_write(cx, bytes);
        self.in_time(cx, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The buffers above are empty.
        self.stalled = None;
        self.pinned().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pinned().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.pinned().poll_write_vectored(cx, parts);
        self.in_time(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream().is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    use super::*;

    const SOON: Duration = Duration::from_millis(250);

    #[test]
    fn slots_are_limited_by_the_bound_and_free_again_after_use() {
        let places = Slots::new(2, Gauge::default());
        let (first, second) = (Slots::take(&places), Slots::take(&places));
        assert!(first.is_some() && second.is_some() && Slots::take(&places).is_none());
        assert_eq!(places.shown.get(), 2);
        drop(first);
        assert!(Slots::take(&places).is_some());
    }

    /// The system holds what a client does not read, also after the connection was closed.
    #[tokio::test]
    async fn a_connection_keeps_its_slot_until_its_client_has_received_all() -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let places = Slots::new(1, Gauge::default());
        let ended = async |text: &[u8]| {
            let client = TcpSocket::new_v4()?;
            client.set_recv_buffer_size(4096)?;
            let client = client.connect(listener.local_addr()?).await?;
            let (stream, _) = listener.accept().await?;
            let place = Slots::take(&places).expect("a free one");
            let mut ours = AdmittedStream::new(stream, place);
            let fills = text.len() > b"text".len();
            let mut write = async || timeout(SOON, ours.write_all(text)).await;
            while write().await.is_ok() && fills {}
            drop(ours);
            io::Result::Ok(client)
        };
        let is_free = async || {
            sleep(SOON).await;
            places.shown.get() == 0
        };
        // A client that reads all, and then leaves.
        let mut reads = ended(b"text").await?;
        let mut text = Vec::new();
        reads.read_to_end(&mut text).await?;
        drop(reads);
        assert!(text.starts_with(b"text") && is_free().await);
        // Clients that leave, with and without text that they do not read.
        for text in [&[][..], &[0; 4096]] {
            drop(ended(text).await?);
            assert!(is_free().await);
        }
        // A client that does not close the connection, whose system has all.
        let _open = ended(b"text").await?;
        assert!(is_free().await);
        // A client that stays, and does not read.
        let stays = ended(&[0; 4096]).await?;
        assert!(!is_free().await, "the system holds its text");
        drop(stays);
        while !is_free().await {}
        // A client that takes too long.
        let (client, listened) = tokio::join!(
            TcpStream::connect(listener.local_addr()?),
            listener.accept()
        );
        let (stream, mut client) = (listened?.0, client?);
        while timeout(SOON, stream.writable()).await.is_ok() {
            let _ = stream.try_write(&[0; 4096]);
        }
        let place = Slots::take(&places).expect("a free one");
        linger(stream, place, Instant::now() + SOON).await;
        assert_eq!(places.shown.get(), 0);
        let end = client
            .read_to_end(&mut text)
            .await
            .map_err(|error| error.kind());
        assert_eq!(end, Err(io::ErrorKind::ConnectionReset));
        Ok(())
    }
}
