//! The kill test: agents send each other numbered messages while their infrastructure is killed, determined by a seed.
//!
//! [`run`] starts everything, and kills coordinators, the store and proxies with `kill -9` while messages are sent. Then it
//! lets everything restart, reads every inbox to its end, and passes the events to the [`crate::checker`].

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

/// The store of the coordinators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// One Redis that writes each accepted message to disk immediately, under two coordinators.
    Redis,
    /// Three such servers as a cluster, under two coordinators.
    Cluster,
    /// SQLite, under one coordinator.
    Sqlite,
}

/// The length and the difficulty of a storm.
#[derive(Debug, Clone)]
pub struct Storm {
    /// The number of messages that must be accepted.
    pub messages: usize,
    /// The number of agents that send them to each other.
    pub agents: usize,
    /// The seed of the randomness.
    pub seed: u64,
    /// The store.
    pub store: Store,
    /// The longest pause of an agent between two sends.
    pub pace: Duration,
}

/// The outcome of a storm.
#[derive(Debug)]
pub struct Aftermath {
    /// The counts and findings.
    pub report: Report,
    /// The number of kills of coordinators, the store and proxies, and of broken links.
    pub kills: [usize; 4],
    /// The duration of the scripts, from all processes of the store.
    pub scripts: Scripts,
    /// The duration of the run.
    pub took: Duration,
    /// The folder with the logs of every process, kept if there are findings.
    pub logs: Option<PathBuf>,
}

/// Runs the storm. `progress` receives status texts from time to time.
///
/// Errors: a part could not be started, which is not a finding.
pub async fn run(storm: Storm, progress: impl Fn(String)) -> Result<Aftermath> {
    let began = Instant::now();
    let world = Arc::new(World::start(storm.clone()).await?);
    let drivers = (0..storm.agents).map(|number| Driver::new(number, Arc::clone(&world)));
    let mut drivers: Vec<_> = drivers.collect();
    join_all(drivers.iter_mut().map(Driver::arrive))
        .await
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    progress(format!(
        "{} agents are there after {:?}",
        storm.agents,
        began.elapsed()
    ));
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
    Ok(Aftermath {
        report,
        kills,
        scripts,
        took: began.elapsed(),
        logs,
    })
}
