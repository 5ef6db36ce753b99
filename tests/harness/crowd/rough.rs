//! Agents that misbehave in one way each, to measure the effect on the other agents.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use c3po_shared::limits::SENDS_PER_MINUTE;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent::{Agent, Who};
use super::sending::{Lasts, fill, write_message};
use super::tally::Tally;
use super::trouble::Trouble;

/// The number of agents that misbehave at once, if it takes more than one.
const SEVERAL: usize = 4;
/// The number of agents that respect the rate limit.
const MANY: usize = 60;
/// The number of agents that receive the messages.
const SINKS: usize = 20;
/// The longest body that is accepted.
const LONG: usize = 50_000;
/// The number of long messages in an inbox that is not read.
const UNREAD: usize = 60;
/// The number of calls made without reading any answer.
const UNREAD_CALLS: usize = 100;
/// How long such a link is kept; the coordinator ends it earlier.
const HELD: Duration = Duration::from_secs(60);
/// The number of concurrent sends of one agent.
const FLOOD: usize = 200;
/// The limit of an inbox.
const INBOX: usize = 1_000;
/// The pause before an agent reconnects.
const PAUSE: Duration = Duration::from_millis(200);

/// A kind of misbehaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rough {
    /// Requests a large inbox repeatedly, and does not read the answers.
    StopsReading,
    /// Sends without waiting for the answers.
    Floods,
    /// Has a full inbox, to which other agents keep sending.
    Hoards,
    /// Sends bodies of the maximum size, each as soon as the last is answered.
    SendsLongBodies,
    /// Many agents that send such bodies, each as often as the rate limit allows.
    SendLongBodiesWithinTheLimit,
}

impl Rough {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::StopsReading,
        Self::Floods,
        Self::Hoards,
        Self::SendLongBodiesWithinTheLimit,
        Self::SendsLongBodies,
    ];

    /// Returns its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Self::StopsReading => "a reader that stops reading",
            Self::Floods => "a sender that floods",
            Self::Hoards => "an inbox at its bound",
            Self::SendsLongBodies => "50,000-character bodies, unlimited",
            Self::SendLongBodiesWithinTheLimit => "50,000-character bodies, 60 agents",
        }
    }
}

/// A group of misbehaving agents, until it is stopped.
#[derive(Debug)]
pub struct RoughOnes {
    tally: Arc<Tally>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl RoughOnes {
    /// Starts agents that misbehave in that way. Returns when they have begun.
    ///
    /// Errors: they could not begin.
    pub async fn start(address: SocketAddr, rough: Rough) -> Result<Self, Trouble> {
        let ones = Self {
            tally: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        };
        match rough {
            Rough::StopsReading => {
                leave_full(address, "deaf", UNREAD, LONG).await?;
                for number in 0..SEVERAL {
                    // The others do the same with a smaller inbox.
                    let name = if number == 0 {
                        "deaf".to_owned()
                    } else {
                        format!("deaf-{number}")
                    };
                    ones.run(move |tally| stop_reading(address, name, tally));
                }
            }
            Rough::Floods => {
                ones.sinks(address);
                let flooder = Agent::join(address, &Who::new("flooder")).await?;
                ones.run(move |tally| flood(flooder, tally));
            }
            Rough::Hoards => {
                leave_full(address, "hoarder", INBOX, 100).await?;
                for sender in senders(address, SEVERAL).await? {
                    let targets = vec!["hoarder".to_owned()];
                    ones.run(move |tally| send(sender, targets, 100, Duration::ZERO, tally));
                }
            }
            Rough::SendsLongBodies => {
                ones.sinks(address);
                for sender in senders(address, SEVERAL).await? {
                    ones.run(move |tally| send(sender, sinks(), LONG, Duration::ZERO, tally));
                }
            }
            Rough::SendLongBodiesWithinTheLimit => {
                ones.sinks(address);
                let every = Duration::from_secs(60) / SENDS_PER_MINUTE;
                for (number, sender) in senders(address, MANY).await?.into_iter().enumerate() {
                    let late = every * u32::try_from(number).unwrap_or_default()
                        / u32::try_from(MANY).unwrap_or(1);
                    ones.run(move |tally| async move {
                        sleep(late).await;
                        send(sender, sinks(), LONG, every, tally).await;
                    });
                }
            }
        }
        Ok(ones)
    }

    /// Returns the counts of these agents so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Stops them.
    pub async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn run<F: Future<Output = ()> + Send + 'static>(&self, behave: impl FnOnce(Arc<Tally>) -> F) {
        let (behaviour, stop) = (behave(Arc::clone(&self.tally)), self.stop.clone());
        self.tasks.spawn(async move {
            stop.run_until_cancelled(behaviour).await;
        });
    }

