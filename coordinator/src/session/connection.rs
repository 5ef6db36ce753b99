//! The WebSocket of one link: text frames, with a deadline for every write and every message in progress.

use std::future::poll_fn;
use std::iter;
use std::task::Poll;

use c3po_shared::limits::{FRAME_MAX, HELLO_MAX};
use futures_util::{FutureExt, SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::bounds::{
    CONTROL_FRAMES_MAX, FRAGMENT, MESSAGE_DEADLINE, READ_BUFFER, TOGETHER, WRITE_BUFFER,
    WRITE_BUFFER_MAX, WRITE_DEADLINE,
};
use super::outbox::Outbox;
use crate::unfinished::{Account, Charge, Intake};

/// The connection is closed or broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// One connection.
pub(super) struct Connection<S = TokioIo<Upgraded>> {
    /// Always there between two calls.
    socket: Option<WebSocketStream<Intake<S>>>,
    /// Pings and pongs since the last message.
    control_frames: usize,
    /// Whether a ping was read whose response may not be written yet.
    owes_pong: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Returns a connection that accepts messages up to the size limit of `hello`.
    pub(super) fn new(upgraded: S, account: Account) -> Self {
        let stream = Intake::new(upgraded, account, HELLO_MAX, MESSAGE_DEADLINE).framed();
        Self {
            socket: Some(websocket(stream)),
            control_frames: 0,
            owes_pong: false,
        }
    }

    fn socket(&mut self) -> &mut WebSocketStream<Intake<S>> {
        self.socket.as_mut().expect("it is there between two calls")
    }

    /// Raises the size limit of messages, after `hello`.
    pub(super) fn welcome(&mut self) {
        self.socket().get_mut().allow(FRAME_MAX);
    }

    /// Replaces the WebSocket, whose read buffer keeps the length of its longest frame. Nothing is in that buffer.
    fn release_buffer(&mut self) {
        let old = self.socket.take().expect("only this takes it");
        self.socket = Some(websocket(old.into_inner()));
    }

    /// Returns the next text frame with its charge; `None` after some pings and pongs, or many frames of one text, so that they
    /// take turns as texts do. Cancel-safe. Binary frames break the protocol and end the link.
    pub(super) async fn receive(&mut self) -> Result<Option<(String, Option<Charge>)>, Gone> {
        if self.socket().get_ref().is_behind_long() {
            // A partly written answer to a ping would be lost.
            self.flush().await?;
            self.release_buffer();
        }
        loop {
            self.write_pong().await?;
            let read = poll_fn(|cx| match self.socket().poll_next_unpin(cx) {
                Poll::Pending if self.socket().get_mut().begin_turn() => Poll::Ready(None),
                polled => polled.map(Some),
            });
            let Some(read) = read.await else {
                return Ok(None);
            };
            match read {
                Some(Ok(Message::Text(text))) => {
                    self.control_frames = 0;
                    let held = self.socket().get_mut().settle(text.len());
                    return Ok(Some((text.as_str().to_owned(), held)));
                }
                Some(Ok(frame @ (Message::Ping(_) | Message::Pong(_)))) => {
                    self.owes_pong |= frame.is_ping();
                    self.socket().get_mut().note_control(frame.len());
                    self.control_frames += 1;
                    if self.control_frames > CONTROL_FRAMES_MAX {
                        return Err(Gone);
                    }
                    if self.control_frames.is_multiple_of(TOGETHER) {
                        return Ok(None);
                    }
                }
                Some(Ok(Message::Binary(_) | Message::Close(_) | Message::Frame(_)) | Err(_))
                | None => {
                    return Err(Gone);
                }
            }
        }
    }

    /// Writes the response to a ping before more is read: else the responses to a client that does not read would pile up.
    /// Cancel-safe.
    async fn write_pong(&mut self) -> Result<(), Gone> {
        if self.owes_pong {
            self.flush().await?;
            self.owes_pong = false;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        match timeout(WRITE_DEADLINE, self.socket().flush()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Writes the frames. Nothing is queued: the link ends if the peer does not read in time.
    pub(super) async fn send(&mut self, outbox: &mut Outbox) -> Result<(), Gone> {
        if outbox.is_empty() {
            return Ok(());
        }
        let (frames, _held) = outbox.take();
        let writing = async {
            // The buffer has room for a frame beside a response to a ping only if it is empty.
            self.socket().flush().await?;
            for text in frames {
                for frame in fragments(text) {
                    self.socket().feed(frame).await?;
                }
            }
            self.socket().flush().await
        };
        match timeout(WRITE_DEADLINE, writing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Gone),
        }
    }

    /// Writes one frame.
    pub(super) async fn send_one(&mut self, text: String) -> Result<(), Gone> {
        let mut outbox = Outbox::default();
        outbox.push(text);
        self.send(&mut outbox).await
    }

    /// Sends the close reason, best effort.
    pub(super) async fn close(&mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame {
            code: code.into(),
            reason: reason.into(),
        };
        // The peer may already have gone.
        let _ = timeout(
            WRITE_DEADLINE,
            self.socket().send(Message::Close(Some(frame))),
        )
        .await;
    }
}

/// Returns the WebSocket over an upgraded stream that stands between two messages.
fn websocket<S: AsyncRead + AsyncWrite + Unpin>(stream: Intake<S>) -> WebSocketStream<Intake<S>> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_write_buffer_size(WRITE_BUFFER_MAX)
        .max_message_size(Some(FRAME_MAX))
        .max_frame_size(Some(FRAME_MAX));
    let made = WebSocketStream::from_raw_socket(stream, Role::Server, Some(config));
    made.now_or_never().expect("it neither reads nor writes")
}

/// Returns the frames of a text. The write buffer keeps the length of its longest frame, so a long text has several.
fn fragments(text: String) -> impl Iterator<Item = Message> {
    let mut rest = Bytes::from(text);
    let mut opcode = Some(Data::Text);
    iter::from_fn(move || {
        let opcode = opcode
            .replace(Data::Continue)
            .filter(|opcode| *opcode == Data::Text || !rest.is_empty())?;
        let part = rest.split_to(rest.len().min(FRAGMENT));
        Some(Message::Frame(Frame::message(
            part,
            OpCode::Data(opcode),
            rest.is_empty(),
        )))
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::Instant;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::unfinished::{Budget, Room};

    /// Returns a frame of a client with that payload.
    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("short");
        [&[0x80 | kind, 0x80 | length, 0, 0, 0, 0], payload].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_no_pongs_is_not_read_on() {
        let (mut theirs, ours) = duplex(1024);
        let account = Budget::within(None).account(&Room::default(), FRAME_MAX);
        let mut connection = Connection::new(ours, account);
        let some = [
            frame(9, &[b'p'; 125]).repeat(CONTROL_FRAMES_MAX),
            frame(1, b"{}"),
        ]
        .concat();
        let writing = TaskTracker::new();
        writing.spawn(async move { while theirs.write_all(&some).await.is_ok() {} });
        let (began, mut read) = (Instant::now(), 0);
        while let Ok(received) = connection.receive().await {
            read += usize::from(received.is_some());
            assert!(read < 10, "the pongs of {read} messages pile up");
        }
        assert_eq!((read, began.elapsed()), (0, WRITE_DEADLINE));
    }

    #[tokio::test]
    async fn pings_take_turns_as_texts_do() {
        let (mut theirs, ours) = duplex(1 << 16);
        let account = Budget::within(None).account(&Room::default(), FRAME_MAX);
        let mut connection = Connection::new(ours, account);
        let some = [frame(9, b"p").repeat(TOGETHER), frame(1, b"{}")].concat();
        theirs.write_all(&some).await.expect("there is room");
        assert!(connection.receive().await.expect("pings").is_none());
        let text = connection.receive().await.expect("a text");
        assert_eq!(text.map(|(text, _)| text).as_deref(), Some("{}"));
    }

    #[tokio::test]
    async fn the_frames_of_one_text_take_turns_as_texts_do() {
        let (mut theirs, ours) = duplex(1 << 16);
        let account = Budget::within(None).account(&Room::default(), FRAME_MAX);
        let mut connection = Connection::new(ours, account);
        let some = [
            [0x01, 0x81, 0, 0, 0, 0, b'{'].to_vec(),
            [0x00, 0x80, 0, 0, 0, 0].repeat(1_000),
            frame(0, b"}"),
        ]
        .concat();
        theirs.write_all(&some).await.expect("there is room");
        let mut turns = 0;
        let text = loop {
            if let Some((text, _)) = connection.receive().await.expect("it is open") {
                break text;
            }
            turns += 1;
        };
        assert_eq!(text, "{}");
        assert!(turns >= 3, "{turns}");
    }

    #[test]
    fn a_long_text_has_several_frames_and_the_last_one_ends_it() {
        for (length, expected) in [
            (0, 1),
            (1, 1),
            (FRAGMENT, 1),
            (FRAGMENT + 1, 2),
            (3 * FRAGMENT, 3),
        ] {
            let frames: Vec<Frame> = fragments("x".repeat(length))
                .map(|message| match message {
                    Message::Frame(frame) => frame,
                    other => panic!("{other:?}"),
                })
                .collect();
            let lasts: Vec<bool> = frames.iter().map(|frame| frame.header().is_final).collect();
            let opcodes: Vec<OpCode> = frames.iter().map(|frame| frame.header().opcode).collect();
            assert_eq!(
                frames
                    .iter()
                    .map(|frame| frame.payload().len())
                    .sum::<usize>(),
                length
            );
            assert_eq!(
                (frames.len(), lasts.iter().position(|last| *last)),
                (expected, Some(expected - 1))
            );
            assert!(
                opcodes[0] == OpCode::Data(Data::Text)
                    && opcodes[1..]
                        .iter()
                        .all(|next| *next == OpCode::Data(Data::Continue))
            );
        }
    }
}
