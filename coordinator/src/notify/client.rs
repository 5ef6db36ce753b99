//! HTTP requests to an ntfy server: one connection each, without redirects.

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::{Method, Request, Response};
use bytes::BytesMut;
use futures_util::StreamExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection as Exchange, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, join, split};
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::server::Server;
use crate::config::Secret;
use crate::names;

/// The deadline of a request, with its connection and its response.
const DEADLINE: Duration = Duration::from_millis(1_500);
/// After this time a refused request is sent again.
const AGAIN: Duration = Duration::from_millis(100);
/// The largest response that is read, in bytes: a poll of a topic returns its messages.
const RESPONSE_MAX: usize = 4 << 20;
/// The longest line of a stream, in bytes: ntfy limits a message to 4 kB.
const LINE_MAX: usize = 32 << 10;
/// The longest silence in a stream. ntfy sends a line every 45 seconds by default.
const SILENCE: Duration = Duration::from_secs(120);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// The server did not respond, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// The server responded with an error.
    #[error("the server responded {status}: {text}")]
    Refused {
        /// The status, such as 403.
        status: u16,
        /// The beginning of the response, in one line.
        text: String,
    },
}

impl ClientError {
    fn unreachable(error: impl std::fmt::Display) -> Self {
        Self::Unreachable(error.to_string())
    }

    /// Returns whether other requests would fail too: the server is away or busy, or refuses further requests.
    pub(super) fn is_of_server(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
        }
    }
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    pub(super) token: Option<&'a Secret>,
    pub(super) body: String,
}

impl<'a> Ask<'a> {
    /// Returns a GET request.
    pub(super) fn get(path: &'a str, token: Option<&'a Secret>) -> Self {
        Self {
            method: Method::GET,
            path,
            token,
            body: String::new(),
        }
    }
}

/// The most of a response that is parsed at a time, in bytes: a server that sends heads without end must not keep the thread.
const PARSED_MAX: usize = 8 << 10;

/// How much of a stream may be read without any content, in bytes: hyper reads the size of a chunk byte by byte, and it may
/// have no end.
const BESIDE_CONTENT_MAX: usize = 64 << 10;

/// A reader that gives others their turn after so much, and fails once there is too much without content.
struct Paced<R> {
    reader: R,
    in_turn: usize,
    /// The bytes since the latest content; `None` for a response with a deadline.
    beside: Option<Arc<AtomicUsize>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Paced<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.in_turn >= PARSED_MAX {
            this.in_turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.reader).poll_read(cx, buffer);
        let read = buffer.filled().len() - before;
        this.in_turn = match polled {
            Poll::Ready(_) => this.in_turn + read,
            Poll::Pending => 0,
        };
        let beside = this.beside.as_ref();
        if beside.is_some_and(|beside| beside.fetch_add(read, Relaxed) > BESIDE_CONTENT_MAX) {
            let error = "the server sent no content for long";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        polled
    }
}

/// Returns the stream with its reading side paced.
fn paced(stream: TcpStream, beside: Option<Arc<AtomicUsize>>) -> impl Connection {
    let (reader, writer) = split(stream);
    let reader = Paced {
        reader,
        in_turn: 0,
        beside,
    };
    join(reader, writer)
}

trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// The TLS settings, with the certificate authorities of the system.
static TLS: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        tracing::warn!("this system has no certificate authorities for the ntfy server");
    }
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has ciphers of both versions");
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
});

/// Sends a request. Returns the body of the response. A refusal of its token is asked for twice: ntfy confuses the users of
/// one address whose requests come at the same time.
///
/// Errors: the server is unreachable, too slow, or responds with another status than 200.
pub(super) async fn send(server: &Server, ask: Ask<'_>) -> Result<String, ClientError> {
    match send_once(server, ask.clone()).await {
        Err(ClientError::Refused { status: 403, .. }) => {
            sleep(AGAIN).await;
            send_once(server, ask).await
        }
        outcome => outcome,
    }
}

/// Sends a request once.
///
/// Errors: as for [`send`].
pub(super) async fn send_once(server: &Server, ask: Ask<'_>) -> Result<String, ClientError> {
    let exchange = async {
        let stream = connect(server, None).await?;
        let (mut sender, connection) = handshake(stream).await.map_err(ClientError::unreachable)?;
        let asking = async move {
            let response = sender.send_request(request(server, ask)?).await;
            let response = response.map_err(ClientError::unreachable)?;
            text_of(response).await
        };
        // An error of the connection also fails its request.
        let (answer, _) = tokio::join!(asking, connection);
        answer
    };
    within(DEADLINE, exchange).await
}

