//! A minimal MCP client over stdio: tests see exactly the messages that are sent and received.

use std::collections::HashMap;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::process::Process;

/// The protocol version that Claude Code uses with servers that do not support a newer one.
pub const PROTOCOL: &str = "2025-11-25";
/// The deadline of an answer that nothing delays, on a machine that builds at the same time.
const ANSWER: Duration = Duration::from_secs(30);

/// A client and the server process that it started.
#[derive(Debug)]
pub struct McpClient {
    process: Process,
    input: AsyncMutex<Option<ChildStdin>>,
    heard: Arc<Heard>,
    next_id: AtomicU64,
    reader: TaskTracker,
}

/// The server's output so far.
#[derive(Debug, Default)]
struct Heard {
    said: Mutex<Said>,
    more: Notify,
}

#[derive(Debug, Default)]
struct Said {
    answers: HashMap<u64, Value>,
    notifications: Vec<Value>,
    /// Lines that are not JSON-RPC: a server must not write any to its standard output.
    strays: Vec<String>,
    over: bool,
}

impl Heard {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, line: &str) {
        let mut said = self.said();
        match serde_json::from_str::<Value>(line) {
            Ok(message) if message.get("method").is_some() => said.notifications.push(message),
            Ok(message) => match message["id"].as_u64() {
                Some(id) => drop(said.answers.insert(id, message)),
                None => said.strays.push(line.to_owned()),
            },
            Err(_) => said.strays.push(line.to_owned()),
        }
    }

    async fn read(self: Arc<Self>, output: ChildStdout) {
        let mut lines = BufReader::new(output).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            self.hear(&line);
            self.more.notify_waiters();
        }
        self.said().over = true;
        self.more.notify_waiters();
    }

    /// Waits until `find` returns something from the output, or the output ends.
    async fn wait_for<T>(
        &self,
        what: &str,
        within: Duration,
        find: impl Fn(&mut Said) -> Option<T>,
    ) -> Result<T> {
        let search = async {
            loop {
                let more = self.more.notified();
                let mut more = std::pin::pin!(more);
                // Subscribes before looking, so that no line in between is missed.
                more.as_mut().enable();
                let over = {
                    let mut said = self.said();
                    if let Some(found) = find(&mut said) {
                        return Ok(found);
                    }
                    said.over
                };
                if over {
                    bail!("the server's output ended before {what}");
                }
                more.await;
            }
        };
        timeout(within, search)
            .await
            .with_context(|| format!("no {what} within {within:?}"))?
    }
}

/// The result of a tool call.
#[derive(Debug, Clone)]
pub struct ToolResult {
    /// Whether the tool refused.
    pub is_error: bool,
    /// The text, which contains one JSON object.
    pub text: String,
    /// The same object, as structured content.
    pub structured: Value,
}

impl ToolResult {
    fn read(result: &Value) -> Self {
        Self {
            is_error: result["isError"].as_bool().unwrap_or(false),
            text: result["content"][0]["text"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            structured: result["structuredContent"].clone(),
        }
    }

    /// Returns the object in the text: a reply or a refusal.
    ///
    /// Errors: the text is not JSON.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.text).with_context(|| format!("not JSON: {}", self.text))
    }
}

