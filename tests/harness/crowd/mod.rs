//! Thousands of agents in one process, each with its own WebSocket: for load measurements, not for detailed checks.
//!
//! The agents must cost far less than the load that they cause, so frames are neither built nor parsed as JSON. To inspect
//! frames, use [`link`](crate::link).

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

/// The number of agents that connect at the same time. The listener's queue holds more.
const HANDSHAKES: usize = 256;
/// How long an agent rests before it connects again.
const PAUSE: Duration = Duration::from_secs(1);
/// The interval at which the number of waiting agents is checked.
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
    /// Creates an empty crowd.
    pub fn new(address: SocketAddr) -> Self {
        Self::of_several([address])
    }

    /// Creates a crowd that spreads over several coordinators. An agent that loses its link connects to the next coordinator.
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

    /// Makes each waiting agent drop its link from time to time, on average after `link_life`.
    #[must_use]
    pub fn with_link_life(mut self, link_life: Duration) -> Self {
        self.link_life = Some(link_life);
        self
    }

    /// Returns the counts so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns how many agents are connected and wait for messages.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Makes that many agents connect at once and wait for messages: `name-0`, `name-1`, … An agent that loses its link
    /// reconnects.
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

    /// Waits until `count` agents wait for messages. Returns how long that took.
    ///
    /// Errors: it took longer than `within`; the error reports how many got there.
    pub async fn gathered(&self, count: usize, within: Duration) -> Result<Duration> {
        let began = Instant::now();
        while self.waiting() < count {
            if began.elapsed() > within {
                let troubles = self.tally.take().troubles;
                bail!(
                    "after {within:?} only {} of {count} agents wait; {troubles:?}",
                    self.waiting()
                );
            }
            sleep(LOOK).await;
        }
        Ok(began.elapsed())
    }

    /// Connects that many agents, which do nothing on their own.
    ///
    /// Errors: an agent did not get its link.
    pub async fn join(&self, name: &str, count: usize) -> Result<Vec<Agent>> {
        let mut agents = Vec::with_capacity(count);
        for number in 0..count {
            let address = self.addresses[number % self.addresses.len()];
            agents.push(Agent::join(address, &Who::new(format!("{name}-{number}"))).await?);
        }
        Ok(agents)
    }

    /// Drops all links of the gathered agents, like a host that loses power.
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
    /// Connects, waits for messages, and reconnects when the link is gone.
    async fn live(self) {
        let mut attempt = self.number;
        loop {
            let Ok(turn) = self.handshakes.acquire().await else {
                return;
            };
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

    /// Waits for messages until the link is gone. Returns the reason, or `None` if this end dropped it.
    async fn wait(&self, mut agent: Agent, attempt: usize) -> Option<Trouble> {
        let _present = Present::enter(&self.waiting);
        let waiting = async {
            agent
                .wait_for_mail(&self.tally)
                .await
                .map_or_else(|trouble| trouble, |never| match never {})
        };
        match self.link_life {
            // Between 50% and 150% of it, so that the agents do not leave together.
            Some(life) => timeout(
                life.mul_f64(0.5 + (attempt * 37 % 100) as f64 / 100.0),
                waiting,
            )
            .await
            .ok(),
            None => Some(waiting.await),
        }
    }
}

/// Connects, then makes a call: its answer shows that the session is being served.
async fn settle(address: SocketAddr, who: &Who) -> Result<Agent, Trouble> {
    let mut agent = Agent::join(address, who).await?;
    agent.call("ping", "{}").await?;
    Ok(agent)
}

/// Counts a waiting agent as long as it lives.
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
