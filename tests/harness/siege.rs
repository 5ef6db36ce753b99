//! Sends invalid or unexpected input to every endpoint of a coordinator, at a given rate. A seed makes the attacks
//! repeatable.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use c3po_shared::wire::SUBPROTOCOL;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::task::TaskTracker;

use crate::dice::Dice;
use crate::entry::Entry;

/// The most concurrent attacks; further ones are skipped and counted.
const AT_ONCE: usize = 400;
/// The time limit of one attack, even if it is still waiting.
const ATTACK_MAX: Duration = Duration::from_secs(3);
/// The largest request, in bytes: above every limit.
const LARGE: usize = 1_200_000;

/// The target and the parameters of the attacks.
#[derive(Debug, Clone)]
pub struct Siege {
    /// The coordinator.
    pub entry: Entry,
    /// A key, for endpoints that need one.
    pub key: Option<String>,
    /// The number of attacks per second.
    pub rate: f64,
    /// The duration.
    pub span: Duration,
    /// The seed, with which the attacks can be repeated.
    pub seed: u64,
}

/// The counts of the attacks.
#[derive(Debug, Default)]
pub struct Done {
    /// The attacks that were started.
    pub begun: AtomicU64,
    /// The attacks that were skipped because of our own limit.
    pub left_out: AtomicU64,
}

impl Siege {
    /// Attacks until the time is up.
    pub async fn run(self) -> Arc<Done> {
        let (done, room, tasks) = (
            Arc::new(Done::default()),
            Arc::new(Semaphore::new(AT_ONCE)),
            TaskTracker::new(),
        );
        let mut ticks = interval(Duration::from_secs_f64(1.0 / self.rate));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let end = Instant::now() + self.span;
        for number in 0.. {
            if ticks.tick().await >= end {
                break;
            }
            let Ok(place) = Arc::clone(&room).try_acquire_owned() else {
                done.left_out.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            done.begun.fetch_add(1, Ordering::Relaxed);
            let (siege, mut dice) = (self.clone(), Dice::of(self.seed, number));
            tasks.spawn(async move {
                // The outcome is ignored: only the effect on other clients counts.
                let _ = timeout(ATTACK_MAX, siege.attack(&mut dice)).await;
                drop(place);
            });
        }
        tasks.close();
        tasks.wait().await;
        done
    }

    async fn attack(&self, dice: &mut Dice) -> std::io::Result<()> {
        match dice.below(8) {
            0 => {
                let bytes = noise(dice, 400);
                self.say(&bytes, dice).await
            }
            1 => {
                let body = noise(dice, 60);
                let half = half_of(self.request(dice, &body), dice);
                self.say(&half, dice).await
            }
            2 => {
                let request = self.request(dice, &[b' '; 40_000]);
                self.say(&request, dice).await
            }
            3 => {
                let body = mangled(dice);
                let request = self.request(dice, &body);
                self.say(&request, dice).await
            }
            4 => {
                let large = vec![b'x'; dice.below(LARGE)];
                let request = self.request(dice, &large);
                self.say(&request, dice).await
            }
            _ => self.link(dice).await,
        }
    }

    /// Writes the bytes, sometimes slowly, and usually reads the response.
    async fn say(&self, bytes: &[u8], dice: &mut Dice) -> std::io::Result<()> {
        let mut stream = self.entry.connect(dice.throw() as u32).await?;
        if dice.percent(10) {
            for piece in bytes.chunks(bytes.len() / 8 + 1) {
                stream.write_all(piece).await?;
                tokio::time::sleep(dice.millis(1, 200)).await;
            }
        } else {
            stream.write_all(bytes).await?;
        }
        if dice.percent(70) {
            stream.read_to_end(&mut Vec::new()).await?;
        }
        Ok(())
    }

    /// Returns a request with that body to a random path.
    fn request(&self, dice: &mut Dice, body: &[u8]) -> Vec<u8> {
        const PATHS: [&str; 12] = [
            "/mcp",
            "/acp",
            "/api/join",
            "/api/keys",
            "/api/pending?limit=-1",
            "/api/agents",
            "/api/invites",
            "/metrics",
            "/api/audit?since=x&limit=99999999999",
            "/join.sh",
            "/download/../../etc/passwd/c3po",
            "/%00%ff",
        ];
        const METHODS: [&str; 5] = ["GET", "POST", "DELETE", "PUT", "BREW"];
        let (method, path) = (
            METHODS[dice.below(METHODS.len())],
            PATHS[dice.below(PATHS.len())],
        );
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n",
            self.entry.address,
            body.len()
        );
        head += "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\n";
        match (&self.key, dice.below(4)) {
            (Some(key), 0 | 1) => {
                head += &format!(
                    "Authorization: Bearer {key}\r\nX-Agent-ID: siege-{}\r\n",
                    dice.below(4)
                )
            }
            (_, 2) => {
                head += &format!(
                    "X-API-Key: c3po_{:08x}_{}\r\n",
                    dice.throw() as u32,
                    "A".repeat(dice.below(900))
                )
            }
            _ => head += &format!("X-Agent-ID: {}\r\n", "\u{e4}".repeat(dice.below(80))),
        }
        [format!("{head}\r\n").as_bytes(), body].concat()
    }

