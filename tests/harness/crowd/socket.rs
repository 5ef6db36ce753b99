//! A minimal WebSocket client: one buffer in each direction, no copies, no allocation per frame.
//!
//! It supports only the frames of a coordinator, which are unmasked. Thousands of these sockets fit into one process
//! beside the coordinator under test; a full library would distort the measurement.

use std::net::SocketAddr;
use std::ops::Range;

use c3po_shared::wire::{PATH, SUBPROTOCOL};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::trouble::Trouble;

/// The minimum free space of the buffer before a read.
const ROOM: usize = 1024;
/// A larger buffer is shrunk when it is empty.
const KEPT: usize = 64 * 1024;
/// The longest answer to an upgrade.
const HEAD_MAX: usize = 16 * 1024;
/// The coordinator checks only that the key is present.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// One connection.
#[derive(Debug)]
pub struct Socket {
    stream: TcpStream,
    incoming: Vec<u8>,
    /// The start of the unprocessed bytes.
    unread: usize,
    /// The payload of the latest frame, or of the latest text.
    payload: Range<usize>,
    /// The part of a text whose last frame has not come.
    begun: Option<Range<usize>>,
    outgoing: Vec<u8>,
}

impl Socket {
    /// Connects and upgrades.
    ///
    /// Errors: the address is not reachable, or the upgrade was rejected.
    pub async fn open(address: SocketAddr) -> Result<Self, Trouble> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let mut socket = Self {
            stream,
            incoming: Vec::new(),
            unread: 0,
            payload: 0..0,
            begun: None,
            outgoing: Vec::with_capacity(512),
        };
        let request = format!(
            "GET {PATH} HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n\r\n"
        );
        socket.stream.write_all(request.as_bytes()).await?;
        socket.read_head().await?;
        Ok(socket)
    }

    async fn read_head(&mut self) -> Result<(), Trouble> {
        let end = loop {
            if let Some(at) = find(&self.incoming, b"\r\n\r\n") {
                break at + 4;
            }
            if self.incoming.len() > HEAD_MAX || self.read_more().await? == 0 {
                return Err(Trouble::Broken("the upgrade was not answered".to_owned()));
            }
        };
        let head = String::from_utf8_lossy(&self.incoming[..end]);
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_default();
        if status != 101 {
            let length = header(&head, "content-length")
                .and_then(|length| length.parse().ok())
                .unwrap_or_default();
            while self.incoming.len() < end + usize::min(length, HEAD_MAX)
                && self.read_more().await? > 0
            {}
            return Err(Trouble::refused(
                status,
                &String::from_utf8_lossy(&self.incoming[end..]),
            ));
        }
        self.unread = end;
        Ok(())
    }

    /// Waits for the next text frame; [`text`](Self::text) returns its text. Cancel-safe.
    ///
    /// Errors: the connection has ended.
    pub async fn next(&mut self) -> Result<(), Trouble> {
        loop {
            while let Some((kind, is_last, payload)) = self.take_frame()? {
                self.payload = payload;
                match kind {
                    TEXT | CONTINUATION => {
                        self.join();
                        if is_last {
                            self.begun = None;
                            return Ok(());
                        }
                    }
                    CLOSE => return Err(self.closed()),
                    // A pong is a few bytes into an empty buffer: it is written immediately, or with the next frame.
                    PING => self.answer_ping(),
                    PONG => {}
                    kind => return Err(Trouble::Broken(format!("a frame of kind {kind}"))),
                }
            }
            self.tidy();
            if self.read_more().await? == 0 {
                return Err(Trouble::Broken("the connection ended".to_owned()));
            }
        }
    }

    /// Appends the latest frame to the text that was begun, over the bytes between them.
    fn join(&mut self) {
        let begun = self
            .begun
            .take()
            .unwrap_or(self.payload.start..self.payload.start);
        let length = self.payload.len();
        self.incoming.copy_within(self.payload.clone(), begun.end);
        self.payload = begun.start..begun.end + length;
        self.begun = Some(self.payload.clone());
    }

    /// Returns the latest text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.incoming[self.payload.clone()]).unwrap_or_default()
    }

    /// Writes a text frame.
    ///
    /// Errors: the connection has ended.
    pub async fn send(&mut self, text: &str) -> Result<(), Trouble> {
        frame(&mut self.outgoing, TEXT, text.as_bytes());
        let written = self.stream.write_all(&self.outgoing).await;
        self.outgoing.clear();
        if self.outgoing.capacity() > KEPT {
            self.outgoing.shrink_to(ROOM);
        }
        Ok(written?)
    }

    fn answer_ping(&mut self) {
        let payload = self.incoming[self.payload.clone()].to_vec();
        frame(&mut self.outgoing, PONG, &payload);
        if let Ok(written) = self.stream.try_write(&self.outgoing) {
            self.outgoing.drain(..written);
        }
    }

    fn closed(&self) -> Trouble {
        let code = self.incoming[self.payload.clone()]
            .first_chunk()
            .map(|code| u16::from_be_bytes(*code));
        Trouble::Closed(code.unwrap_or(1005))
    }

    /// Returns the kind of the next frame, whether it is the last one of its message, and its payload, if it is complete.
    fn take_frame(&mut self) -> Result<Option<(u8, bool, Range<usize>)>, Trouble> {
        let here = &self.incoming[self.unread..];
        let Some(&[first, second]) = here.first_chunk() else {
            return Ok(None);
        };
        let (begin, length) = match second {
            126 => match here.get(2..4) {
                Some(&[high, low]) => (4, usize::from(u16::from_be_bytes([high, low]))),
                _ => return Ok(None),
            },
            127 => match here.get(2..).and_then(<[u8]>::first_chunk) {
                Some(length) => (
                    10,
                    usize::try_from(u64::from_be_bytes(*length)).unwrap_or(usize::MAX),
                ),
                None => return Ok(None),
            },
            length => (2, usize::from(length)),
        };
        if first & 0x70 != 0 || second > 127 {
            return Err(Trouble::Broken(
                "a frame that is masked or has extensions".to_owned(),
            ));
        }
        if here.len() < begin + length {
            return Ok(None);
        }
        let begin = self.unread + begin;
        self.unread = begin + length;
        Ok(Some((first & 0x0f, first & 0x80 != 0, begin..self.unread)))
    }

    /// Makes room for the next bytes: drops the processed ones.
    fn tidy(&mut self) {
        if let Some(begun) = &self.begun {
            self.incoming.drain(begun.end..self.unread);
            self.unread = begun.end;
            return;
        }
        self.incoming.drain(..self.unread);
        (self.unread, self.payload) = (0, 0..0);
        if self.incoming.is_empty() && self.incoming.capacity() > KEPT {
            self.incoming.shrink_to(ROOM);
        }
    }

    async fn read_more(&mut self) -> Result<usize, Trouble> {
        self.incoming.reserve(ROOM);
        Ok(self.stream.read_buf(&mut self.incoming).await?)
    }
}

/// Appends one client frame. The mask is zero, which is valid and costs nothing; no intermediary needs protection here.
fn frame(into: &mut Vec<u8>, kind: u8, payload: &[u8]) {
    into.push(0x80 | kind);
    match payload.len() {
        length @ 0..=125 => into.push(0x80 | u8::try_from(length).unwrap_or_default()),
        length @ 126..=0xffff => {
            into.push(0x80 | 126);
            into.extend(u16::try_from(length).unwrap_or_default().to_be_bytes());
        }
        length => {
            into.push(0x80 | 127);
            into.extend((length as u64).to_be_bytes());
        }
    }
    into.extend([0; 4]);
    into.extend(payload);
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim())
}
