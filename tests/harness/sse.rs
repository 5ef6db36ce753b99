//! A reader of server-sent events, without a client library.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an event that is due may take, on a machine that builds at the same time.
const DUE: Duration = Duration::from_secs(20);

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentEvent {
    /// The id.
    pub id: u64,
    /// The name.
    pub event: String,
    /// The data.
    pub data: String,
}

/// A connection on which events arrive.
#[derive(Debug)]
pub struct EventSource {
    stream: TcpStream,
    /// Bytes that were read and not yet decoded.
    raw: Vec<u8>,
    /// Text without an end of an event so far.
    text: String,
}

impl EventSource {
    /// Opens a stream, with additional headers, each with its line end.
    ///
    /// Errors: the address is not reachable, or the status is not 200.
    pub async fn open(address: SocketAddr, path: &str, headers: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address).await.context("connecting")?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut source = Self {
            stream,
            raw: Vec::new(),
            text: String::new(),
        };
        let head = timeout(DUE, source.head()).await.context("no answer")??;
        if !head.starts_with("HTTP/1.1 200 ") {
            bail!("{head}");
        }
        Ok(source)
    }

    /// Returns the next event.
    ///
    /// Errors: the stream has ended, or no event arrives in time.
    pub async fn next(&mut self) -> Result<SentEvent> {
        timeout(DUE, self.event())
            .await
            .context("no event in time")?
    }

    /// Waits until the server ends the stream.
    ///
    /// Errors: it does not in time.
    pub async fn ends(&mut self) -> Result<()> {
        let ended = async { while self.event().await.is_ok() {} };
        timeout(DUE, ended).await.context("the stream goes on")
    }

    async fn event(&mut self) -> Result<SentEvent> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines = block.lines();
                    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
                };
                let found = match (field("id"), field("event"), field("data")) {
                    (Some(id), Some(event), Some(data)) => Some(SentEvent {
                        id: id.parse()?,
                        event: event.to_owned(),
                        data: data.to_owned(),
                    }),
                    _ => None,
                };
                self.text = rest.to_owned();
                if let Some(found) = found {
                    return Ok(found);
                }
            }
            let chunk = self.chunk().await?;
            self.text.push_str(&chunk);
        }
    }

    async fn head(&mut self) -> Result<String> {
        loop {
            let end = self.raw.windows(4).position(|bytes| bytes == b"\r\n\r\n");
            if let Some(end) = end {
                let head: Vec<u8> = self.raw.drain(..end + 4).collect();
                return Ok(String::from_utf8(head)?);
            }
            self.read().await?;
        }
    }

    async fn chunk(&mut self) -> Result<String> {
        loop {
            if let Some(line) = self.raw.windows(2).position(|bytes| bytes == b"\r\n") {
                let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..line])?, 16)?;
                if size == 0 {
                    bail!("the stream has ended");
                }
                if self.raw.len() >= line + size + 4 {
                    let chunk = self.raw[line + 2..line + 2 + size].to_vec();
                    self.raw.drain(..line + size + 4);
                    return Ok(String::from_utf8(chunk)?);
                }
            }
            self.read().await?;
        }
    }

    async fn read(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.raw).await? == 0 {
            bail!("the stream was cut");
        }
        Ok(())
    }
}
