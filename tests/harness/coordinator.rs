//! A real coordinator on a free local port, which can be killed, stopped and restarted.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::eventually::eventually;
use crate::http;
use crate::ports::free_port;
use crate::process::{Process, command, program};

/// From start to the first response, on a machine that builds at the same time.
const READY: Duration = Duration::from_secs(20);
/// From SIGTERM to the exit; the coordinator guarantees to drain within 5 s.
const DRAINED: Duration = Duration::from_secs(7);

/// A coordinator process. Its port and its store are the same after every restart.
#[derive(Debug)]
pub struct Coordinator {
    process: Option<Process>,
    address: SocketAddr,
    store: String,
    folder: PathBuf,
    quiet: bool,
    unlimited: bool,
    environment: Vec<(&'static str, PathBuf)>,
    descriptors: Option<u32>,
    tls: Option<String>,
}

impl Coordinator {
    /// Starts one with a SQLite store in `folder`.
    ///
    /// Errors: it does not respond.
    pub async fn start(folder: &Path) -> Result<Self> {
        let store = format!("sqlite:{}", folder.join("c3po.db").display());
        Self::start_on(folder, &store).await
    }

    /// Starts one on a store such as `redis://127.0.0.1:6400`, with its log and home in `folder`.
    ///
    /// Errors: it does not respond.
    pub async fn start_on(folder: &Path, store: &str) -> Result<Self> {
        let mut coordinator = Self::absent(folder, store)?;
        coordinator.restart().await?;
        Ok(coordinator)
    }

    /// Chooses a port for a coordinator that is not running yet: [`restart`](Self::restart) starts it.
    ///
    /// Errors: there is no free port.
    pub fn absent(folder: &Path, store: &str) -> Result<Self> {
        let (folder, store) = (folder.to_owned(), store.to_owned());
        Ok(Self {
            process: None,
            address: free_address()?,
            store,
            folder,
            quiet: false,
            unlimited: false,
            environment: Vec::new(),
            descriptors: None,
            tls: None,
        })
    }

    /// Prints no log at the end, for a program that is not a test.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Disables the rate limit and the quota, to measure the maximum throughput.
    #[must_use]
    pub fn unlimited(mut self) -> Self {
        self.unlimited = true;
        self
    }

    /// Sets an environment variable; its value is a path or other text.
    #[must_use]
    pub fn with(mut self, variable: &'static str, file: &Path) -> Self {
        self.environment.push((variable, file.to_owned()));
        self
    }

    /// Limits the number of open descriptors.
    #[must_use]
    pub fn with_descriptors(mut self, descriptors: u32) -> Self {
        self.descriptors = Some(descriptors);
        self
    }

    /// Enables TLS: `auto`, or the files of a certificate and its key, separated by a comma.
    #[must_use]
    pub fn over_tls(mut self, how: impl Into<String>) -> Self {
        self.tls = Some(how.into());
        self
    }

    /// Gives it the address of another, which does not run.
    #[must_use]
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.address = address;
        self
    }

    /// Returns the last fingerprint in its log.
    ///
    /// Errors: the log has none.
    pub fn fingerprint(&self) -> Result<String> {
        let log = std::fs::read_to_string(self.folder.join("coordinator.log"))
            .context("reading the log")?;
        let said = log
            .lines()
            .filter_map(|line| line.split_once(" sha256:"))
            .next_back();
        said.map(|(_, digits)| format!("sha256:{digits}"))
            .context("the log names no fingerprint")
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its URL for hosts.
    pub fn url(&self) -> String {
        format!(
            "{}://{}",
            if self.tls.is_some() { "https" } else { "http" },
            self.address
        )
    }

    /// Returns its process, for signals and its log.
    ///
    /// Errors: it is not running.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process
            .as_mut()
            .context("the coordinator does not run")
    }

    /// Starts or restarts it, and waits until it responds.
    ///
    /// Errors: it exits or does not respond; the error shows its log.
    pub async fn restart(&mut self) -> Result<()> {
        let mut server = self.command()?;
        server.env("C3PO_LOG", "info,rmcp=error");
        // Load tests send thousands of messages between two agents; `with` can set another limit.
        server.env("C3PO_LOOP_MESSAGES", "0");
        server.args([
            "--listen",
            &self.address.to_string(),
            "--store",
            &self.store,
        ]);
        server.envs(
            self.environment
                .iter()
                .map(|(variable, file)| (variable, file)),
        );
        if let Some(tls) = &self.tls {
            server.args(["--tls", tls]);
        }
        if self.unlimited {
            server
                .env("C3PO_RATE_LIMIT", "0")
                .env("C3PO_STORE_QUOTA", "0");
        }
        server.stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Process::start(server, &self.folder.join("coordinator.log"))?;
        if self.quiet {
            process = process.quietly();
        }
        let address = self.address;
        // A coordinator with TLS answers this plain request with an error, which shows that it is running.
        let there = if self.tls.is_some() { 400 } else { 200 };
        let ready = eventually("the coordinator answers", READY, async || {
            if let Ok(Some(status)) = process.ended() {
                return Some(Err(status));
            }
            let health = http::get(address, "/api/health").await.ok()?;
            (health.status == there).then_some(Ok(()))
        });
        match ready.await {
            Ok(Ok(())) => self.process = Some(process),
            Ok(Err(status)) => bail!(
                "the coordinator ended with {status}; its log:\n{}",
                process.log()
            ),
            Err(error) => return Err(error.context(format!("its log:\n{}", process.log()))),
        }
        Ok(())
    }

    fn command(&self) -> Result<Command> {
        let program = program("c3po-coordinator")?;
        let Some(descriptors) = self.descriptors else {
            return Ok(command(program, &self.folder));
        };
        let mut shell = command("sh", &self.folder);
        shell
            .args(["-c", "ulimit -n \"$1\" && shift && exec \"$@\"", "sh"])
            .arg(descriptors.to_string())
            .arg(program);
        Ok(shell)
    }

    /// Kills it as `kill -9` does.
    ///
    /// Errors: it is not running.
    pub async fn kill(&mut self) -> Result<()> {
        self.process()?.kill().await?;
        self.process = None;
        Ok(())
    }

    /// Stops it with SIGTERM and returns its exit status.
    ///
    /// Errors: it is not running, or does not exit within the guaranteed time.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        let process = self.process()?;
        process.signal("TERM").await?;
        let status = process.end(DRAINED).await?;
        self.process = None;
        Ok(status)
    }
}

/// Returns a free address of this machine.
///
/// Errors: there is none.
pub fn free_address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}
