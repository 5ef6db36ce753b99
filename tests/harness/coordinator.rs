//! A real coordinator on a free port of this machine, which can be killed, stopped and started again.

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

/// From its start to its first answer, on a machine that builds at the same time.
const READY: Duration = Duration::from_secs(20);
/// From SIGTERM to its end; it promises to drain within 5 s.
const DRAINED: Duration = Duration::from_secs(7);

/// Lets glibc give large blocks back at once, as the Dockerfile does. Otherwise it keeps them once it was asked for some.
pub const RETURNS_MEMORY: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "131072");

/// A coordinator process. Its port and its store stay the same through every restart.
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
    /// Errors: it does not answer.
    pub async fn start(folder: &Path) -> Result<Self> {
        let store = format!("sqlite:{}", folder.join("c3po.db").display());
        Self::start_on(folder, &store).await
    }

    /// Starts one on a store such as `redis://127.0.0.1:6400`; its log and home are in `folder`.
    ///
    /// Errors: it does not answer.
    pub async fn start_on(folder: &Path, store: &str) -> Result<Self> {
        let mut coordinator = Self::absent(folder, store)?;
        coordinator.restart().await?;
        Ok(coordinator)
    }

    /// Chooses a port for one that does not run yet: [`restart`](Self::restart) starts it.
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

    /// Keeps the log to itself at the end, for a program that is no test.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Sets no limit to sends, for measuring how many there can be.
    #[must_use]
    pub fn unlimited(mut self) -> Self {
        self.unlimited = true;
        self
    }

    /// Starts it with that variable, which names a file or has another value.
    #[must_use]
    pub fn with(mut self, variable: &'static str, file: &Path) -> Self {
        self.environment.push((variable, file.to_owned()));
        self
    }

    /// Lets it have only so many descriptors open.
    #[must_use]
    pub fn with_descriptors(mut self, descriptors: u32) -> Self {
        self.descriptors = Some(descriptors);
        self
    }

    /// Lets it speak TLS: `auto`, or the files of a certificate and of its key with a comma between them.
    #[must_use]
    pub fn over_tls(mut self, how: impl Into<String>) -> Self {
        self.tls = Some(how.into());
        self
    }

    /// Returns the fingerprint that it said last in its log.
    ///
    /// Errors: it said none.
    pub fn fingerprint(&self) -> Result<String> {
        let log = std::fs::read_to_string(self.folder.join("coordinator.log")).context("reading the log")?;
        let said = log.lines().filter_map(|line| line.split_once(" sha256:")).next_back();
        said.map(|(_, digits)| format!("sha256:{digits}")).context("the log names no fingerprint")
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what hosts are given to reach it.
    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.address)
    }

    /// Returns its process, for signals and its log.
    ///
    /// Errors: it does not run.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("the coordinator does not run")
    }

    /// Starts it, again or for the first time, and waits until it answers.
    ///
    /// Errors: it ends, or does not answer; the error shows its log.
    pub async fn restart(&mut self) -> Result<()> {
        let mut server = self.command()?;
        server.env("C3PO_LOG", "info,rmcp=error").env(RETURNS_MEMORY.0, RETURNS_MEMORY.1);
        // What loads it sends thousands of messages between two agents; `with` sets another limit.
        server.env("C3PO_LOOP_MESSAGES", "0");
        server.args(["--listen", &self.address.to_string(), "--store", &self.store]);
        server.envs(self.environment.iter().map(|(variable, file)| (variable, file)));
        if let Some(tls) = &self.tls {
            server.args(["--tls", tls]);
        }
        if self.unlimited {
            server.env("C3PO_RATE_LIMIT", "0").env("C3PO_STORE_QUOTA", "0");
        }
        server.stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Process::start(server, &self.folder.join("coordinator.log"))?;
        if self.quiet {
            process = process.quietly();
        }
        let address = self.address;
        // Who speaks TLS refuses this question, and is there.
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
            Ok(Err(status)) => bail!("the coordinator ended with {status}; its log:\n{}", process.log()),
            Err(error) => return Err(error.context(format!("its log:\n{}", process.log()))),
        }
        Ok(())
    }

    fn command(&self) -> Result<Command> {
        let program = program("c3po-coordinator")?;
        let Some(descriptors) = self.descriptors else { return Ok(command(program, &self.folder)) };
        let mut shell = command("sh", &self.folder);
        shell.args(["-c", "ulimit -n \"$1\" && shift && exec \"$@\"", "sh"]).arg(descriptors.to_string()).arg(program);
        Ok(shell)
    }

    /// Kills it as `kill -9` does.
    ///
    /// Errors: it does not run.
    pub async fn kill(&mut self) -> Result<()> {
        self.process()?.kill().await?;
        self.process = None;
        Ok(())
    }

    /// Stops it with SIGTERM and returns how it ended.
    ///
    /// Errors: it does not run, or does not end in the time it promises.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        let process = self.process()?;
        process.signal("TERM").await?;
        let status = process.end(DRAINED).await?;
        self.process = None;
        Ok(status)
    }
}

/// Returns an address of this machine where nobody listens.
///
/// Errors: there is none.
pub fn free_address() -> Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}
