//! The infrastructure of the agents: coordinators, their store, folders, and the progress of the storm.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use c3po_shared::time::Timestamp;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Mutex as AsyncMutex;
use tokio_util::sync::CancellationToken;

use super::session::{Answer, Record, Session};
use super::{Scripts, Store, Storm};
use crate::breaker::Breaker;
use crate::cluster::Cluster;
use crate::coordinator::Coordinator;
use crate::dice::Dice;
use crate::mcp::McpClient;
use crate::proxy::proxy_command;
use crate::redis::Redis;

/// The state shared by the drivers and the killers.
#[derive(Debug)]
pub(super) struct World {
    pub(super) storm: Storm,
    pub(super) coordinators: Vec<AsyncMutex<Coordinator>>,
    pub(super) redis: Vec<AsyncMutex<Redis>>,
    /// The links between coordinators and their store, and between proxies and coordinators.
    pub(super) links: Vec<Breaker>,
    pub(super) record: Arc<Record>,
    /// The number of messages that were accepted or queued.
    pub(super) sent: AtomicUsize,
    /// The number of sends without an answer.
    pub(super) sending: AtomicUsize,
    /// Cancelled when enough messages were sent: the kills and the sends end.
    pub(super) calm: CancellationToken,
    /// Cancelled when everything is up again and no messages are queued on hosts: a message that is not in an inbox now is
    /// lost.
    pub(super) over: CancellationToken,
    urls: Vec<String>,
    scripts: Mutex<Scripts>,
    sessions: Mutex<Vec<Option<Arc<Session>>>>,
    work: TempDir,
}

/// Starts the servers of a store. Returns them with the coordinators on it and the links between, which can be broken.
async fn on(store: Store, work: &Path) -> Result<(Vec<Redis>, Vec<Coordinator>, Vec<Breaker>)> {
    let mut links = Vec::new();
    let (redis, coordinators) = match store {
        Store::Redis => {
            let redis = Redis::start_with(&["--appendfsync", "always"]).await?;
            let mut coordinators = Vec::new();
            for name in ["0", "1"] {
                let link = Breaker::before(redis.address()).await?;
                coordinators.push(coordinator(
                    work,
                    name,
                    &format!("redis://{}", link.address()),
                )?);
                links.push(link);
            }
            (vec![redis], coordinators)
        }
        Store::Cluster => {
            // The servers of a cluster give their own addresses to clients, so no breaker can be put in between.
            let cluster = Cluster::start_with(&["--appendfsync", "always"]).await?;
            let url = cluster.url();
            let coordinators = ["0", "1"].map(|name| coordinator(work, name, &url));
            (
                cluster.masters,
                coordinators.into_iter().collect::<Result<_>>()?,
            )
        }
        Store::Sqlite => {
            let store = format!("sqlite:{}", work.join("c3po.db").display());
            (Vec::new(), vec![coordinator(work, "0", &store)?])
        }
    };
    Ok((redis, coordinators, links))
}

impl World {
    pub(super) async fn start(storm: Storm) -> Result<Self> {
        let work = tempfile::Builder::new()
            .prefix("c3po-storm-")
            .tempdir()
            .context("making a folder")?;
        let (redis, coordinators, mut links) = on(storm.store, work.path()).await?;
        let mut urls = Vec::new();
        for coordinator in &coordinators {
            let link = Breaker::before(coordinator.address()).await?;
            urls.push(format!("http://{}", link.address()));
            links.push(link);
        }
        let world = Self {
            scripts: Mutex::default(),
            sessions: Mutex::new((0..storm.agents).map(|_| None).collect()),
            storm,
            coordinators: coordinators.into_iter().map(AsyncMutex::new).collect(),
            redis: redis.into_iter().map(AsyncMutex::new).collect(),
            record: Arc::default(),
            sent: AtomicUsize::new(0),
            sending: AtomicUsize::new(0),
            calm: CancellationToken::new(),
            over: CancellationToken::new(),
            links,
            urls,
            work,
        };
        for coordinator in &world.coordinators {
            coordinator.lock().await.restart().await?;
        }
        Ok(world)
    }

