//! Accepts connections and serves each in its own task, with a deadline for every read that may stall.

use std::convert::identity;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use c3po_shared::limits::{
    AT_ONCE_PER_KEY, FRAME_MAX, HELLO_MAX, UNFINISHED_PER_KEY, WRONG_CODES_PER_MINUTE,
};
use c3po_shared::refusal::{Advice, Refusal};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::io::Errno;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admission::{Admission, farewell};
use super::admitted::{AdmittedStream, STALL_MAX};
use super::metered::{Peer, metered};
use super::tls::{FIRST_BYTE, HANDSHAKE_BYTES_MAX, HANDSHAKE_MAX, Transport};
use crate::metrics::Metrics;
use crate::request::Services;
use crate::session::MESSAGE_DEADLINE;
use crate::unfinished::{Budget, Intake};

/// The backlog of the listening socket. After a restart all clients connect at once, and a rejected client retries only after
/// seconds. Systems reduce this value to their own limit.
const BACKLOG: u32 = 4_096;
/// The deadline for the first byte of a connection, because a connection slot is not for silent clients.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// The deadline for the head of a request. It starts when the connection is ready for the request, so it also ends idle
/// connections.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// The deadline for the body of a request. There is no deadline for a response, because a wait takes long; only a stalled
/// write is limited.
pub(super) const BODY_TIME_MAX: Duration = Duration::from_secs(30);
/// The largest head of a request, in bytes.
const HEAD_SIZE_MAX: usize = 8 << 10;
/// The limit of header lines per request.
const HEADERS_MAX: usize = 64;
/// The limit of the read and write buffers of a connection, in bytes.
const BUFFER_MAX: usize = 16 << 10;
/// The buffers of the system for each direction of a connection, in bytes, of which it counts twice as many. By default, it holds
/// megabytes of answers for a client that reads nothing.
const SOCKET_BUFFER: u32 = 16 << 10;
/// The largest body of a request, in bytes: two texts of the maximum length, escaped.
pub(super) const BODY_MAX: usize = 1 << 20;
/// The largest body of a request with a code, in bytes.
pub(super) const CODE_BODY_MAX: usize = 8 << 10;
/// When a silent connection is asked whether its other side is there, how often, and how many times in vain: a machine without
/// power or network closes nothing.
const ASKED_AFTER: Duration = Duration::from_secs(30);
const ASKED_EVERY: Duration = Duration::from_secs(10);
const ASKED_TIMES: u32 = 3;
/// The deadline for the other side's system to acknowledge bytes, in milliseconds.
#[cfg(target_os = "linux")]
const ACKNOWLEDGED_MAX: u32 = 60_000;
/// The pause after an accept error. The process is out of descriptors or memory, and each accept would fail.
const PAUSE: Duration = Duration::from_secs(1);

/// Binds the port and starts to listen.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // The port can be bound again as soon as the coordinator has ended, even if old connections remain.
    socket.set_reuseaddr(true)?;
    // Before it listens: accepted connections inherit both, and the window is negotiated by them.
    socket.set_send_buffer_size(SOCKET_BUFFER)?;
    socket.set_recv_buffer_size(SOCKET_BUFFER)?;
    if let Err(error) = notice_absence(&socket) {
        tracing::warn!("connections of machines that are gone will last: {error}");
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Has the system notice machines that are gone. Accepted connections inherit this.
fn notice_absence(socket: &TcpSocket) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, ASKED_AFTER)?;
    sockopt::set_tcp_keepintvl(socket, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, ASKED_TIMES)?;
    #[cfg(target_os = "linux")]
    sockopt::set_tcp_user_timeout(socket, ACKNOWLEDGED_MAX)?;
    Ok(())
}

/// Publishes the limits of connections as metrics.
pub(super) fn publish_limits(metrics: &Metrics, budget: &Budget) {
    metrics.limit("wrong_codes_per_minute", u64::from(WRONG_CODES_PER_MINUTE));
    metrics.limit("silent_seconds", SILENT_MAX.as_secs());
    metrics.limit("handshake_seconds", HANDSHAKE_MAX.as_secs());
    metrics.limit("head_seconds", HEAD_MAX.as_secs());
    metrics.limit("body_seconds", BODY_TIME_MAX.as_secs());
    metrics.limit("message_seconds", MESSAGE_DEADLINE.as_secs());
    metrics.limit("stalled_seconds", STALL_MAX.as_secs());
    for (of, value) in [
        ("head_bytes", HEAD_SIZE_MAX),
        ("headers", HEADERS_MAX),
        ("buffer_bytes", BUFFER_MAX),
        ("socket_bytes", SOCKET_BUFFER as usize),
        ("body_bytes", BODY_MAX),
        ("frame_bytes", FRAME_MAX),
        ("handshake_bytes", HANDSHAKE_BYTES_MAX),
        ("hello_bytes", HELLO_MAX),
        ("unfinished_bytes", budget.most()),
        ("unfinished_bytes_per_key", UNFINISHED_PER_KEY),
        ("at_once_per_key", AT_ONCE_PER_KEY),
    ] {
        metrics.limit(of, u64::try_from(value).unwrap_or(u64::MAX));
    }
}

