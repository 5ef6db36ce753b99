//! Thousands of agents in one process, each with a WebSocket of its own: for measuring a coordinator, not for looking at it.
//!
//! What they cost themselves must stay far below what the coordinator pays for them, so frames are neither built nor
//! parsed as JSON. Whoever wants to see what was said takes [`link`](crate::link).

mod agent;
mod frames;
mod rough;
mod sending;
mod socket;
mod tally;
mod trouble;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::agent::{Agent, Who};
pub use self::rough::{Rough, RoughOnes};
pub use self::sending::{Pace, Sending, fill};
pub use self::socket::Socket;
pub use self::tally::{Counted, Tally, Times};
pub use self::trouble::Trouble;

/// How many agents connect at the same time. The listener's queue holds more.
const HANDSHAKES: usize = 256;
/// How long an agent rests before it connects again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the number of those who wait is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Many agents of one coordinator, or of several that share a store.
#[derive(Debug)]
pub struct Crowd {
    addresses: Arc<[SocketAddr]>,
    link_life: Option<Duration>,
    tally: Arc<Tally>,
    waiting: Arc<AtomicUsize>,
    handshakes: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Crowd {
    /// A crowd of nobody yet.
    pub fn new(address: SocketAddr) -> Self {
        Self::of_several([address])
    }

    /// A crowd that spreads over several coordinators. Who loses a link takes the next one.
    pub fn of_several(addresses: impl Into<Arc<[SocketAddr]>>) -> Self {
        Self {
            addresses: addresses.into(),
            link_life: None,
            tally: Arc::default(),
            waiting: Arc::default(),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Has each of those who wait lose its link now and then, about so long after it got it.
    #[must_use]
    pub fn with_link_life(mut self, link_life: Duration) -> Self {
        self.link_life = Some(link_life);
        self
    }

    /// Returns what was seen so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns how many agents have a link and wait for mail.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Has that many agents connect, all at once, and wait for mail: `name-0`, `name-1`, … Who loses the link comes back.
    pub fn gather(&self, name: &str, count: usize) {
        for number in 0..count {
            let life = Life {
                who: Who::new(format!("{name}-{number}")),
                number,
                addresses: Arc::clone(&self.addresses),
                link_life: self.link_life,
                tally: Arc::clone(&self.tally),
                waiting: Arc::clone(&self.waiting),
                handshakes: Arc::clone(&self.handshakes),
            };
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                stop.run_until_cancelled(life.live()).await;
            });
        }
    }

    /// Waits until so many wait for mail. Returns how long that took.
    ///
    /// Errors: it took longer than `within`; the error says how far they got.
    pub async fn gathered(&self, count: usize, within: Duration) -> Result<Duration> {
        let began = Instant::now();
        while self.waiting() < count {
            if began.elapsed() > within {
                let troubles = self.tally.take().troubles;
                bail!("after {within:?} only {} of {count} agents wait; {troubles:?}", self.waiting());
            }
            sleep(LOOK).await;
        }
        Ok(began.elapsed())
    }

    /// Connects that many agents, which do nothing by themselves.
    ///
    /// Errors: one of them did not get its link.
    pub async fn join(&self, name: &str, count: usize) -> Result<Vec<Agent>> {
        let mut agents = Vec::with_capacity(count);
        for number in 0..count {
            let address = self.addresses[number % self.addresses.len()];
            agents.push(Agent::join(address, &Who::new(format!("{name}-{number}"))).await?);
        }
        Ok(agents)
    }

    /// Ends all links of those who were gathered, as a host does that loses its power.
    pub async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// One agent's life.
struct Life {
    who: Who,
    number: usize,
    addresses: Arc<[SocketAddr]>,
    link_life: Option<Duration>,
    tally: Arc<Tally>,
    waiting: Arc<AtomicUsize>,
    handshakes: Arc<Semaphore>,
}

impl Life {
    /// Connects, waits for mail, and connects again when the link is gone.
    async fn live(self) {
        let mut attempt = self.number;
        loop {
            let Ok(turn) = self.handshakes.acquire().await else { return };
            let joined = settle(self.addresses[attempt % self.addresses.len()], &self.who).await;
            drop(turn);
            attempt += 1;
            let trouble = match joined {
                Ok(agent) => match self.wait(agent, attempt).await {
                    Some(trouble) => trouble,
                    None => continue,
                },
                Err(trouble) => trouble,
            };
            self.tally.trouble(&trouble);
            sleep(PAUSE).await;
        }
    }

    /// Waits for mail until the link is gone. Returns why, or `None` if this end let it go.
    async fn wait(&self, mut agent: Agent, attempt: usize) -> Option<Trouble> {
        let _present = Present::enter(&self.waiting);
        let waiting =
            async { agent.wait_for_mail(&self.tally).await.map_or_else(|trouble| trouble, |never| match never {}) };
        match self.link_life {
            // Between half of it and one and a half, so that they do not leave together.
            Some(life) => timeout(life.mul_f64(0.5 + (attempt * 37 % 100) as f64 / 100.0), waiting).await.ok(),
            None => Some(waiting.await),
        }
    }
}

/// Joins. The answer to a call says that the session is served.
async fn settle(address: SocketAddr, who: &Who) -> Result<Agent, Trouble> {
    let mut agent = Agent::join(address, who).await?;
    agent.call("ping", "{}").await?;
    Ok(agent)
}

/// Counts one who waits, for as long as it lives.
struct Present<'a>(&'a AtomicUsize);

impl<'a> Present<'a> {
    fn enter(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