    fn sinks(&self, address: SocketAddr) {
        for name in sinks() {
            self.run(move |tally| async move {
                let who = Who::new(name);
                loop {
                    if let Ok(mut agent) = Agent::join(address, &who).await
                        && let Err(trouble) = agent.wait_for_mail(&tally).await
                    {
                        tally.trouble(&trouble);
                    }
                    sleep(PAUSE).await;
                }
            });
        }
    }
}

fn sinks() -> Vec<String> {
    (0..SINKS).map(|number| format!("sink-{number}")).collect()
}

async fn senders(address: SocketAddr, count: usize) -> Result<Vec<Agent>, Trouble> {
    let mut agents = Vec::new();
    for number in 0..count {
        agents.push(Agent::join(address, &Who::new(format!("rough-{number}"))).await?);
    }
    Ok(agents)
}

/// Creates an agent with `count` messages in its inbox, which then leaves.
async fn leave_full(
    address: SocketAddr,
    name: &str,
    count: usize,
    body: usize,
) -> Result<(), Trouble> {
    Agent::join(address, &Who::new(name)).await?.goodbye().await;
    fill(address, name, count, body).await
}

async fn stop_reading(address: SocketAddr, name: String, tally: Arc<Tally>) {
    let who = Who::new(name);
    loop {
        match Agent::join(address, &who).await {
            Ok(mut agent) => {
                for _ in 0..UNREAD_CALLS {
                    if agent
                        .begin("get_messages", "{\"limit\":1000}")
                        .await
                        .is_err()
                    {
                        break;
                    }
                }
                sleep(HELD).await;
            }
            Err(trouble) => tally.trouble(&trouble),
        }
        sleep(PAUSE).await;
    }
}

/// Keeps that many sends in flight, whatever the answers are.
async fn flood(mut agent: Agent, tally: Arc<Tally>) {
    let (targets, mut message, mut under_way, mut turn) = (sinks(), String::new(), 0, 0);
    loop {
        while under_way < FLOOD {
            write_message(
                &mut message,
                &targets[turn % targets.len()],
                tally.now(),
                100,
                Lasts::UntilSeen,
            );
            if let Err(trouble) = agent.begin("send_message", &message).await {
                return tally.trouble(&trouble);
            }
            (under_way, turn) = (under_way + 1, turn + 1);
        }
        match agent.answered().await {
            Ok(()) => tally.sent(tally.now()),
            Err(refused @ Trouble::Call(_)) => tally.trouble(&refused),
            Err(lost) => return tally.trouble(&lost),
        }
        under_way -= 1;
    }
}

/// Sends a message when the last one was answered and that much time has passed.
async fn send(
    mut agent: Agent,
    targets: Vec<String>,
    body: usize,
    every: Duration,
    tally: Arc<Tally>,
) {
    let (mut message, mut due) = (String::new(), Instant::now());
    for turn in 0_usize.. {
        if !every.is_zero()
            && let Err(lost) = agent.rest_until(due).await
        {
            return tally.trouble(&lost);
        }
        due += every;
        let begun = tally.now();
        write_message(
            &mut message,
            &targets[turn % targets.len()],
            begun,
            body,
            Lasts::UntilSeen,
        );
        match agent.call("send_message", &message).await {
            Ok(()) => tally.sent(begun),
            Err(refused @ Trouble::Call(_)) => tally.trouble(&refused),
            Err(lost) => return tally.trouble(&lost),
        }
    }
}