/// Accepts the connections of the port.
pub(super) struct Door {
    listener: TcpListener,
    admission: Admission,
    serving: Serving,
}

impl Door {
    pub(super) fn new(listener: TcpListener, admission: Admission, serving: Serving) -> Self {
        Self {
            listener,
            admission,
            serving,
        }
    }

    /// Accepts until `stop` is cancelled. This loop never waits for a single connection.
    pub(super) async fn accept(self, tasks: &TaskTracker, stop: &CancellationToken) {
        while let Some(accepted) = stop.run_until_cancelled(self.listener.accept()).await {
            match accepted {
                Ok((stream, _)) => {
                    if let Some(admitted) = self.admission.admit(stream) {
                        tasks.spawn(self.serving.clone().connection(admitted, stop.clone()));
                    }
                }
                Err(error) if is_of_the_other_side(&error) => {}
                Err(error) => {
                    tracing::warn!("no connection can be accepted: {error}");
                    stop.run_until_cancelled(sleep(PAUSE)).await;
                }
            }
        }
    }
}

/// Returns whether the error concerns only a connection that was closed before it was accepted.
fn is_of_the_other_side(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Serves connections.
#[derive(Clone)]
pub(super) struct Serving {
    routes: Router,
    transport: Transport,
    services: Arc<Services>,
    http: Arc<http1::Builder>,
}

impl Serving {
    pub(super) fn new(routes: Router, transport: Transport, services: Arc<Services>) -> Self {
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(HEAD_MAX)
            .max_header_size(HEAD_SIZE_MAX)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_MAX);
        Self {
            routes,
            transport,
            services,
            http: Arc::new(http),
        }
    }

    /// Serves one connection to its end.
    async fn connection(self, admitted: AdmittedStream, stop: CancellationToken) {
        let begun = stop
            .run_until_cancelled(timeout(SILENT_MAX, admitted.first_byte()))
            .await;
        let Some(Ok(Ok(Some(first)))) = begun else {
            return;
        };
        // Boxed, because the serving futures are large and there are many silent connections.
        match self.transport.acceptor() {
            None => Box::pin(self.requests(admitted, stop)).await,
            Some(_) if first != FIRST_BYTE => {
                farewell(admitted, identity, "Bad Request", &no_tls()).await
            }
            Some(acceptor) => {
                let account = self
                    .services
                    .unfinished
                    .account_of_stranger(HANDSHAKE_BYTES_MAX);
                let intake =
                    Intake::new(admitted, account, HANDSHAKE_BYTES_MAX, HANDSHAKE_MAX).of_tls();
                let shaking = Box::pin(timeout(HANDSHAKE_MAX, acceptor.accept(intake)));
                match stop.run_until_cancelled(shaking).await {
                    Some(Ok(Ok(mut stream))) => {
                        stream.get_mut().0.finish();
                        Box::pin(self.requests(stream, stop)).await;
                    }
                    Some(Ok(Err(error))) => tracing::debug!("a handshake failed: {error}"),
                    Some(Err(_)) | None => {}
                }
            }
        }
    }

    /// Serves requests until the client leaves, is too slow, or is upgraded to a link, which has its own task.
    async fn requests(
        self,
        stream: impl AsyncRead + AsyncWrite + Peer + Unpin + Send + 'static,
        stop: CancellationToken,
    ) {
        let (stream, service) = metered(stream, self.routes, BUFFER_MAX);
        let mut connection = pin!(
            self.http
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
        );
        let outcome = tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!("a connection ended: {error}");
        }
    }
}

impl Peer for TlsStream<Intake<AdmittedStream>> {
    fn has_left(&self) -> bool {
        self.get_ref().0.stream().has_left()
    }

    fn begin_turn(&mut self) -> bool {
        self.get_mut().0.begin_turn()
    }
}

fn no_tls() -> Refusal {
    Refusal::invalid("plain HTTP request on a TLS port").advise(Advice::WriteHttps)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_machine_that_is_gone_keeps_no_connection() -> io::Result<()> {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let _theirs = tokio::net::TcpStream::connect(listener.local_addr()?).await?;
        let (ours, _) = listener.accept().await?;
        let (on, after) = (
            sockopt::socket_keepalive(&ours)?,
            sockopt::tcp_keepidle(&ours)?,
        );
        assert_eq!((on, after), (true, ASKED_AFTER));
        assert_eq!(sockopt::tcp_user_timeout(&ours)?, ACKNOWLEDGED_MAX);
        Ok(())
    }

    #[tokio::test]
    async fn the_system_takes_little_for_a_client_that_reads_nothing() -> io::Result<()> {
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let client = TcpSocket::new_v4()?;
        client.set_recv_buffer_size(4096)?;
        let _theirs = client.connect(listener.local_addr()?).await?;
        let (ours, _) = listener.accept().await?;
        let mut taken = 0;
        while let Ok(Ok(())) = timeout(PAUSE, ours.writable()).await {
            taken += ours.try_write(&[0; 4096]).unwrap_or_default();
        }
        let most = 3 * SOCKET_BUFFER as usize;
        assert!((1..most).contains(&taken), "{taken}");
        Ok(())
    }
}
