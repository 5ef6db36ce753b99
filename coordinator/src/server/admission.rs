//! Connection limit: a slot is taken before anything is read; connections over the limit get a 503.

use std::convert::identity;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use c3po_shared::refusal::{ErrorCode, Refusal};
use prometheus_client::metrics::gauge::Gauge;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_util::task::TaskTracker;

use super::admitted::{AdmittedStream, Slots};
use super::tls::{HANDSHAKE_BYTES_MAX, Transport};
use crate::request::Services;
use crate::unfinished::Intake;

/// Descriptors that are not connections: those of the store, the listener, the runtime and rejected connections.
const RESERVED: usize = 64;
/// How many rejections are sent at the same time. Further connections are closed without a response.
const TURNED_AWAY_AT_ONCE: usize = 16;
/// The deadline for sending a rejection.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
/// The memory that is planned for a connection, in bytes. A link with all its waits and queued calls takes up to half as much
/// again, which the whole limit has room for. TLS needs more, because it holds a record both encrypted and decrypted.
const DEAREST: u64 = 80 << 10;
const DEAREST_OF_TLS: u64 = 112 << 10;
/// The minimum number of connections, even with little memory.
const FEWEST: usize = 256;
/// Below this limit, startup logs a warning.
const FEW: usize = 1_024;

/// Raises the limit of open descriptors as far as the system permits. Returns the new limit.
pub(crate) fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: maximum,
            maximum,
        },
    )
    .is_ok();
    let limit = if raised { maximum } else { current };
    limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// Returns the largest memory use of a connection, in bytes.
pub(super) fn dearest(transport: &Transport) -> u64 {
    if transport.acceptor().is_some() {
        DEAREST_OF_TLS
    } else {
        DEAREST
    }
}

/// Returns the connection limit: the configured one, or as many connections as a quarter of the memory can hold. It never
/// exceeds the number of descriptors.
pub(super) fn bound(asked: Option<usize>, memory: Option<u64>, dearest: u64) -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let descriptors = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    let possible = descriptors - RESERVED.min(descriptors / 2);
    let bound = asked
        .unwrap_or_else(|| held_by(memory, dearest))
        .min(possible);
    if asked.is_none_or(|asked| asked > possible) && possible < FEW {
        tracing::warn!(
            "the limit of {descriptors} open files allows only {possible} connections; raise `ulimit -n` (LimitNOFILE \
             in systemd, ulimits in Docker)"
        );
    } else {
        tracing::debug!("connection limit: {bound}");
    }
    bound
}

/// Returns how many connections fit into a quarter of this memory.
fn held_by(memory: Option<u64>, dearest: u64) -> usize {
    let held = memory.and_then(|memory| usize::try_from(memory / 4 / dearest).ok());
    held.map_or(usize::MAX, |held| held.max(FEWEST))
}

/// Hands out connection slots and rejects connections when none is free.
pub(super) struct Admission {
    places: Arc<Slots>,
    leaving: Arc<Slots>,
    services: Arc<Services>,
    transport: Transport,
    tasks: TaskTracker,
}

impl Admission {
    pub(super) fn new(
        bound: usize,
        services: Arc<Services>,
        transport: Transport,
        tasks: TaskTracker,
    ) -> Self {
        services
            .metrics
            .connections_max
            .set(i64::try_from(bound).unwrap_or(i64::MAX));
        let places = Slots::new(bound, services.metrics.connections.clone());
        let leaving = Slots::new(TURNED_AWAY_AT_ONCE, Gauge::default());
        Self {
            places,
            leaving,
            services,
            transport,
            tasks,
        }
    }

    /// Returns the connection with a slot, or rejects it.
    pub(super) fn admit(&self, stream: TcpStream) -> Option<AdmittedStream> {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("cannot set TCP_NODELAY on this connection: {error}");
        }
        match Slots::take(&self.places) {
            Some(place) => Some(AdmittedStream::new(stream, place)),
            None => {
                self.turn_away(stream);
                None
            }
        }
    }

    fn turn_away(&self, stream: TcpStream) {
        let before = self.services.metrics.connections_refused.inc();
        let refusal = Refusal::no_place(self.places.bound());
        // Logged for the 1st, 2nd, 4th, 8th, … rejection, so that a client that never stops cannot fill the disk.
        if (before + 1).is_power_of_two() {
            tracing::warn!("{} connections were refused so far: {refusal}", before + 1);
        }
        let Some(place) = Slots::take(&self.leaving) else {
            return;
        };
        let acceptor = self.transport.acceptor();
        let account = self
            .services
            .unfinished
            .account_of_stranger(HANDSHAKE_BYTES_MAX);
        self.tasks.spawn(async move {
            let status = "Service Unavailable";
            match acceptor {
                None => farewell(stream, identity, status, &refusal).await,
                Some(acceptor) => {
                    let intake = Intake::new(stream, account, HANDSHAKE_BYTES_MAX, FAREWELL_MAX);
                    if let Ok(Ok(stream)) = timeout(FAREWELL_MAX, acceptor.accept(intake)).await {
                        let below = |tls: TlsStream<Intake<_>>| tls.into_inner().0.into_stream();
                        farewell(stream, below, status, &refusal).await;
                    }
                }
            }
            drop(place);
        });
    }
}

/// Sends the reason of a rejection, best effort, and waits until the client closes: closing with unread input could discard the
/// response there. Nothing behind it is decrypted: `below` returns the stream to which the client writes.
pub(super) async fn farewell<S, R>(
    mut stream: S,
    below: fn(S) -> R,
    status: &str,
    refusal: &Refusal,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + Unpin,
{
    let saying = async {
        say_why(&mut stream, status, refusal).await?;
        let (mut rest, mut unread) = (below(stream), [0; 1024]);
        while rest.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(FAREWELL_MAX, saying).await;
}

async fn say_why(
    stream: &mut (impl AsyncWrite + Unpin),
    status: &str,
    refusal: &Refusal,
) -> io::Result<()> {
    let body =
        serde_json::to_string(refusal).expect("a refusal has text keys and no failing serialisers");
    let later = if refusal.code == ErrorCode::CoordDown {
        "Retry-After: 5\r\n"
    } else {
        ""
    };
    let answer = format!(
        "HTTP/1.1 {} {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {later}Connection: close\r\n\r\n{body}",
        refusal.code.http_status(),
        body.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_requested_limit_holds_if_there_are_enough_descriptors() {
        let possible = bound(None, None, DEAREST);
        let asked = |asked| bound(Some(asked), Some(0), DEAREST);
        assert_eq!((asked(1), asked(usize::MAX)), (1, possible));
    }

    #[test]
    fn the_default_bound_of_connections_depends_on_the_memory_too() {
        let memory = Some(512 << 20);
        assert_eq!(
            [DEAREST, DEAREST_OF_TLS].map(|dearest| held_by(memory, dearest)),
            [1_638, 1_170]
        );
        assert_eq!(
            (held_by(None, DEAREST), held_by(Some(0), DEAREST)),
            (usize::MAX, FEWEST)
        );
        assert_eq!(
            bound(None, Some(0), DEAREST),
            FEWEST.min(bound(None, None, DEAREST))
        );
    }
}
