//! A coordinator in the test's own process, with a store in its own folder.

use std::sync::Arc;

use anyhow::{Context, Result};
use c3po_coordinator::config::{Config, Fleet, NtfyFlags, StoreAddress, Tls};
use c3po_coordinator::store::{self, Store};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use harness::link::Link;

/// A running coordinator. Dropping it stops it.
#[derive(Debug)]
pub struct Served {
    /// The address on which it listens, such as `127.0.0.1:40123`.
    pub address: String,
    /// Its store, for direct inspection.
    pub store: Arc<dyn Store>,
    stop: CancellationToken,
    serving: JoinHandle<Result<()>>,
    folder: TempDir,
}

impl Served {
    /// Starts one with the embedded store, without a rate limit and without the guard against loops.
    pub async fn start() -> Result<Self> {
        Self::start_with(|_| ()).await
    }

    /// Starts one after `change` has changed its settings.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Result<Self> {
        let folder = TempDir::new()?;
        let mut config = Config {
            fleet: Fleet::default(),
            store: StoreAddress::Sqlite(folder.path().join("c3po.db")),
            data_dir: folder.path().to_owned(),
            tls: Tls::Off,
            rate_limit: None,
            loop_messages: None,
            store_quota: None,
            store_max: None,
            message_life: c3po_shared::limits::MESSAGE_LIFE,
            max_connections: None,
            token: None,
            policy: None,
            audit_entries: Some(1_000),
            is_open: true,
            answers_need_login: false,
            public_url: None,
            command: None,
            allowed_hosts: Vec::new(),
            ntfy: NtfyFlags::default(),
        };
        change(&mut config);
        // As on the command line: a token disables access without a key.
        config.is_open &= config.token.is_none();
        let store = store::open_within(&config.store, &config.fleet, config.store_max).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let stop = CancellationToken::new();
        let serving = TaskTracker::new().spawn(c3po_coordinator::run(
            listener,
            config,
            Arc::clone(&store),
            stop.clone(),
        ));
        Ok(Self {
            address,
            store,
            stop,
            serving,
            folder,
        })
    }

    /// Returns the folder of its files.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Opens a link of a new session with that name.
    pub async fn join(&self, name: &str) -> Result<Link> {
        Ok(Link::join(&self.address, name).await?.0)
    }

    /// Waits until it ends by itself, and returns the result.
    pub async fn ended(self) -> Result<()> {
        self.serving.await.context("the coordinator panicked")?
    }

    /// Stops it as SIGTERM does, and waits for its end. Returns its folder, which contains the store.
    pub async fn stop(self) -> Result<TempDir> {
        self.stop.cancel();
        self.serving.await.context("the coordinator panicked")??;
        Ok(self.folder)
    }
}
