//! The WebSocket of one link: text in, text out, a deadline on every write.

use axum::extract::ws::{CloseFrame, Message, WebSocket};
use futures_util::SinkExt;
use tokio::time::timeout;

use super::bounds::WRITE_DEADLINE;

/// The other side is no longer there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    socket: WebSocket,
}

impl Connection {
    pub(super) fn new(socket: WebSocket) -> Self {
        Self { socket }
    }

    /// Returns the next text frame. Cancel-safe. Binary frames break the protocol and end the link.
    pub(super) async fn receive(&mut self) -> Result<String, Gone> {
        loop {
            match self.socket.recv().await {
                Some(Ok(Message::Text(text))) => return Ok(text.as_str().to_owned()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_) | Message::Close(_)) | Err(_)) | None => return Err(Gone),
            }
        }
    }

    /// Writes frames, and empties what held them. Nothing is queued: who does not read in time is gone.
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

    /// Says why the link ends, if the other side still listens.
    pub(super) async fn close(&mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame { code, reason: reason.into() };
        // Who is gone needs no farewell.
        let _ = timeout(WRITE_DEADLINE, self.socket.send(Message::Close(Some(frame)))).await;
    }
}
