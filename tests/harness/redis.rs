//! A real redis-server for one test: with its own folder and a free port, ended with the test.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::certificates::Certificates;
use crate::ports::free_port;

/// How long a server may take to respond after its start, on a machine that builds at the same time.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long a `PING` may take before it is repeated.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How long a command may take.
const TELL_LIMIT: Duration = Duration::from_secs(10);
/// How often a start is retried because another process took the free port.
const ATTEMPTS: usize = 5;

/// The settings with which a server writes to disk every second and evicts nothing.
const DURABLE: [&str; 8] = [
    "--save",
    "",
    "--appendonly",
    "yes",
    "--appendfsync",
    "everysec",
    "--maxmemory-policy",
    "noeviction",
];

/// A redis-server with an append-only file.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    tls_port: Option<u16>,
    child: Child,
    folder: TempDir,
    /// Its command line, without the address and the folder.
    arguments: Vec<String>,
}

impl Redis {
    /// Starts a server that writes to disk every second, and waits until it responds.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a server with additional command-line settings, such as `["--appendfsync", "always"]`. Later settings override
    /// earlier ones. They are kept on every restart.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start_with(settings: &[&str]) -> Result<Self> {
        let arguments = [&DURABLE, settings].concat();
        let folder = tempfile::tempdir().context("making a folder for Redis")?;
        Self::start_in(
            folder,
            arguments
                .iter()
                .map(|&argument| argument.to_owned())
                .collect(),
        )
        .await
    }

    /// Starts a server with TLS on an additional port, and returns its TLS address.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start_with_tls(certificates: &Certificates) -> Result<(Self, String)> {
        Self::start_with_tls_and(certificates, &[]).await
    }

    /// Starts a server with TLS and additional settings.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start_with_tls_and(
        certificates: &Certificates,
        settings: &[&str],
    ) -> Result<(Self, String)> {
        let (port, of_tls) = (free_port()?, certificates.settings());
        let text = port.to_string();
        let settings = of_tls
            .iter()
            .map(String::as_str)
            .chain(["--tls-port", &text])
            .chain(settings.iter().copied());
        let mut redis = Self::start_with(&settings.collect::<Vec<_>>()).await?;
        redis.tls_port = Some(port);
        Ok((redis, format!("rediss://127.0.0.1:{port}")))
    }

    /// Starts a sentinel with these lines as its configuration file.
    ///
    /// # Panics
    ///
    /// Panics if there is no redis-server in the `PATH`.
    pub async fn start_sentinel(lines: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("making a folder for a sentinel")?;
        let file = folder.path().join("sentinel.conf");
        fs::write(&file, lines).context("writing the file of a sentinel")?;
        Self::start_in(
            folder,
            vec![file.display().to_string(), "--sentinel".into()],
        )
        .await
    }

    async fn start_in(folder: TempDir, arguments: Vec<String>) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let port = free_port()?;
            let mut child = spawn(port, &folder, &arguments)?;
            if answers(port, &mut child).await? {
                return Ok(Self {
                    port,
                    tls_port: None,
                    child,
                    folder,
                    arguments,
                });
            }
        }
        bail!(
            "redis-server ended {ATTEMPTS} times at its start: {}",
            log(&folder)
        )
    }

    /// Returns its URL for clients.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the port for its clients and for the other servers of its cluster: the TLS port, if it has one.
    pub(crate) fn client_port(&self) -> u16 {
        self.tls_port.unwrap_or(self.port)
    }

    /// Runs one command and returns the start of its raw answer.
    ///
    /// Errors: it is not reachable, or it returned an error.
    pub async fn tell(&self, words: &[&str]) -> Result<String> {
        self.tell_all(&[words]).await
    }

    /// Runs commands one after another on one connection, and returns the start of the last raw answer.
    ///
    /// Errors: it is not reachable, or it returned an error.
    pub async fn tell_all(&self, commands: &[&[&str]]) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let mut last = String::new();
        for words in commands {
            let text: String = words
                .iter()
                .map(|word| format!("${}\r\n{word}\r\n", word.len()))
                .collect();
            stream
                .write_all(format!("*{}\r\n{text}", words.len()).as_bytes())
                .await?;
            let mut answer = [0; 4_096];
            let length = timeout(TELL_LIMIT, stream.read(&mut answer))
                .await
                .context("it does not answer")??;
            last = String::from_utf8_lossy(&answer[..length]).into_owned();
            ensure!(!last.starts_with('-'), "{words:?}: {last}");
        }
        Ok(last)
    }

    /// Returns the id of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it immediately, like a power failure.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing redis-server")?;
        self.child
            .wait()
            .context("waiting for the end of redis-server")?;
        Ok(())
    }

    /// Kills it and restarts it on the same port, with the data in its file.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.child = spawn(self.port, &self.folder, &self.arguments)?;
        ensure!(
            answers(self.port, &mut self.child).await?,
            "redis-server did not start again: {}",
            log(&self.folder)
        );
        Ok(())
    }

    /// Stops it with SIGSTOP: connections stay open, but nothing is answered.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Resumes it after a pause.
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.child.id().to_string())
            .status()?;
        ensure!(
            status.success(),
            "kill -{name} of redis-server failed: {status}"
        );
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The test may have killed it already; an error cannot be reported here.
        let _ = self.kill();
    }
}

fn spawn(port: u16, folder: &TempDir, arguments: &[String]) -> Result<Child> {
    let path = folder.path();
    let spawned = Command::new("redis-server")
        .args(arguments)
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .arg("--dir")
        .arg(path)
        .arg("--logfile")
        .arg(path.join("redis.log"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match spawned {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            panic!("there is no redis-server in the PATH: `make test` installs redis-server")
        }
        spawned => spawned.context("starting redis-server"),
    }
}

/// Returns whether it responds; false if it exited instead.
async fn answers(port: u16, child: &mut Child) -> Result<bool> {
    let end = Instant::now() + START_LIMIT;
    while Instant::now() < end {
        if child.try_wait()?.is_some() {
            return Ok(false);
        }
        if matches!(timeout(ANSWER_LIMIT, ping(port)).await, Ok(Ok(true))) {
            return Ok(true);
        }
        sleep(Duration::from_millis(5)).await;
    }
    bail!("redis-server did not answer within {START_LIMIT:?}")
}

async fn ping(port: u16) -> io::Result<bool> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).await?;
    Ok(&answer == b"+PONG\r\n")
}

fn log(folder: &TempDir) -> String {
    fs::read_to_string(folder.path().join("redis.log")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn redis_keeps_its_data_when_killed() -> Result<()> {
        let mut redis = Redis::start().await?;
        redis.tell(&["SET", "said", "yes"]).await?;
        redis.restart().await?;
        assert_eq!(redis.tell(&["GET", "said"]).await?, "$3\r\nyes\r\n");
        Ok(())
    }

    #[tokio::test]
    async fn a_paused_server_answers_nothing_until_it_is_resumed() -> Result<()> {
        let redis = Redis::start().await?;
        redis.pause()?;
        assert!(timeout(ANSWER_LIMIT, redis.tell(&["PING"])).await.is_err());
        redis.resume()?;
        assert_eq!(redis.tell(&["PING"]).await?, "+PONG\r\n");
        Ok(())
    }
}
