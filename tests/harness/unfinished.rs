//! Unfinished input and unread output: the attacker keeps the connection open and does nothing more.

use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use c3po_shared::limits::TEXT_MAX;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::entry::{Entry, Stream};
use crate::siege::{frame, frame_head, hello, upgrade};

/// The claimed length of the input in bytes: just below the largest frame and the largest body.
const LENGTH: usize = 1_000_000;
/// The bytes that are sent.
static SENT: [u8; 990_000] = [b' '; 990_000];
/// The further header lines of a long head, and the length of each: together just below the largest head.
const HEADERS: usize = 56;
const HEADER: usize = 120;
/// The bytes of a body that are not charged, without its first one.
const FREE: usize = (4 << 10) - 1;
/// The longest text of a message, in characters of the most bytes.
static TEXT: LazyLock<String> = LazyLock::new(|| "\u{1f4e2}".repeat(TEXT_MAX));

/// How long a connection stays open if the coordinator does not close it: longer than any of its deadlines.
const KEPT: Duration = Duration::from_secs(40);
/// How long a connection tries to send its part.
const SENDING: Duration = Duration::from_secs(3);
/// How many connections are opened again per second after the coordinator closed or rejected them.
const AGAIN_PER_SECOND: u32 = 500;
/// The shortest pause of such a connection.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// The number of agents of each kind: one key may have more.
const AGENTS: u32 = 300;
/// The number of calls per connection.
const CALLS: usize = 4;

/// Keeps `count` connections with unfinished input open until the time is up, rotating through `kinds`.
pub async fn hold(entry: &Entry, key: Option<&str>, kinds: &[Half], count: u32, span: Duration) {
    let pause = PAUSE_MIN.max(Duration::from_secs(1) * count / AGAIN_PER_SECOND);
    let holding = (0..count).map(async |number| {
        let half = kinds[number as usize % kinds.len()];
        loop {
            if let Ok(mut stream) = half.send(entry, key, number, SENDING).await {
                match half {
                    Half::Answers => sleep(KEPT).await,
                    // The outcome is ignored: another connection follows.
                    _ => drop(timeout(KEPT, copy(&mut stream, &mut sink())).await),
                }
            }
            sleep(pause).await;
        }
    });
    // The time limit ends all of them.
    let _ = timeout(span, join_all(holding)).await;
}

/// The kind of unfinished input, or other load.
#[derive(Debug, Clone, Copy)]
pub enum Half {
    /// The body of a request to that path.
    Body(&'static str),
    /// The longest head of a request to that path, and as much of its body as is not charged.
    Head(&'static str),
    /// The first frame of a link.
    FirstFrame,
    /// The first record of TLS.
    Handshake,
    /// A frame of a link after `hello`.
    LaterFrame,
    /// Broadcasts of the longest text, each of them whole.
    Broadcasts,
    /// Calls of a link that reads neither its answers nor its messages.
    Answers,
}

impl Half {
    /// Sends the input as far as the server accepts it within that time. Returns the connection.
    ///
    /// Errors: there is no connection, or the coordinator closed it.
    pub async fn send(
        self,
        entry: &Entry,
        key: Option<&str>,
        number: u32,
        within: Duration,
    ) -> io::Result<Box<dyn Stream>> {
        if let Self::Handshake = self {
            let mut stream = entry.dial(number).await?;
            stream.write_all(&half_a_handshake()).await?;
            return Ok(Box::new(stream));
        }
        let mut stream = timeout(within, entry.connect(number))
            .await
            .map_err(|_| io::ErrorKind::TimedOut)??;
        match timeout(within, self.say(&mut *stream, entry, key, number)).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(())) | Err(_) => Ok(stream),
        }
    }

    async fn say(
        self,
        stream: &mut dyn Stream,
        entry: &Entry,
        key: Option<&str>,
        number: u32,
    ) -> io::Result<()> {
        if let Self::Body(path) = self {
            stream
                .write_all(head_of_a_body(entry, path, key).as_bytes())
                .await?;
            return stream.write_all(&SENT).await;
        }
        if let Self::Head(path) = self {
            let head = head_of_a_body(entry, path, key);
            stream
                .write_all(head.trim_end_matches("\r\n").as_bytes())
                .await?;
            for number in 0..HEADERS {
                let line = format!("\r\nX-{number}: {}", "x".repeat(HEADER));
                stream.write_all(line.as_bytes()).await?;
            }
            stream.write_all(b"\r\n\r\n{").await?;
            return stream.write_all(&SENT[..FREE]).await;
        }
        begin(stream, entry, key).await?;
        let agent = number % AGENTS;
        let name = match self {
            Self::Broadcasts => format!("caster-{agent}"),
            Self::Answers => format!("deaf-{agent}"),
            _ => format!("half-{agent}"),
        };
        if !matches!(self, Self::FirstFrame) {
            stream
                .write_all(&frame(0x81, hello(&name, agent).as_bytes()))
                .await?;
            stream.read_exact(&mut [0; 4]).await?;
        }
        match self {
            Self::Broadcasts => {
                call(stream, "broadcast", &format!(r#""message":"{}""#, *TEXT)).await
            }
            Self::Answers => call(stream, "get_messages", r#""limit":1000"#).await,
            _ => {
                stream.write_all(&frame_head(0x81, LENGTH)).await?;
                stream.write_all(&SENT).await
            }
        }
    }
}

/// Calls a tool some times, and waits for no answer.
async fn call(stream: &mut dyn Stream, tool: &str, arguments: &str) -> io::Result<()> {
    for id in 0..CALLS {
        let call_id = Uuid::now_v7();
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"call","params":{{"call_id":"{call_id}","tool":"{tool}","arguments":{{{arguments}}}}}}}"#
        );
        stream.write_all(&frame(0x81, text.as_bytes())).await?;
    }
    stream.flush().await
}

/// Upgrades a connection to a link.
async fn begin(stream: &mut dyn Stream, entry: &Entry, key: Option<&str>) -> io::Result<()> {
    stream
        .write_all(upgrade(entry.address, key).as_bytes())
        .await?;
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
    let record =
        |part: &[u8]| [&[0x16, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    hello.chunks(16_000).flat_map(record).collect()
}

fn head_of_a_body(entry: &Entry, path: &str, key: Option<&str>) -> String {
    let key = key
        .map(|key| format!("Authorization: Bearer {key}\r\n"))
        .unwrap_or_default();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nX-Agent-ID: half\r\n\
         Accept: application/json, text/event-stream\r\n{key}Content-Length: {LENGTH}\r\n\r\n",
        entry.address
    )
}
