//! How many connections there may be at once, and what those hear who come on top: a place is taken before anything is read.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use c3po_shared::refusal::Refusal;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::request::Office;

/// Descriptors that are not connections: the store's, the listener, the runtime's, and those who are turned away.
const RESERVED: usize = 64;
/// How many hear at the same time that there is no place. Who comes on top of them is cut off.
const TURNED_AWAY_AT_ONCE: usize = 16;
/// How long a connection may take to begin its first request: a place is not for those who say nothing.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// How long whoever is turned away may take to hear it.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// So few connections are told as a warning.
const FEW: usize = 1_024;

/// Raises the limit of open descriptors as far as the system lets this process. Returns what it is then.
pub(crate) fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if raised { maximum } else { current };
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Returns how many connections there may be: as many as are asked for, and as the descriptors suffice for.
pub(super) fn bound(asked: Option<usize>) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let descriptors = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let possible = descriptors - RESERVED.min(descriptors / 2);
    let bound = asked.map_or(possible, |asked| asked.min(possible));
    if asked.is_none_or(|asked| asked > possible) && possible < FEW {
        tracing::warn!(
            "only {descriptors} descriptors may be open, which are enough for {possible} connections; raise `ulimit -n` \
             (LimitNOFILE in systemd, ulimits in Docker)"
        );
    } else {
        tracing::debug!("{bound} connections at once");
    }
    bound
}

/// A listener that lets in as many as there are places.
pub(super) struct Admission {
    listener: TcpListener,
    places: Arc<Places>,
    leaving: Arc<Places>,
    /// Those who have a place and did not say anything yet.
    silent: FuturesUnordered<BoxFuture<'static, Option<(Admitted, SocketAddr)>>>,
    office: Arc<Office>,
    tasks: TaskTracker,
}

impl Admission {
    pub(super) fn new(listener: TcpListener, bound: usize, office: Arc<Office>, tasks: TaskTracker) -> Self {
        let places = |bound| Arc::new(Places { taken: AtomicUsize::new(0), bound });
        let leaving = places(TURNED_AWAY_AT_ONCE);
        Self { listener, places: places(bound), leaving, silent: FuturesUnordered::new(), office, tasks }
    }

    fn arrived(&mut self, stream: TcpStream, address: SocketAddr) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("small frames may wait for large ones on this connection: {error}");
        }
        let Some(place) = Places::take(&self.places) else { return self.turn_away(stream) };
        let admitted = Admitted { stream, _place: place };
        self.silent.push(Box::pin(async move {
            // A look at the first byte: a new connection counts as readable before there is one.
            let begun = timeout(SILENT_MAX, admitted.stream.peek(&mut [0])).await;
            matches!(begun, Ok(Ok(_))).then_some((admitted, address))
        }));
    }

    fn turn_away(&self, mut stream: TcpStream) {
        let before = self.office.metrics.connections_refused.inc();
        let refusal = Refusal::no_place(self.places.bound);
        // The 1st, 2nd, 4th, 8th, …: whoever knocks without end does not fill the disk.
        if (before + 1).is_power_of_two() {
            tracing::warn!("{} connections were refused so far: {refusal}", before + 1);
        }
        let Some(place) = Places::take(&self.leaving) else { return };
        self.tasks.spawn(async move {
            // Who does not listen misses it.
            let _ = timeout(FAREWELL_MAX, farewell(&mut stream, &refusal)).await;
            drop(place);
        });
    }
}

impl Listener for Admission {
    type Io = Admitted;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Admitted, SocketAddr) {
        loop {
            tokio::select! {
                Some(begun) = self.silent.next() => {
                    if let Some(begun) = begun {
                        return begun;
                    }
                }
                (stream, address) = Listener::accept(&mut self.listener) => self.arrived(stream, address),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Says why, and waits until the other side has closed: closing over what it still says would take the answer from it.
async fn farewell(stream: &mut TcpStream, refusal: &Refusal) -> io::Result<()> {
    let body = serde_json::to_string(refusal).expect("a refusal has text keys and no failing serialisers");
    let answer = format!(
        "HTTP/1.1 {} Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: 5\r\nConnection: close\r\n\r\n{body}",
        refusal.code.http_status(),
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let mut unread = [0; 1024];
    while stream.read(&mut unread).await? > 0 {}
    Ok(())
}

/// So many places, some of them taken.
struct Places {
    taken: AtomicUsize,
    bound: usize,
}

impl Places {
    fn take(places: &Arc<Self>) -> Option<Place> {
        let one_more = |taken| (taken < places.bound).then_some(taken + 1);
        let taken = places.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.ok().map(|_| Place(Arc::clone(places)))
    }
}

/// A place, free again once this is gone.
struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that has a place.
pub(super) struct Admitted {
    stream: TcpStream,
    _place: Place,
}

impl AsyncRead for Admitted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Admitted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_places_as_the_bound_says() {
        let places = Arc::new(Places { taken: AtomicUsize::new(0), bound: 2 });
        let (first, second) = (Places::take(&places), Places::take(&places));
        assert!(first.is_some() && second.is_some() && Places::take(&places).is_none());
        drop(first);
        assert!(Places::take(&places).is_some());
    }

    #[test]
    fn what_is_asked_for_is_kept_where_the_descriptors_suffice() {
        let possible = bound(None);
        assert_eq!((bound(Some(1)), bound(Some(usize::MAX))), (1, possible));
    }
}