    /// Opens a link if the coordinator accepts it, and sends invalid frames on it.
    async fn link(&self, dice: &mut Dice) -> std::io::Result<()> {
        let mut stream = self.entry.connect(dice.throw() as u32).await?;
        stream
            .write_all(upgrade(self.entry.address, self.key.as_deref()).as_bytes())
            .await?;
        let mut answer = [0; 512];
        if stream.read(&mut answer).await? == 0 {
            return Ok(());
        }
        if dice.percent(60) {
            let hello = hello(&format!("siege-{}", dice.below(8)), dice.throw() as u32);
            stream.write_all(&frame(0x81, hello.as_bytes())).await?;
        }
        for _ in 0..=dice.below(6) {
            let payload = if dice.percent(10) {
                vec![b'{'; dice.below(LARGE)]
            } else {
                mangled(dice)
            };
            let kind = [0x81, 0x81, 0x81, 0x82, 0x01, 0x89, 0x88, 0xff][dice.below(8)];
            let whole = frame(kind, &payload);
            let cut = if dice.percent(15) {
                dice.below(whole.len())
            } else {
                whole.len()
            };
            stream.write_all(&whole[..cut]).await?;
        }
        if dice.percent(50) {
            stream.read_to_end(&mut Vec::new()).await?;
        }
        Ok(())
    }
}

/// Returns the upgrade request of a link.
pub(crate) fn upgrade(address: SocketAddr, key: Option<&str>) -> String {
    let key = key
        .map(|key| format!("Authorization: Bearer {key}\r\n"))
        .unwrap_or_default();
    format!(
        "GET /acp HTTP/1.1\r\nHost: {address}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n{key}\r\n"
    )
}

/// Returns the `hello` frame of a link.
pub(crate) fn hello(name: &str, instance: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"hello","params":{{"protocol_version":"1.0","name":"{name}",
        "host":"h","instance":"{instance:08x}-0000-4000-8000-000000000000","client":{{"name":"x","version":"0"}}}}}}"#
    )
}

/// Returns a client frame with a zero mask.
pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    [&frame_head(kind, payload.len())[..], payload].concat()
}

/// The head of a frame with so many bytes.
pub(crate) fn frame_head(kind: u8, length: usize) -> Vec<u8> {
    let mut head = vec![kind];
    match u16::try_from(length) {
        Ok(length) if length < 126 => head.push(0x80 | length as u8),
        Ok(length) => {
            head.push(0x80 | 126);
            head.extend(length.to_be_bytes());
        }
        Err(_) => {
            head.push(0x80 | 127);
            head.extend((length as u64).to_be_bytes());
        }
    }
    head.extend([0; 4]);
    head
}

fn noise(dice: &mut Dice, most: usize) -> Vec<u8> {
    (0..dice.below(most)).map(|_| dice.throw() as u8).collect()
}

fn half_of(mut bytes: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
    bytes.truncate(dice.below(bytes.len() + 1));
    bytes
}

/// Returns a call with some bytes changed, removed or doubled.
fn mangled(dice: &mut Dice) -> Vec<u8> {
    const WHOLE: [&str; 6] = [
        r#"{"jsonrpc":"2.0","id":7,"method":"call","params":{"call_id":"0191e6b0-0000-7000-8000-000000000001","tool":"send_message","arguments":{"target":"siege-1","message":"x"}}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_messages","arguments":{"limit":50}}}"#,
        r#"{"jsonrpc":"2.0","id":"a","method":"receipt","params":{"message_ids":["a::b::00000000"],"stage":"seen","via":"tool_call"}}"#,
        r#"{"code":"AAAAAAAAAAAAAAAAAAAAAA","host":"h"}"#,
        r#"{"jsonrpc":"2.0","method":"session","params":{"state":"ready","context":18446744073709551615}}"#,
        r#"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[{"\u0000":-1e400,"\ud800":[]}]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"#,
    ];
    let mut bytes = WHOLE[dice.below(WHOLE.len())].as_bytes().to_vec();
    for _ in 0..dice.below(4) {
        let at = dice.below(bytes.len());
        match dice.below(3) {
            0 => bytes[at] = dice.throw() as u8,
            1 => bytes.truncate(at.max(1)),
            _ => {
                let again = bytes[at..].to_vec();
                bytes.extend(again);
            }
        }
    }
    bytes
}
