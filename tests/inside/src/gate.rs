//! A coordinator that requires keys, and keys of every kind for it.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_coordinator::cli::{Action, CommandLine};
use c3po_coordinator::config::Config;
use clap::Parser as _;
use serde_json::{Value, json};

use crate::served::Served;
use harness::eventually::eventually;
use harness::http;

/// How long the coordinator may take to respond after its start, on a machine that builds at the same time.
const READY: Duration = Duration::from_secs(20);

/// A coordinator that requires keys.
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
        let gate = Self {
            served: Served::start_with(closed).await?,
        };
        // A coordinator that answers has its control socket too.
        let address = gate.address()?;
        eventually("it answers", READY, async || {
            http::get(address, "/api/health").await.ok()
        })
        .await?;
        Ok(gate)
    }

    /// Returns the address on which it listens.
    ///
    /// Errors: the address is invalid.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.served.address.parse()?)
    }

    /// Runs the `c3po-coordinator` command with these words. Returns its output.
    ///
    /// Errors: the words are not such a command, or it is refused.
    pub async fn ask(&self, words: &[&str]) -> Result<String> {
        let line = CommandLine::try_parse_from([&["c3po-coordinator"], words].concat())?;
        let Some(Action::Admin(request)) = line.action else {
            anyhow::bail!("{words:?} asks nothing")
        };
        request
            .ask(self.served.folder(), self.address()?, None)
            .await
    }

    /// Makes a key. Returns its text.
    ///
    /// Errors: it is refused.
    pub async fn key(&self, scope: &str, agents: &str, more: &[&str]) -> Result<String> {
        let words = [
            &[
                "keys", "create", "somebody", "--scope", scope, "--agents", agents,
            ],
            more,
        ]
        .concat();
        Ok(self
            .ask(&words)
            .await?
            .lines()
            .next()
            .context("nothing was printed")?
            .to_owned())
    }

    /// Makes a code for a login of that scope, over the control socket.
    ///
    /// Errors: it is refused.
    pub async fn login_code(&self, scope: &str) -> Result<String> {
        let made = self
            .ask(&["login", "ann", "--scope", scope, "--json"])
            .await?;
        let made: Value = serde_json::from_str(&made)?;
        Ok(made["code"].as_str().context("a code")?.to_owned())
    }

    /// Makes a login of that scope. Returns its token.
    ///
    /// Errors: it is refused.
    pub async fn login(&self, scope: &str) -> Result<String> {
        let body = json!({"code": self.login_code(scope).await?}).to_string();
        let answer = http::post(self.address()?, "/api/v1/login", &[], &body).await?;
        let made: Value = serde_json::from_str(&answer.body)?;
        Ok(made["data"]["token"]
            .as_str()
            .context(answer.body)?
            .to_owned())
    }

    /// Revokes a login.
    ///
    /// Errors: there is no such login.
    pub async fn revoke_login(&self, token: &str) -> Result<()> {
        self.ask(&["logins", "revoke", id(token)?]).await.map(drop)
    }

    /// Revokes a key.
    ///
    /// Errors: there is no such key.
    pub async fn revoke(&self, key: &str) -> Result<()> {
        self.ask(&["keys", "revoke", id(key)?]).await.map(drop)
    }
}

/// Returns the id in the text of a key or the token of a login.
///
/// Errors: the text is not a key.
pub fn id(key: &str) -> Result<&str> {
    key.split('_').nth(1).context("it is no key")
}
