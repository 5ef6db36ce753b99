//! The WebSocket of one link: text frames, with a deadline for every write and every message in progress.

use c3po_shared::limits::{FRAME_MAX, HELLO_MAX};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};

use super::bounds::{CONTROL_FRAMES_MAX, MESSAGE_DEADLINE, READ_BUFFER, WRITE_BUFFER, WRITE_DEADLINE};
use crate::unfinished::{Account, Charge, Intake};

/// The connection is closed or broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// One connection.
pub(super) struct Connection {
    socket: WebSocketStream<Intake<TokioIo<Upgraded>>>,
    /// Pings and pongs since the last message.
    control_frames: usize,
}

impl Connection {
    /// Returns a connection that accepts messages up to the size limit of `hello`.
    pub(super) async fn new(upgraded: Upgraded, account: Account) -> Self {
        let stream = Intake::new(TokioIo::new(upgraded), account, HELLO_MAX, MESSAGE_DEADLINE);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER)
            .write_buffer_size(WRITE_BUFFER)
            .max_write_buffer_size(2 * FRAME_MAX)
            .max_message_size(Some(FRAME_MAX))
            .max_frame_size(Some(FRAME_MAX));
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config)).await;
        Self { socket, control_frames: 0 }
    }

    /// Raises the size limit of messages, after `hello`.
    pub(super) fn welcome(&mut self) {
        self.socket.get_mut().allow(FRAME_MAX);
    }

    /// Returns the next text frame with its charge. Cancel-safe. Binary frames break the protocol and end the link.
    pub(super) async fn receive(&mut self) -> Result<(String, Option<Charge>), Gone> {
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    self.control_frames = 0;
                    let held = self.socket.get_mut().settle(text.len());
                    return Ok((text.as_str().to_owned(), held));
                }
                Some(Ok(Message::Ping(payload) | Message::Pong(payload))) => {
                    self.socket.get_mut().note_control(payload.len());
                    // The response to each is kept until the client reads it.
                    self.control_frames += 1;
                    if self.control_frames > CONTROL_FRAMES_MAX {
                        return Err(Gone);
                    }
                }
                Some(Ok(Message::Binary(_) | Message::Close(_) | Message::Frame(_)) | Err(_)) | None => {
                    return Err(Gone);
                }
            }
        }
    }

    /// Writes and clears the frames. Nothing is queued: the link ends if the peer does not read in time.
    pub(super) async fn send(&mut self, frames: &mut Vec<String>) -> Result<(), Gone> {
        if frames.is_empty() {
            return Ok(());
        }
        let writing = async {
            for text in frames.drain(..) {
                self.socket.feed(Message::Text(text.into())).await?;
            }
            self.socket.flush().await
        };
        match timeout(WRITE_DEADLINE, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Writes one frame.
    pub(super) async fn send_one(&mut self, text: String) -> Result<(), Gone> {
        self.send(&mut vec![text]).await
    }

    /// Sends the close reason, best effort.
    pub(super) async fn close(&mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame { code: code.into(), reason: reason.into() };
        // The peer may already have gone.
        let _ = timeout(WRITE_DEADLINE, self.socket.send(Message::Close(Some(frame)))).await;
    }
}