    /// Starts a session of that agent: its proxy, with the coordinators in random order.
    pub(super) async fn session(&self, name: &str, dice: &mut Dice) -> Result<Arc<Session>> {
        let mut urls = self.urls.clone();
        dice.shuffle(&mut urls);
        let mut command = proxy_command(self.work.path(), name, &urls.join(","))?;
        command.env("C3PO_LOG", "debug");
        let at = Timestamp::now();
        let client =
            McpClient::start(command, &self.work.path().join(format!("{name}.log")))?.quietly();
        client
            .initialize()
            .await
            .with_context(|| format!("the proxy of {name}"))?;
        Ok(Arc::new(Session::new(
            name,
            client,
            at,
            Arc::clone(&self.record),
        )))
    }

    /// Records the current session of an agent, for the loop that kills proxies.
    pub(super) fn present(&self, agent: usize, session: Option<Arc<Session>>) {
        if let Some(seat) = self
            .sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_mut(agent)
        {
            *seat = session;
        }
    }

    /// Returns the current session of an agent.
    pub(super) fn session_of(&self, agent: usize) -> Option<Arc<Session>> {
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(agent)?
            .clone()
    }

    /// Adds the script statistics of a Redis, which are lost when its process ends.
    pub(super) async fn count_scripts(&self, redis: &Redis) {
        // A server that does not respond has nothing to add.
        if let Ok(more) = Scripts::of(redis).await {
            *self.scripts.lock().unwrap_or_else(PoisonError::into_inner) += more;
        }
    }

    /// Returns the statistics of all scripts.
    pub(super) fn scripts(&self) -> Scripts {
        *self.scripts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns an agent's name.
    pub(super) fn name(number: usize) -> String {
        format!("agent{number}")
    }

    /// Counts a message that must arrive. The last one ends the storm.
    pub(super) fn one_more_is_sent(&self) {
        if self.sent.fetch_add(1, Ordering::Relaxed) + 1 >= self.storm.messages {
            self.calm.cancel();
        }
    }

    /// Returns the journals on this host that contain queued messages.
    pub(super) fn journals(&self) -> Vec<PathBuf> {
        let folder = self.work.path().join(".local/state/c3po/journal");
        let Ok(entries) = std::fs::read_dir(folder) else {
            return Vec::new();
        };
        let files = entries.flatten().map(|entry| entry.path());
        let holds = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
        files
            .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
            .filter(holds)
            .collect()
    }

    /// Makes a send, and counts it as open until it is answered.
    pub(super) async fn send(&self, session: &Session, tool: &str, arguments: Value) -> Answer {
        self.sending.fetch_add(1, Ordering::Relaxed);
        let answer = session.call(tool, arguments).await;
        self.sending.fetch_sub(1, Ordering::Relaxed);
        answer
    }

    /// Returns whether no message is on its way into an inbox any more.
    pub(super) fn is_settled(&self) -> bool {
        self.sending.load(Ordering::Relaxed) == 0 && self.journals().is_empty()
    }

    /// Ends the run. Returns the folder of the logs, if it is to be kept.
    pub(super) async fn end(&self, keep: bool) -> Option<PathBuf> {
        let folder =
            keep.then(|| std::env::temp_dir().join(format!("c3po-storm-{:x}", self.storm.seed)));
        if let Some(folder) = &folder {
            // The logs are only for people; the findings are complete without them.
            let _ = std::fs::remove_dir_all(folder);
            let copied = std::process::Command::new("cp")
                .arg("-r")
                .arg(self.work.path())
                .arg(folder)
                .status();
            copied.ok().filter(std::process::ExitStatus::success)?;
        }
        folder
    }
}

/// Chooses a port for a coordinator with its own folder below `work`.
fn coordinator(work: &Path, name: &str, store: &str) -> Result<Coordinator> {
    let folder = work.join(format!("coordinator{name}"));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(Coordinator::absent(&folder, store)?.unlimited().quietly())
}
