//! One WebSocket to one coordinator: the dial, `hello`, and reads and writes of frames.

use std::time::Duration;

use c3po_shared::join::Fingerprint;
use c3po_shared::refusal::{Advice, ErrorCode, Refusal};
use c3po_shared::wire::{
    CLOSE_REFUSED, CLOSE_TAKEN_OVER, Frame, Hello, Outgoing, RequestId, SUBPROTOCOL, Welcome,
};
use futures_util::{SinkExt, StreamExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message, Utf8Bytes};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::failed::{DialError, Stage};
use super::http;
use super::stream::{self, Stream};
use super::trust::Trust;
use crate::config::Secret;

/// Deadline of the dial, and of the reply to `hello`.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Deadline of a write. A coordinator that reads nothing for this long is treated as gone.
const WRITE_MAX: Duration = Duration::from_secs(10);

/// The largest accepted frame. A long thread is one reply, and a reply that breaks the connection would break the next
/// one too, so this is more than a frame should have.
const INCOMING_MAX: usize = 16 << 20;

/// An incoming event.
pub(super) enum Incoming {
    /// A text frame.
    Text(Utf8Bytes),
    /// A frame without text, such as a pong: the connection is alive.
    Alive,
    /// Another session took over the agent.
    TakenOver,
    /// The connection has ended.
    Closed(String),
}

/// One WebSocket to one coordinator.
pub(super) struct LinkSocket {
    socket: WebSocketStream<Stream>,
    /// The pinned certificate that identifies the coordinator.
    pinned: Option<Fingerprint>,
}

impl LinkSocket {
    /// Dials a coordinator.
    pub(super) async fn dial(
        target: &str,
        token: Option<&Secret>,
        trust: &Trust,
        stage: &Stage,
    ) -> Result<Self, DialError> {
        let no_url =
            |error: tungstenite::Error| DialError::failed(error.to_string(), Advice::WorkOn);
        let mut request = target.into_client_request().map_err(no_url)?;
        let headers = request.headers_mut();
        headers.insert(
            "sec-websocket-protocol",
            HeaderValue::from_static(SUBPROTOCOL),
        );
        if let Some(token) = token {
            let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
                .map_err(|_| DialError::Refused(bad_token()))?;
            bearer.set_sensitive(true);
            headers.insert("authorization", bearer);
        }
        // Small buffers: they are allocated at once and grow with the frames.
        let config = WebSocketConfig::default()
            .read_buffer_size(8 << 10)
            .write_buffer_size(8 << 10)
            .max_message_size(Some(INCOMING_MAX))
            .max_frame_size(Some(INCOMING_MAX));
        let uri = request.uri().clone();
        let dialling = async {
            let stream = stream::connect(&uri, trust, stage).await?;
            let pinned = stream.pinned(trust);
            let upgraded = client_async_with_config(request, stream, Some(config)).await;
            upgraded
                .map(|(socket, _)| Self { socket, pinned })
                .map_err(dial_error)
        };
        // Boxed because a handshake is large, and over before the link is used.
        match timeout(HANDSHAKE_MAX, Box::pin(dialling)).await {
            Ok(Err(error)) => Err(Box::pin(http::named(error, &uri, trust)).await),
            Ok(connected) => connected,
            Err(_) => Err(stage.gave_up(HANDSHAKE_MAX)),
        }
    }

    /// Returns the pinned certificate that identifies the coordinator; `None` without TLS, or if an authority identifies it.
    pub(super) fn pinned(&self) -> Option<Fingerprint> {
        self.pinned
    }

    /// Sends `hello`, which claims the agent's name. It must be the first request.
    pub(super) async fn hello(&mut self, hello: &Hello) -> Result<Welcome, DialError> {
        let failed =
            |error: String| DialError::failed(format!("hello: {error}"), Advice::SaysNothing);
        let id = RequestId::Number(0);
        self.write(&Outgoing::request(&id, "hello", hello).text())
            .await
            .map_err(failed)?;
        match timeout(HANDSHAKE_MAX, self.read_welcome()).await {
            Ok(outcome) => outcome,
            Err(_) => Err(failed(format!(
                "it did not answer within {} s",
                HANDSHAKE_MAX.as_secs()
            ))),
        }
    }

