//! A session that the doctor simulates: a real proxy, MCP requests written by hand, and real hooks beside it.
//!
//! Each way is tested with its own message, whose receipt is followed until a model would have seen it.

use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use c3po_shared::catalogue::{Call, MessageStatus, SendMessage, Sent, Tracked, WaitForMessage};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::Stage;
use c3po_shared::vocabulary::Priority;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::commands::failure::Failure;
use crate::commands::session::CommandSession;

/// How long one step may take before the way counts as broken.
const STEP_MAX: Duration = Duration::from_secs(8);
/// The timeout of a wait, in seconds.
const WAIT_SECONDS: u64 = 5;
/// How long the proxy may take to end.
const END_MAX: Duration = Duration::from_secs(1);

/// Variables of a session that must not get into the simulated one: above all its inbox.
const NOT_INHERITED: &[&str] = &[
    "C3PO_CHANNEL",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_PLUGIN_ROOT",
    "CLAUDE_PROJECT_DIR",
];

/// The outcome of the message that was sent by one way.
#[derive(Debug)]
pub(super) enum CanaryOutcome {
    /// It was seen.
    Seen(String),
    /// It was not seen.
    Lost(String),
    /// The way could not be tested.
    Untried(String),
}

impl From<Result<String>> for CanaryOutcome {
    fn from(outcome: Result<String>) -> Self {
        match outcome {
            Ok(found) => Self::Seen(found),
            Err(error) => Self::Lost(format!("{error:#}")),
        }
    }
}

/// The simulated session.
pub(super) struct Canary {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    last_id: u64,
    /// The name that it got.
    agent: AgentId,
}

impl Canary {
    /// Starts a proxy under that name and makes its session real.
    pub(super) async fn start(name: &AgentId) -> Result<Self> {
        let mut command = this_program()?;
        command.arg("proxy").env("C3PO_AGENT_ID", name.as_str());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child = command.spawn().context("starting it")?;
        let input = child.stdin.take().context("no standard input")?;
        let output = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut canary = Self {
            child,
            input,
            output,
            last_id: 0,
            agent: name.clone(),
        };
        let client = json!({"name": "c3po-doctor", "version": env!("CARGO_PKG_VERSION")});
        let params =
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
        let id = canary.ask("initialize", params).await?;
        canary.answer(id).await.context("initialize")?;
        canary
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await?;
        let pong = canary.call("ping", json!({})).await?;
        canary.agent = serde_json::from_value(pong["agent_id"].clone()).context("reading ping")?;
        Ok(canary)
    }

    /// Tests a message that ends a wait of the session; its acknowledgement proves that it was seen.
    pub(super) async fn by_wait(&mut self, session: &CommandSession) -> Result<String> {
        let wait = self
            .begin("wait_for_message", json!({"timeout": WAIT_SECONDS}))
            .await?;
        let began = Instant::now();
        let sent = self.send(session, "wait", None).await?;
        let got = self.answer(wait).await.context("wait_for_message")?;
        let took = began.elapsed();
        ensure!(got["id"] == sent.as_str(), "the wait returned {got}");
        let read = json!({"message_ids": [sent]});
        self.call("ack_messages", read).await?;
        Self::seen(session, &sent, took).await
    }

    /// Tests a message that arrives between two steps of a turn; the second step proves that it was seen.
    pub(super) async fn by_hook(&mut self, session: &CommandSession) -> Result<String> {
        Self::hook("session-start", json!({"source": "startup"})).await?;
        Self::hook(
            "user-prompt-submit",
            json!({"prompt": "go", "prompt_id": "1"}),
        )
        .await?;
        let sent = self.send(session, "hook", None).await?;
        Self::reached(session, &sent, Stage::OnHost).await?;
        let began = Instant::now();
        let output = Self::hook(
            "post-tool-batch",
            json!({"prompt_id": "1", "tool_calls": []}),
        )
        .await?;
        let took = began.elapsed();
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(
            printed.contains(sent.as_str()),
            "the hook got no answer from the proxy: {}",
            silence(&printed)
        );
        Self::hook(
            "pre-tool-use",
            json!({"prompt_id": "1", "tool_name": "Read", "tool_use_id": "1"}),
        )
        .await?;
        Self::hook("stop", json!({"prompt_id": "1"})).await?;
        Self::seen(session, &sent, took).await
    }

    /// Tests a message that wakes the idle session by a waiting hook; the turn after it proves that it was seen.
    pub(super) async fn by_waiter(&mut self, session: &CommandSession) -> Result<String> {
        let waiter = Self::start_hook("wait", json!({})).await?;
        let began = Instant::now();
        // A message that needs no answer does not wake a session, unless its priority is high.
        let sent = self.send(session, "waiter", Some(Priority::High)).await?;
        let output = timeout(STEP_MAX, waiter.wait_with_output())
            .await
            .context("the waiting hook was not woken")??;
        let took = began.elapsed();
        let woken = String::from_utf8_lossy(&output.stderr);
        ensure!(
            woken.contains(sent.as_str()),
            "the waiting hook did not print the message: {}",
            silence(&woken)
        );
        // Claude Code makes a prompt of this form from it.
        let prompt = format!("<task-notification>\n{woken}\n</task-notification>");
        Self::hook(
            "user-prompt-submit",
            json!({"prompt": prompt, "prompt_id": "2"}),
        )
        .await?;
        Self::hook(
            "post-tool-batch",
            json!({"prompt_id": "2", "tool_calls": []}),
        )
        .await?;
        Self::hook("stop", json!({"prompt_id": "2"})).await?;
        Self::seen(session, &sent, took).await
    }

