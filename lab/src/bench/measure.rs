//! Taking times, and their statistics.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How long one answer may take before the run counts as broken.
const ANSWER: Duration = Duration::from_secs(30);

/// The times of many rounds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    /// Measures the time of each round after a warm-up.
    pub(crate) fn of(rounds: usize, mut round: impl FnMut() -> Result<()>) -> Result<Self> {
        for _ in 0..rounds / 10 {
            round()?;
        }
        let mut times = Self::default();
        for _ in 0..rounds {
            let began = Instant::now();
            round()?;
            times.add(began.elapsed());
        }
        Ok(times)
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Returns the time in milliseconds that a share of the rounds stayed below: 0.5 for the median.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        let last = sorted.len().saturating_sub(1);
        let index = (share * sorted.len() as f64) as usize;
        sorted
            .get(index.min(last))
            .map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }

    pub(crate) fn p50(&self) -> f64 {
        self.percentile(0.5)
    }
}

/// A server that exchanges lines over a socket pair, as Node and Bun start their children.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    input: UnixStream,
    output: BufReader<UnixStream>,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        let (input, child_input) = UnixStream::pair()?;
        let (output, child_output) = UnixStream::pair()?;
        output.set_read_timeout(Some(ANSWER))?;
        command
            .stdin(OwnedFd::from(child_input))
            .stdout(OwnedFd::from(child_output))
            .stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("{command:?}"))?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    /// Sends a line and returns the next line.
    pub(crate) fn line(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        self.read()
    }

    /// Sends a line.
    pub(crate) fn send(&mut self, line: &str) -> Result<()> {
        Ok(self.input.write_all(line.as_bytes())?)
    }

    /// Returns the next line.
    pub(crate) fn read(&mut self) -> Result<String> {
        let mut answer = String::new();
        self.output.read_line(&mut answer)?;
        ensure!(!answer.is_empty(), "the server ended");
        Ok(answer)
    }

    /// Makes the handshake of MCP.
    pub(crate) fn initialize(&mut self) -> Result<()> {
        let answer = self.line(concat!(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{},"clientInfo":{"name":"figures","version":"0"}}}"#,
            "\n"
        ))?;
        ensure!(
            answer.contains("protocolVersion"),
            "not initialized: {answer}"
        );
        self.input
            .write_all(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n")?;
        Ok(())
    }

    /// Calls a tool and returns its result unparsed.
    pub(crate) fn call(&mut self, tool: &str, arguments: &str) -> Result<String> {
        self.begin(0, tool, arguments)?;
        self.answer(0)
    }

    /// Begins a call of a tool, with a request id of one digit.
    pub(crate) fn begin(&mut self, id: u32, tool: &str, arguments: &str) -> Result<()> {
        let request = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\"arguments\":{arguments}}}}}\n"
        );
        Ok(self.input.write_all(request.as_bytes())?)
    }

    /// Returns the result for that id, which must be the next line.
    pub(crate) fn answer(&mut self, id: u32) -> Result<String> {
        let answer = self.read()?;
        ensure!(
            answer.contains(&format!("\"id\":{id},")),
            "not the answer to request {id}: {answer}"
        );
        ensure!(
            !answer.contains("\"isError\":true"),
            "request {id} was refused: {answer}"
        );
        Ok(answer)
    }

    /// Calls a tool and returns the object of its answer.
    pub(crate) fn reply(&mut self, tool: &str, arguments: &str) -> Result<Value> {
        let answer: Value = serde_json::from_str(&self.call(tool, arguments)?)?;
        Ok(answer["result"]["structuredContent"].clone())
    }

    /// Returns the resident memory of the process, in megabytes.
    pub(crate) fn resident(&self) -> Result<f64> {
        resident(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the resident memory of a process, in megabytes.
pub(crate) fn resident(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .context("no VmRSS")?;
    let kilobytes: f64 = line
        .split_whitespace()
        .nth(1)
        .context("no number")?
        .parse()?;
    Ok(kilobytes / 1024.0)
}
