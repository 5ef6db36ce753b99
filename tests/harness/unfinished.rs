//! Input that is never finished: the attacker sends most of something long, keeps the connection, and sends no more.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::siege::{frame, hello, upgrade};

/// The length of the thing that is never finished, in bytes: just below the largest frame and the largest body.
const LENGTH: usize = 1_000_000;
/// The part of it that is sent.
const SENT: usize = 990_000;

/// So long a connection is kept that the coordinator does not close: longer than any of its deadlines.
const KEPT: Duration = Duration::from_secs(40);
/// How long a connection tries to send what it has.
const SENDING: Duration = Duration::from_secs(3);
/// The pause after the coordinator closed a connection or had no place for it.
const PAUSE: Duration = Duration::from_millis(200);

/// Keeps so many connections with unfinished input at an address, of those kinds in turn, until the time is over.
pub async fn hold(address: SocketAddr, key: Option<&str>, kinds: &[Half], count: u32, span: Duration) {
    let holding = (0..count).map(async |number| {
        let half = kinds[number as usize % kinds.len()];
        loop {
            if let Ok(mut stream) = half.send(address, key, number, SENDING).await {
                // Whatever becomes of it: another one takes its place.
                let _ = timeout(KEPT, stream.read_to_end(&mut Vec::new())).await;
            }
            sleep(PAUSE).await;
        }
    });
    // The end of the time is the end of all of them.
    let _ = timeout(span, join_all(holding)).await;
}

/// The input that is not finished.
#[derive(Debug, Clone, Copy)]
pub enum Half {
    /// The body of a request to that path.
    Body(&'static str),
    /// The first message of a link.
    FirstFrame,
    /// The first message of TLS.
    Handshake,
    /// A message of a link that said `hello`.
    LaterFrame,
}

impl Half {
    /// Sends it, as far as it is accepted within that time. Returns the connection.
    ///
    /// Errors: there is no connection, or the coordinator closed it.
    pub async fn send(
        self,
        address: SocketAddr,
        key: Option<&str>,
        number: u32,
        within: Duration,
    ) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address).await?;
        let sending = async {
            match self {
                Self::Handshake => stream.write_all(&half_a_handshake()).await,
                Self::Body(path) => stream.write_all(&half_a_body(address, path, key)).await,
                Self::FirstFrame => {
                    begin(&mut stream, address, key).await?;
                    stream.write_all(&half_a_frame()).await
                }
                Self::LaterFrame => {
                    begin(&mut stream, address, key).await?;
                    let hello = hello(&format!("half-{number}"), number);
                    stream.write_all(&frame(0x81, hello.as_bytes())).await?;
                    stream.read_exact(&mut [0; 4]).await?;
                    stream.write_all(&half_a_frame()).await
                }
            }
        };
        match timeout(within, sending).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Ok(stream),
        }
    }
}

/// Upgrades a connection to a link.
async fn begin(stream: &mut TcpStream, address: SocketAddr, key: Option<&str>) -> io::Result<()> {
    stream.write_all(upgrade(address, key).as_bytes()).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(())
}

/// A hello of TLS that claims almost 64 KiB, in records of 16,000 bytes, and lacks the end.
fn half_a_handshake() -> Vec<u8> {
    let mut hello = vec![1, 0, 0xff, 0xec];
    hello.resize(59_000, 0);
    let record = |part: &[u8]| [&[0x16, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    hello.chunks(16_000).flat_map(record).collect()
}

fn half_a_frame() -> Vec<u8> {
    let mut half = frame(0x81, &[b' '; LENGTH]);
    half.truncate(SENT);
    half
}

fn half_a_body(address: SocketAddr, path: &str, key: Option<&str>) -> Vec<u8> {
    let key = key.map(|key| format!("Authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nX-Agent-ID: half\r\n\
         Accept: application/json, text/event-stream\r\n{key}Content-Length: {LENGTH}\r\n\r\n"
    );
    [head.as_bytes(), &[b' '; SENT]].concat()
}