/// The lines of a response that does not end.
pub(super) struct Lines {
    connection: Pin<Box<dyn Future<Output = ()> + Send>>,
    is_connected: bool,
    chunks: BodyDataStream,
    /// The bytes that were read since the latest content.
    beside: Arc<AtomicUsize>,
    unfinished: BytesMut,
}

/// Sends a request whose response is read by lines.
///
/// Errors: as for [`send`].
pub(super) async fn open(server: &Server, ask: Ask<'_>) -> Result<Lines, ClientError> {
    let beside = Arc::new(AtomicUsize::new(0));
    let opening = async {
        let stream = connect(server, Some(Arc::clone(&beside))).await?;
        let (mut sender, connection) = handshake(stream).await.map_err(ClientError::unreachable)?;
        // Its error also ends the response.
        let mut connection = Box::pin(async move { drop(connection.await) });
        let mut is_connected = true;
        let mut sending = pin!(sender.send_request(request(server, ask)?));
        let response = tokio::select! {
            response = &mut sending => response,
            () = &mut connection => {
                is_connected = false;
                sending.await
            }
        };
        let response = response.map_err(ClientError::unreachable)?;
        let lines = Lines {
            connection,
            is_connected,
            chunks: Body::empty().into_data_stream(),
            beside: Arc::clone(&beside),
            unfinished: BytesMut::new(),
        };
        Ok((lines, response))
    };
    let (mut lines, response) = within(DEADLINE, opening).await?;
    if response.status() != 200 {
        let text = lines.driving(within(DEADLINE, text_of(response))).await;
        return Err(text
            .err()
            .unwrap_or_else(|| ClientError::unreachable("no response")));
    }
    lines.chunks = Body::new(response.into_body()).into_data_stream();
    Ok(lines)
}

impl Lines {
    /// Returns the next line, or `None` at the end of the response.
    ///
    /// Errors: the connection broke, the server is silent, or a line is too long.
    pub(super) async fn next(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            // A server that sends lines without a pause must not keep the thread.
            consume_budget().await;
            if let Some(end) = self.unfinished.iter().position(|byte| *byte == b'\n') {
                let line = self.unfinished.split_to(end + 1);
                return Ok(Some(String::from_utf8_lossy(&line).trim().to_owned()));
            }
            if self.unfinished.len() > LINE_MAX {
                return Err(ClientError::unreachable("the server sent too long a line"));
            }
            let next = timeout(SILENCE, self.chunk()).await;
            let next =
                next.map_err(|_| ClientError::unreachable("the server has become silent"))?;
            let Some(chunk) = next.transpose().map_err(ClientError::unreachable)? else {
                return Ok(None);
            };
            self.beside.store(0, Relaxed);
            self.unfinished.extend_from_slice(&chunk);
        }
    }

    async fn chunk(&mut self) -> Option<Result<Bytes, axum::Error>> {
        if self.is_connected {
            tokio::select! {
                chunk = self.chunks.next() => return chunk,
                () = &mut self.connection => self.is_connected = false,
            }
        }
        self.chunks.next().await
    }

    /// Returns the result of work that needs the connection.
    async fn driving<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        if self.is_connected {
            tokio::select! {
                done = &mut work => return done,
                () = &mut self.connection => self.is_connected = false,
            }
        }
        work.await
    }
}

async fn handshake(
    stream: Box<dyn Connection>,
) -> hyper::Result<(
    SendRequest<Body>,
    Exchange<TokioIo<Box<dyn Connection>>, Body>,
)> {
    let mut builder = Builder::new();
    builder.max_buf_size(PARSED_MAX);
    builder.handshake(TokioIo::new(stream)).await
}

async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let late = |_| Err(ClientError::unreachable("no response in time"));
    timeout(deadline, work).await.unwrap_or_else(late)
}