impl McpClient {
    /// Starts the server. Its standard error goes to `log`.
    ///
    /// Errors: it cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::start(command, log)?;
        let (input, output) = process.take_pipes()?;
        let (heard, reader) = (Arc::<Heard>::default(), TaskTracker::new());
        reader.spawn(Arc::clone(&heard).read(output));
        reader.close();
        Ok(Self {
            process,
            input: AsyncMutex::new(Some(input)),
            heard,
            next_id: AtomicU64::new(0),
            reader,
        })
    }

    /// Prints no server log at the end, for a program that is not a test.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.process = self.process.quietly();
        self
    }

    /// Performs the handshake as Claude Code does, and returns the server's answer.
    ///
    /// Errors: there is no answer, or an error.
    pub async fn initialize(&self) -> Result<Value> {
        let client = json!({"name": "c3po-tests", "version": "1"});
        let hello = json!({"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": client});
        let answer = self.request("initialize", hello).await?;
        self.notify("notifications/initialized", json!({})).await?;
        Ok(answer)
    }

    /// Lists the tools.
    ///
    /// Errors: there is no answer, or an error.
    pub async fn tools(&self) -> Result<Vec<Value>> {
        let mut answer = self.request("tools/list", json!({})).await?;
        match answer["tools"].take() {
            Value::Array(tools) => Ok(tools),
            other => bail!("no list of tools: {other}"),
        }
    }

    /// Calls a tool.
    ///
    /// Errors: there is no answer in time, or a protocol error. A refusal by the tool is not an error here.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<ToolResult> {
        let id = self.begin_call(tool, arguments).await?;
        self.call_result(id, ANSWER)
            .await
            .with_context(|| format!("calling {tool}"))
    }

    /// Calls a tool and returns its reply.
    ///
    /// Errors: those of [`call`](Self::call), and refusals.
    pub async fn reply(&self, tool: &str, arguments: Value) -> Result<Value> {
        let result = self.call(tool, arguments).await?;
        if result.is_error {
            bail!("{tool} refused: {}", result.text);
        }
        result.json()
    }

    /// Sends a call with its id as the progress token, and returns the id immediately.
    ///
    /// Errors: the server does not read.
    pub async fn begin_call(&self, tool: &str, arguments: Value) -> Result<u64> {
        let id = self.new_id();
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
            .await?;
        Ok(id)
    }

    /// Waits for the result of a call that was sent earlier.
    ///
    /// Errors: there is no answer in time, or a protocol error.
    pub async fn call_result(&self, id: u64, within: Duration) -> Result<ToolResult> {
        Ok(ToolResult::read(&self.answer(id, within).await?))
    }

    /// Cancels a call, as Claude Code does when its user presses Escape.
    ///
    /// Errors: the server does not read.
    pub async fn cancel(&self, id: u64) -> Result<()> {
        self.notify(
            "notifications/cancelled",
            json!({"requestId": id, "reason": "AbortError: user-cancel"}),
        )
        .await
    }

    /// Sends a request and returns its result.
    ///
    /// Errors: there is no answer in time, or a protocol error.
    pub async fn request(&self, method: &str, params: Value) -> Result<Value> {
        let id = self.new_id();
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        self.answer(id, ANSWER)
            .await
            .with_context(|| format!("asking for {method}"))
    }

    /// Sends a notification.
    ///
    /// Errors: the server does not read.
    pub async fn notify(&self, method: &str, params: Value) -> Result<()> {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await
    }

    /// Waits for the next notification with that method, and takes it.
    ///
    /// Errors: none arrives in time.
    pub async fn notification(&self, method: &str, within: Duration) -> Result<Value> {
        let taken = self.heard.wait_for(method, within, |said| {
            let at = said
                .notifications
                .iter()
                .position(|one| one["method"] == method)?;
            Some(said.notifications.remove(at))
        });
        taken.await
    }

    /// Returns the server's output lines that are not JSON-RPC. There must be none.
    pub fn strays(&self) -> Vec<String> {
        self.heard.said().strays.clone()
    }

    /// Returns whether the answer to that id has arrived.
    pub fn has_answered(&self, id: u64) -> bool {
        self.heard.said().answers.contains_key(&id)
    }

    /// Sends one line as given.
    ///
    /// Errors: the server does not read.
    pub async fn send_line(&self, line: &str) -> Result<()> {
        let mut input = self.input.lock().await;
        let input = input.as_mut().context("the input is closed")?;
        input
            .write_all(format!("{line}\n").as_bytes())
            .await
            .context("the server does not read")
    }

    /// Closes the server's input, as a client does when it ends.
    pub async fn close_input(&self) {
        *self.input.lock().await = None;
    }

    /// Closes the server's input and waits for its exit.
    ///
    /// Errors: it keeps running.
    pub async fn end(mut self, within: Duration) -> Result<ExitStatus> {
        self.close_input().await;
        let status = self.process.end(within).await?;
        self.reader.wait().await;
        Ok(status)
    }

    /// Sends the server a signal by name, such as `KILL`. Its earlier output is still read.
    ///
    /// Errors: it has exited, or `kill` fails.
    pub async fn signal(&self, name: &str) -> Result<()> {
        self.process.signal(name).await
    }

    /// Returns whether the server's output has ended.
    pub fn has_ended(&self) -> bool {
        self.heard.said().over
    }

    /// Waits until the server's output has ended.
    pub async fn output_ends(&self) {
        self.reader.wait().await;
    }

    /// Returns the server's process, for signals and its log.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    async fn send(&self, message: &Value) -> Result<()> {
        self.send_line(&message.to_string()).await
    }

    async fn answer(&self, id: u64, within: Duration) -> Result<Value> {
        let answer = self
            .heard
            .wait_for("answer", within, |said| said.answers.remove(&id))
            .await;
        let mut answer =
            answer.with_context(|| format!("the server's log:\n{}", self.process.log()))?;
        match answer.get("error") {
            Some(error) => bail!("an error of the protocol: {error}"),
            None => Ok(answer["result"].take()),
        }
    }
}
