//! The kill test: agents send each other numbered messages while, by a seed, everything they stand on is killed.
//!
//! [`run`] starts it all, kills coordinators, the store and proxies with `kill -9` as long as messages are sent, lets
//! everything come up again, reads every inbox to its end, and has the [`checker`](crate::checker) look through it.

mod agent;
mod close;
mod kills;
mod scripts;
mod session;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::future::join_all;

use crate::checker::{self, Report};
use agent::Driver;
pub use scripts::Scripts;
use world::World;

/// Which store is under the coordinators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// Redis that writes each accepted message to disk at once, under two coordinators.
    Redis,
    /// Three of those that share the keys, under two coordinators.
    Cluster,
    /// SQLite, under one coordinator.
    Sqlite,
}

/// How long and how hard.
#[derive(Debug, Clone)]
pub struct Storm {
    /// How many messages are to be accepted.
    pub messages: usize,
    /// How many agents send them to each other.
    pub agents: usize,
    /// What chance follows from.
    pub seed: u64,
    /// What they are kept in.
    pub store: Store,
    /// How long an agent pauses at the most between two sends.
    pub pace: Duration,
}

/// What became of it.
#[derive(Debug)]
pub struct Aftermath {
    /// What was counted and found.
    pub report: Report,
    /// How often coordinators, the store, and proxies were killed, and links broken.
    pub kills: [usize; 4],
    /// What the scripts of all processes of the store took.
    pub scripts: Scripts,
    /// How long it took.
    pub took: Duration,
    /// The logs of every process, kept where something was found.
    pub logs: Option<PathBuf>,
}

/// Lets the storm go through. `progress` is told now and then how it stands.
///
/// Errors: something could not be started, which is no finding.
pub async fn run(storm: Storm, progress: impl Fn(String)) -> Result<Aftermath> {
    let began = Instant::now();
    let world = Arc::new(World::start(storm.clone()).await?);
    let drivers = (0..storm.agents).map(|number| Driver::new(number, Arc::clone(&world)));
    let mut drivers: Vec<_> = drivers.collect();
    join_all(drivers.iter_mut().map(Driver::arrive)).await.into_iter().collect::<Result<Vec<_>>>()?;
    progress(format!("{} agents are there after {:?}", storm.agents, began.elapsed()));
    let killing = async {
        let kills = kills::until_all_is_sent(&world, &progress).await;
        close::tell_the_end(&world, &progress).await;
        kills
    };
    let (sessions, kills) = tokio::join!(join_all(drivers.iter_mut().map(Driver::live)), killing);
    let sessions = sessions.into_iter().collect::<Result<Vec<_>>>()?;
    progress(format!("every inbox is read after {:?}", began.elapsed()));
    close::read_the_rest(&world, sessions).await?;
    for redis in &world.redis {
        world.count_scripts(&*redis.lock().await).await;
    }
    let scripts = world.scripts();
    let report = checker::check(&world.record.events());
    let logs = world.end(!report.findings.is_empty()).await;
    Ok(Aftermath { report, kills, scripts, took: began.elapsed(), logs })
}
