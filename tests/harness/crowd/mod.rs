//! Thousands of agents in one process, each with a WebSocket of its own: for measuring a coordinator, not for looking at it.
//!
//! What they cost themselves must stay far below what the coordinator pays for them, so frames are neither built nor
//! parsed as JSON. Whoever wants to see what was said takes [`link`](crate::link).

mod agent;
mod frames;
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
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::agent::{Agent, Who};
pub use self::sending::{Pace, Sending};
pub use self::tally::{Counted, Tally, Times};
pub use self::trouble::Trouble;

/// How many agents connect at the same time. The listener's queue holds more.
const HANDSHAKES: usize = 256;
/// How long an agent rests before it connects again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often the number of those who wait is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// Many agents of one coordinator.
#[derive(Debug)]
pub struct Crowd {
    address: SocketAddr,
    tally: Arc<Tally>,
    waiting: Arc<AtomicUsize>,
    handshakes: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Crowd {
    /// A crowd of nobody yet.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tally: Arc::default(),
            waiting: Arc::default(),
            handshakes: Arc::new(Semaphore::new(HANDSHAKES)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
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
            let (who, stop) = (Who::new(format!("{name}-{number}")), self.stop.clone());
            let lived = live(
                self.address,
                who,
                Arc::clone(&self.tally),
                Arc::clone(&self.waiting),
                Arc::clone(&self.handshakes),
            );
            self.tasks.spawn(async move {
                stop.run_until_cancelled(lived).await;
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
            agents.push(Agent::join(self.address, &Who::new(format!("{name}-{number}"))).await?);
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

/// One agent's life: connects, waits for mail, and connects again when the link is gone.
async fn live(address: SocketAddr, who: Who, tally: Arc<Tally>, waiting: Arc<AtomicUsize>, handshakes: Arc<Semaphore>) {
    loop {
        let joined = match handshakes.acquire().await {
            Ok(_turn) => settle(address, &who).await,
            Err(_) => return,
        };
        let trouble = match joined {
            Ok(mut agent) => {
                let _present = Present::enter(&waiting);
                agent.wait_for_mail(&tally).await.map_or_else(|trouble| trouble, |never| match never {})
            }
            Err(trouble) => trouble,
        };
        tally.trouble(&trouble);
        sleep(PAUSE).await;
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