async fn connect(
    server: &Server,
    beside: Option<Arc<AtomicUsize>>,
) -> Result<Box<dyn Connection>, ClientError> {
    let (host, port) = (server.host.clone(), server.port);
    let found = spawn_blocking(move || names::addresses(&host, port)).await;
    let found = found.map_err(ClientError::unreachable)?;
    let found = found.map_err(ClientError::unreachable)?;
    let stream = TcpStream::connect(found.as_slice()).await;
    let stream = paced(stream.map_err(ClientError::unreachable)?, beside);
    if !server.tls {
        return Ok(Box::new(stream));
    }
    let name = ServerName::try_from(server.host.clone()).map_err(ClientError::unreachable)?;
    let connector = TlsConnector::from(Arc::clone(&TLS));
    let stream = connector.connect(name, stream).await;
    Ok(Box::new(stream.map_err(ClientError::unreachable)?))
}

fn request(server: &Server, ask: Ask<'_>) -> Result<Request<Body>, ClientError> {
    let mut request = Request::builder()
        .method(ask.method)
        .uri(ask.path)
        .header(HOST, &server.authority)
        .header(CONTENT_TYPE, "application/json");
    if let Some(token) = ask.token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
    }
    request
        .body(Body::from(ask.body))
        .map_err(ClientError::unreachable)
}

async fn text_of(response: Response<Incoming>) -> Result<String, ClientError> {
    let status = response.status().as_u16();
    let body = to_bytes(Body::new(response.into_body()), RESPONSE_MAX).await;
    let body = body.map_err(ClientError::unreachable)?;
    let text = String::from_utf8_lossy(&body).into_owned();
    if status == 200 {
        return Ok(text);
    }
    let text = text.chars().filter(|c| !c.is_control()).take(200).collect();
    Err(ClientError::Refused { status, text })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_response_of_line_ends_keeps_no_thread() {
        let mut lines = Lines {
            connection: Box::pin(std::future::pending()),
            is_connected: true,
            chunks: Body::from(vec![b'\n'; 4 << 20]).into_data_stream(),
            beside: Arc::default(),
            unfinished: BytesMut::new(),
        };
        let reading = async { while let Ok(Some(_)) = lines.next().await {} };
        let others = async {
            let mut turns = 0;
            while turns < 1_000 {
                tokio::task::yield_now().await;
                turns += 1;
            }
            turns
        };
        // The deadline is seen only if the reader lets others work.
        tokio::select! {
            () = reading => panic!("it kept the thread to its end"),
            turns = others => assert_eq!(turns, 1_000),
        }
    }

    #[tokio::test]
    async fn a_server_of_endless_heads_keeps_no_thread() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().expect("a client");
            stream.read_exact(&mut [0; 4]).expect("a request");
            let heads = "HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
            while stream.write_all(heads.as_bytes()).is_ok() {}
        });
        let server = Server::parse(&url).expect("a server");
        let mut turns = 0;
        let others = async {
            loop {
                sleep(Duration::from_millis(10)).await;
                turns += 1;
            }
        };
        tokio::select! {
            sent = send_once(&server, Ask::get("/", None)) => drop(sent.expect_err("it has no end")),
            never = others => never,
        }
        assert!(turns > 2, "{turns} turns in {DEADLINE:?}");
    }

    #[tokio::test]
    async fn a_stream_without_end_is_read_in_turns() {
        let mut stream = Paced {
            reader: tokio::io::repeat(b'0'),
            in_turn: 0,
            beside: None,
        };
        for _ in 0..3 {
            let mut read = 0;
            let mut buffer = vec![0; PARSED_MAX];
            while let Poll::Ready(part) = futures_util::poll!(pin!(stream.read(&mut buffer))) {
                read += part.expect("read");
            }
            assert!((1..=2 * PARSED_MAX).contains(&read), "{read}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_never_has_content_is_given_up() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut stream, _) = listener.accept().expect("a client");
            stream.read_exact(&mut [0; 4]).expect("a request");
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\none\n\n\r\n";
            let zeros = "0".repeat(1 << 16);
            stream.write_all(head.as_bytes()).expect("written");
            while stream.write_all(zeros.as_bytes()).is_ok() {}
        });
        let server = Server::parse(&url).expect("a server");
        let mut lines = open(&server, Ask::get("/", None)).await.expect("opened");
        let first = lines.next().await.expect("a line");
        assert_eq!(first.as_deref(), Some("one"));
        let rest = timeout(Duration::from_secs(20), async {
            while lines.next().await.is_ok_and(|line| line.is_some()) {}
        });
        assert!(rest.await.is_ok(), "it is read for ever");
    }
}