    /// Ends the proxy as a client does: by closing its input.
    pub(super) async fn end(mut self) {
        drop(self.input);
        if timeout(END_MAX, self.child.wait()).await.is_err() {
            // Dropping the child kills it too; this also waits for it.
            let _ = self.child.kill().await;
        }
    }

    /// Sends a message that needs no answer to the session, so that `seen` settles it.
    async fn send(
        &self,
        session: &CommandSession,
        way: &str,
        priority: Option<Priority>,
    ) -> Result<MessageId> {
        let message = SendMessage {
            target: self.agent.to_string(),
            message: "A test message of `c3po doctor`.".to_owned(),
            title: Some(format!("c3po doctor, by a {way}")),
            requires_response: Some(false),
            priority,
            ..SendMessage::default()
        };
        let sent = session.call::<Sent>(Call::SendMessage(message)).await;
        Ok(sent
            .map_err(|failure| refused("send_message", failure))?
            .0
            .message
            .id)
    }

    async fn reached(session: &CommandSession, id: &MessageId, stage: Stage) -> Result<Tracked> {
        let (message_id, until, timeout) = (Some(id.clone()), Some(stage), Some(WAIT_SECONDS));
        let wait = WaitForMessage {
            message_id,
            until,
            timeout,
            ..WaitForMessage::default()
        };
        let waited = session.call::<Tracked>(Call::WaitForMessage(wait)).await;
        if let Ok((tracked, _)) = waited {
            return Ok(tracked);
        }
        let (tracked, _) = session
            .call::<Tracked>(Call::MessageStatus(MessageStatus {
                message_id: id.clone(),
            }))
            .await
            .map_err(|failure| refused("message_status", failure))?;
        bail!("it got no further than {}", stages(&tracked))
    }

    async fn seen(session: &CommandSession, id: &MessageId, took: Duration) -> Result<String> {
        let tracked = Self::reached(session, id, Stage::Seen).await?;
        Ok(format!(
            "{:.1} ms; {}",
            took.as_secs_f64() * 1e3,
            stages(&tracked)
        ))
    }

    async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let id = self.begin(tool, arguments).await?;
        self.answer(id).await.with_context(|| tool.to_owned())
    }

    async fn begin(&mut self, tool: &str, arguments: Value) -> Result<u64> {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
            .await
    }

    async fn ask(&mut self, method: &str, params: Value) -> Result<u64> {
        self.last_id += 1;
        let id = self.last_id;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        Ok(id)
    }

    async fn say(&mut self, message: &Value) -> Result<()> {
        self.input
            .write_all(format!("{message}\n").as_bytes())
            .await
            .context("writing to it")
    }

    /// Reads on until that request is answered. Notifications come in between.
    async fn answer(&mut self, id: u64) -> Result<Value> {
        let answer = async {
            while let Some(line) = self.output.next_line().await.context("reading from it")? {
                let message: Value = serde_json::from_str(&line).context("reading its answer")?;
                if message["id"] == id {
                    return Ok(message);
                }
            }
            bail!("it ended")
        };
        let message = timeout(STEP_MAX, answer)
            .await
            .context("it does not answer")??;
        let result = &message["result"];
        if let Some(error) = message
            .get("error")
            .or_else(|| (result["isError"] == true).then_some(result))
        {
            bail!(
                "{}",
                error["message"]
                    .as_str()
                    .or(error["content"][0]["text"].as_str())
                    .unwrap_or("an error")
            );
        }
        Ok(result.get("structuredContent").unwrap_or(result).clone())
    }

    async fn hook(event: &str, input: Value) -> Result<Output> {
        let running = Self::start_hook(event, input).await?;
        timeout(STEP_MAX, running.wait_with_output())
            .await
            .context("a hook does not end")?
            .context("waiting for a hook")
    }

    async fn start_hook(event: &str, mut input: Value) -> Result<Child> {
        input["session_id"] = json!("c3po-doctor");
        let mut command = this_program()?;
        command
            .args(["hook", event])
            .env("CLAUDE_PID", std::process::id().to_string());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().context("starting a hook")?;
        // Closed on drop, because the hook reads to the end.
        let mut stdin = child.stdin.take().context("no standard input")?;
        stdin
            .write_all(input.to_string().as_bytes())
            .await
            .context("writing to a hook")?;
        Ok(child)
    }
}

/// Returns a command that runs this program, without the variables of a session in which the doctor may run.
fn this_program() -> Result<Command> {
    let mut command =
        Command::new(std::env::current_exe().context("asking for this program's file")?);
    for name in NOT_INHERITED {
        command.env_remove(name);
    }
    Ok(command)
}

fn stages(tracked: &Tracked) -> String {
    let steps = tracked.history.iter().map(|step| match step.via {
        Some(via) if step.stage >= Stage::InSession => format!("{} ({via})", step.stage),
        _ => step.stage.to_string(),
    });
    steps.collect::<Vec<_>>().join(", ")
}

fn silence(text: &str) -> &str {
    if text.is_empty() {
        "it printed nothing"
    } else {
        text
    }
}

fn refused(tool: &str, failure: Failure) -> anyhow::Error {
    match failure {
        Failure::Refused(refusal) | Failure::NoCoordinator(refusal) => {
            anyhow::anyhow!("{tool}: {refusal}")
        }
        failure => anyhow::anyhow!("{tool}: {failure:?}"),
    }
}
