//! Unfinished input: the attacker sends most of a long input, keeps the connection open, and sends no more.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::siege::{frame, hello, upgrade};

/// The claimed length of the input in bytes: just below the largest frame and the largest body.
const LENGTH: usize = 1_000_000;
/// The number of bytes that are sent.
const SENT: usize = 990_000;

/// How long a connection stays open if the coordinator does not close it: longer than any of its deadlines.
const KEPT: Duration = Duration::from_secs(40);
/// How long a connection tries to send its part.
const SENDING: Duration = Duration::from_secs(3);
/// The pause after the coordinator closed a connection or had no connection slot.
const PAUSE: Duration = Duration::from_millis(200);

/// Keeps `count` connections with unfinished input open until the time is up, rotating through `kinds`.
pub async fn hold(address: SocketAddr, key: Option<&str>, kinds: &[Half], count: u32, span: Duration) {
    let holding = (0..count).map(async |number| {
        let half = kinds[number as usize % kinds.len()];
        loop {
            if let Ok(mut stream) = half.send(address, key, number, SENDING).await {
                // The outcome is ignored: another connection follows.
                let _ = timeout(KEPT, stream.read_to_end(&mut Vec::new())).await;
            }
            sleep(PAUSE).await;
        }
    });
    // The time limit ends all of them.
    let _ = timeout(span, join_all(holding)).await;
}

/// The kind of input that stays unfinished.
#[derive(Debug, Clone, Copy)]
pub enum Half {
    /// The body of a request to that path.
    Body(&'static str),
    /// The first frame of a link.
    FirstFrame,
    /// The first record of TLS.
    Handshake,
    /// A frame of a link after `hello`.
    LaterFrame,
}

impl Half {
    /// Sends the input as far as the server accepts it within that time. Returns the connection.
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

/// Returns a TLS ClientHello that claims almost 64 KiB, in records of 16,000 bytes, without its end.
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
