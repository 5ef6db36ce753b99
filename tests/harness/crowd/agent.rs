//! One agent of a crowd: the proxy's side of a link, without a proxy.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use c3po_shared::limits::HEARTBEAT;
use tokio::time::{Instant, timeout, timeout_at};
use uuid::Uuid;

use super::frames::{self, Kind};
use super::socket::Socket;
use super::tally::Tally;
use super::trouble::Trouble;

/// The deadline of an upgrade, a welcome or an answer.
const ANSWER: Duration = Duration::from_secs(30);
/// The arguments of the longest possible wait.
const WAIT: &str = "{\"timeout\":3600}";

/// The identity of an agent, the same on each of its links.
#[derive(Debug, Clone)]
pub struct Who {
    /// The name, which must be unique.
    pub name: String,
    instance: Uuid,
}

impl Who {
    /// Creates a new process with that name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            instance: Uuid::new_v4(),
        }
    }
}

/// One agent with a link.
#[derive(Debug)]
pub struct Agent {
    who: Who,
    socket: Socket,
    next_id: u64,
    beat_at: Instant,
    outgoing: String,
    /// The messages that were pushed to it and that it has not acknowledged yet.
    mail: Vec<String>,
}

impl Agent {
    /// Connects and sends `hello`.
    ///
    /// Errors: it was rejected, or there was no answer in time.
    pub async fn join(address: SocketAddr, who: &Who) -> Result<Self, Trouble> {
        let joining = async {
            let mut socket = Socket::open(address).await?;
            socket.send(&frames::hello(&who.name, who.instance)).await?;
            socket.next().await?;
            match frames::kind(socket.text()) {
                Kind::Result(0) => Ok(socket),
                _ => Err(refusal(socket.text())),
            }
        };
        let socket = timeout(ANSWER, joining)
            .await
            .map_err(|_| Trouble::TimedOut)??;
        // Spreads the heartbeats of agents that connected at the same time.
        let first = HEARTBEAT.mul_f64(f64::from(who.instance.as_fields().0) / f64::from(u32::MAX));
        let beat_at = Instant::now() + first;
        Ok(Self {
            who: who.clone(),
            socket,
            next_id: 0,
            beat_at,
            outgoing: String::new(),
            mail: Vec::new(),
        })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.who.name
    }

    /// Calls a tool; [`reply`](Self::reply) returns its answer. Messages pushed meanwhile are accepted.
    ///
    /// Errors: the call was refused, and the link can still be used; or the link is gone.
    pub async fn call(&mut self, tool: &str, arguments: &str) -> Result<(), Trouble> {
        let id = self.begin(tool, arguments).await?;
        let answered = async {
            loop {
                match self.next().await? {
                    Kind::Result(answered) if answered == id => return Ok(()),
                    Kind::Error(refused) if refused == id => {
                        return Err(refusal(self.socket.text()));
                    }
                    _ => {}
                }
            }
        };
        timeout(ANSWER, answered)
            .await
            .map_err(|_| Trouble::TimedOut)?
    }

    /// Waits for the next answer to anything.
    ///
    /// Errors: it was a refusal, or the link is gone.
    pub(super) async fn answered(&mut self) -> Result<(), Trouble> {
        loop {
            match self.next().await? {
                Kind::Result(_) => return Ok(()),
                Kind::Error(_) => return Err(refusal(self.socket.text())),
                _ => {}
            }
        }
    }

    /// Returns the frame that answered the latest call.
    pub fn reply(&self) -> &str {
        self.socket.text()
    }

    /// Waits for messages one after the other and handles each as a session does: reports it as `in_session` and `seen`, then
    /// waits again. Cancel the future to stop it.
    ///
    /// Errors: the link is gone, or a wait was refused.
    pub async fn wait_for_mail(&mut self, tally: &Tally) -> Result<Infallible, Trouble> {
        let mut waiting = self.begin("wait_for_message", WAIT).await?;
        loop {
            match self.next().await? {
                Kind::Result(id) if id == waiting => {
                    tally.arrived(frames::stamp(self.socket.text()));
                    if let Some(message) = frames::message_id(self.socket.text()) {
                        let message = message.to_owned();
                        self.say(|text, id| {
                            frames::receipt(text, id, &message, "in_session", "wait_for_message")
                        })
                        .await?;
                        self.say(|text, id| {
                            frames::receipt(text, id, &message, "seen", "tool_call")
                        })
                        .await?;
                    }
                    waiting = self.begin("wait_for_message", WAIT).await?;
                }
                Kind::Error(id) if id == waiting => return Err(refusal(self.socket.text())),
                Kind::Error(_) => tally.trouble(&refusal(self.socket.text())),
                _ => {}
            }
        }
    }

    /// Stays idle until then: sends heartbeats, and accepts pushed messages.
    ///
    /// Errors: the link is gone.
    pub async fn rest_until(&mut self, until: Instant) -> Result<(), Trouble> {
        loop {
            match timeout_at(until, self.next()).await {
                Ok(heard) => heard?,
                Err(_) => return Ok(()),
            };
        }
    }

    /// Acknowledges the pushed messages if there are at least `count`.
    ///
    /// Errors: the link is gone, or the call was refused.
    pub async fn acknowledge_from(&mut self, count: usize) -> Result<(), Trouble> {
        if self.mail.len() < count.max(1) {
            return Ok(());
        }
        let ids = format!("{{\"message_ids\":[\"{}\"]}}", self.mail.join("\",\""));
        self.mail.clear();
        self.call("ack_messages", &ids).await
    }

    /// Ends the session.
    pub async fn goodbye(mut self) {
        // The link may already be gone.
        let _ = timeout(ANSWER, self.socket.send(frames::GOODBYE)).await;
    }

    /// Begins a call. Returns its id.
    pub(super) async fn begin(&mut self, tool: &str, arguments: &str) -> Result<u64, Trouble> {
        self.say(|text, id| frames::call(text, id, tool, arguments))
            .await
    }

    /// Writes one request. Returns its id.
    async fn say(&mut self, write: impl FnOnce(&mut String, u64)) -> Result<u64, Trouble> {
        if Instant::now() >= self.beat_at {
            self.beat().await?;
        }
        self.next_id += 1;
        write(&mut self.outgoing, self.next_id);
        self.socket.send(&self.outgoing).await?;
        Ok(self.next_id)
    }

    async fn beat(&mut self) -> Result<(), Trouble> {
        self.beat_at = Instant::now() + HEARTBEAT;
        self.next_id += 1;
        frames::heartbeat(&mut self.outgoing, self.next_id);
        self.socket.send(&self.outgoing).await
    }

    /// Returns the next frame. Meanwhile sends heartbeats, and answers pushes.
    async fn next(&mut self) -> Result<Kind, Trouble> {
        loop {
            match timeout_at(self.beat_at, self.socket.next()).await {
                Err(_) => self.beat().await?,
                Ok(received) => {
                    received?;
                    let kind = frames::kind(self.socket.text());
                    if let Kind::Deliver(id) = kind {
                        self.mail
                            .extend(frames::delivered(self.socket.text()).map(str::to_owned));
                        frames::accepted(&mut self.outgoing, id);
                        self.socket.send(&self.outgoing).await?;
                    }
                    return Ok(kind);
                }
            }
        }
    }
}

fn refusal(text: &str) -> Trouble {
    Trouble::Call(frames::code(text).unwrap_or("without a code").to_owned())
}
