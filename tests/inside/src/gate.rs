//! A coordinator that lets nobody in without a key, and keys of every kind for it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_coordinator::cli::{Action, CommandLine};
use c3po_coordinator::config::Config;
use clap::Parser as _;

use crate::served::Served;
use harness::eventually::eventually;
use harness::http;

/// From its start to its first answer, on a machine that builds at the same time.
const READY: Duration = Duration::from_secs(20);

/// One that demands keys.
#[derive(Debug)]
pub struct Gate {
    /// The coordinator.
    pub served: Served,
}

impl Gate {
    /// Starts one with the embedded store.
    ///
    /// Errors: it does not start.
    pub async fn start() -> Result<Self> {
        Self::start_with(|_| ()).await
    }

    /// Starts one after `change` has changed its settings.
    ///
    /// Errors: it does not start.
    pub async fn start_with(change: impl FnOnce(&mut Config)) -> Result<Self> {
        let closed = |config: &mut Config| {
            config.is_open = false;
            change(config);
        };
        let gate = Self { served: Served::start_with(closed).await? };
        // Whoever answers there has its own socket as well.
        let address = gate.address()?;
        eventually("it answers", READY, async || http::get(address, "/api/health").await.ok()).await?;
        Ok(gate)
    }

    /// Returns where it listens.
    ///
    /// Errors: that is no address.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.served.address.parse()?)
    }

    /// Asks what the words on the command line of `c3po-coordinator` ask. Returns what is printed.
    ///
    /// Errors: they are none, or are refused.
    pub async fn ask(&self, words: &[&str]) -> Result<String> {
        let line = CommandLine::try_parse_from([&["c3po-coordinator"], words].concat())?;
        let Some(Action::Admin(request)) = line.action else { anyhow::bail!("{words:?} asks nothing") };
        request.ask(self.served.folder(), self.address()?, None).await
    }

    /// Makes a key. Returns its text.
    ///
    /// Errors: it is refused.
    pub async fn key(&self, scope: &str, agents: &str, more: &[&str]) -> Result<String> {
        let words = [&["keys", "create", "somebody", "--scope", scope, "--agents", agents], more].concat();
        Ok(self.ask(&words).await?.lines().next().context("nothing was printed")?.to_owned())
    }

    /// Ends a key.
    ///
    /// Errors: there is none of that text.
    pub async fn revoke(&self, key: &str) -> Result<()> {
        self.ask(&["keys", "revoke", id(key)?]).await.map(drop)
    }
}

/// Returns the id that stands in the text of a key.
///
/// Errors: it is no key.
pub fn id(key: &str) -> Result<&str> {
    key.split('_').nth(1).context("it is no key")
}