    async fn read_welcome(&mut self) -> Result<Welcome, DialError> {
        let failed = |why: String| DialError::failed(why, Advice::WorkOn);
        loop {
            let text = match self.read().await {
                Incoming::Text(text) => text,
                Incoming::Alive => continue,
                Incoming::TakenOver => {
                    return Err(failed("another session took over the agent".to_owned()));
                }
                Incoming::Closed(why) => return Err(failed(why)),
            };
            match Frame::parse(&text) {
                Ok(Frame::Response {
                    outcome: Ok(result),
                    ..
                }) => {
                    return serde_json::from_str(result.get())
                        .map_err(|error| failed(format!("hello: {error}")));
                }
                Ok(Frame::Response {
                    outcome: Err(error),
                    ..
                }) => return Err(DialError::Refused(error.into())),
                // Other frames before the reply are not for a proxy without a name.
                Ok(_) => {}
                Err(error) => return Err(failed(error.to_string())),
            }
        }
    }

    /// Reads the next event. Cancel-safe.
    pub(super) async fn read(&mut self) -> Incoming {
        match self.socket.next().await {
            Some(Ok(Message::Text(text))) => Incoming::Text(text),
            Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == CLOSE_TAKEN_OVER => {
                Incoming::TakenOver
            }
            Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == CLOSE_REFUSED => {
                Incoming::Closed(format!(
                    "the coordinator refused the connection: {}",
                    frame.reason
                ))
            }
            Some(Ok(Message::Close(_))) | None => {
                Incoming::Closed("the coordinator closed the connection".to_owned())
            }
            Some(Ok(_)) => Incoming::Alive,
            Some(Err(error)) => Incoming::Closed(error.to_string()),
        }
    }

    /// Adds a frame to the buffer, which [`Self::flush`] writes.
    pub(super) async fn feed(&mut self, text: String) -> Result<(), String> {
        bounded(self.socket.feed(Message::text(text))).await
    }

    /// Writes the buffered frames.
    pub(super) async fn flush(&mut self) -> Result<(), String> {
        bounded(self.socket.flush()).await
    }

    /// Writes one frame.
    pub(super) async fn write(&mut self, text: &str) -> Result<(), String> {
        bounded(self.socket.send(Message::text(text))).await
    }

    /// Sends a goodbye and closes, as far as that works at once.
    pub(super) async fn goodbye(&mut self) {
        let goodbye = Outgoing::notification("goodbye", &c3po_shared::wire::Empty {}).text();
        // A failure cannot be handled here; the coordinator notices the end of the connection.
        let _ = self.write(&goodbye).await;
        let _ = self.socket.close(None).await;
    }
}

async fn bounded(
    write: impl Future<Output = Result<(), tungstenite::Error>>,
) -> Result<(), String> {
    match timeout(WRITE_MAX, write).await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err(format!(
            "the coordinator read nothing for {} s",
            WRITE_MAX.as_secs()
        )),
    }
}

fn bad_token() -> Refusal {
    Refusal::new(
        ErrorCode::Unauthorized,
        "C3PO_TOKEN contains invalid characters",
    )
}

fn dial_error(error: tungstenite::Error) -> DialError {
    let response = match error {
        tungstenite::Error::Http(response) => response,
        tungstenite::Error::Io(error) => {
            return DialError::failed(error.to_string(), Advice::WorkOn);
        }
        error => return DialError::failed(error.to_string(), Advice::AnotherProgram),
    };
    let told = response
        .body()
        .as_deref()
        .and_then(|body| serde_json::from_slice::<Refusal>(body).ok());
    match (response.status().as_u16(), told) {
        (_, Some(refusal)) => DialError::Refused(refusal),
        (401, None) => DialError::Refused(Refusal::new(
            ErrorCode::Unauthorized,
            "the coordinator requires a token, and did not accept that of this host",
        )),
        (403, None) => DialError::Refused(Refusal::new(
            ErrorCode::Forbidden,
            "the coordinator denied access",
        )),
        (status, None) => {
            DialError::failed(format!("it answers HTTP {status}"), Advice::AnotherProgram)
        }
    }
}
