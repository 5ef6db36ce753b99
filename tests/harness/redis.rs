//! A real redis-server of a test's own: its own folder, a free port, ended with the test.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// How long a server may take until it answers, on a machine that builds meanwhile.
const START_LIMIT: Duration = Duration::from_secs(20);
/// How long one question to it may take before it is asked again.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);
/// How often a start is tried again because somebody else took the port that was free.
const ATTEMPTS: usize = 5;

/// A redis-server that keeps what it is told in an append-only file.
#[derive(Debug)]
pub struct Redis {
    port: u16,
    child: Child,
    folder: TempDir,
    settings: Vec<String>,
}

impl Redis {
    /// Starts a server that writes to disk every second, and waits until it answers.
    ///
    /// # Panics
    ///
    /// Where there is no redis-server in the `PATH`.
    pub async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    /// Starts a server with further settings as on its command line, such as `["--appendfsync", "always"]`; later
    /// ones go before earlier ones. They hold through every restart.
    ///
    /// # Panics
    ///
    /// Where there is no redis-server in the `PATH`.
    pub async fn start_with(settings: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir().context("making a folder for Redis")?;
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let (port, child) = Self::spawn_on_a_free_port(&folder, &settings).await?;
        Ok(Self { port, child, folder, settings })
    }

    async fn spawn_on_a_free_port(folder: &TempDir, settings: &[String]) -> Result<(u16, Child)> {
        for _ in 0..ATTEMPTS {
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
            let mut child = spawn(port, folder, settings)?;
            if answers(port, &mut child).await? {
                return Ok((port, child));
            }
        }
        bail!("redis-server ended {ATTEMPTS} times at its start: {}", log(folder))
    }

    /// Returns the address by which clients reach it.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the id of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, as a power cut would.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing redis-server")?;
        self.child.wait().context("waiting for the end of redis-server")?;
        Ok(())
    }

    /// Kills it and starts it again on the same port, with what its file holds.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill()?;
        self.child = spawn(self.port, &self.folder, &self.settings)?;
        ensure!(answers(self.port, &mut self.child).await?, "redis-server did not start again: {}", log(&self.folder));
        Ok(())
    }

    /// Stops it without ending it: connections stay, and nothing is answered.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Lets it go on after a pause.
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<()> {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status()?;
        ensure!(status.success(), "kill -{name} of redis-server failed: {status}");
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have been killed by the test; there is nobody to tell otherwise.
        let _ = self.kill();
    }
}

fn spawn(port: u16, folder: &TempDir, settings: &[String]) -> Result<Child> {
    let path = folder.path();
    let spawned = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""])
        .args(["--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction"])
        .arg("--dir")
        .arg(path)
        .arg("--logfile")
        .arg(path.join("redis.log"))
        .args(settings)
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

/// Returns whether it answers; false where it ended instead.
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
    std::fs::read_to_string(folder.path().join("redis.log")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn tell(redis: &Redis, command: &str) -> Result<String> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, redis.port)).await?;
        stream.write_all(format!("{command}\r\n").as_bytes()).await?;
        let mut answer = [0; 64];
        let length = timeout(ANSWER_LIMIT, stream.read(&mut answer)).await??;
        Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
    }

    #[tokio::test]
    async fn what_it_was_told_survives_its_kill() -> Result<()> {
        let mut redis = Redis::start().await?;
        tell(&redis, "SET said yes").await?;
        redis.restart().await?;
        assert_eq!(tell(&redis, "GET said").await?, "$3\r\nyes\r\n");
        Ok(())
    }

    #[tokio::test]
    async fn a_paused_server_answers_nothing_until_it_is_resumed() -> Result<()> {
        let redis = Redis::start().await?;
        redis.pause()?;
        assert!(tell(&redis, "PING").await.is_err());
        redis.resume()?;
        assert_eq!(tell(&redis, "PING").await?, "+PONG\r\n");
        Ok(())
    }
}
