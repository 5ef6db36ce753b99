//! The setup of these tests: a coordinator, an agent that sends, and a real session with the plugin that receives.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::claude::{ClaudeCode, Interactive, Options, plugin_copy};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::fake_api::{Asked, FakeApi, Script};
use harness::mcp::McpClient;
use harness::proxy::session;
use harness::skip::skipped;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Every step takes less than a second alone, but other tests run at the same time.
pub(super) const SOON: Duration = Duration::from_secs(60);
/// How long a test waits to see that nothing happens: a wake-up takes a tenth of that.
pub(super) const QUIET: Duration = Duration::from_secs(3);
/// The recipient: the folder of the real session.
pub(super) const RECIPIENT: &str = "meshtastic";
/// The sender.
const SENDER: &str = "homeassistant";
/// The mark in the origin line of a message that is shown a second time.
pub(super) const REPEATED: &str = "[may have been shown before]";

pub(super) struct Scene {
    pub(super) claude: ClaudeCode,
    /// The options with which the real session is started and restarted.
    pub(super) options: Options,
    /// The model of the real session.
    pub(super) model: FakeApi,
    /// A scripted session that sends messages.
    pub(super) sender: McpClient,
    /// The coordinator of both.
    pub(super) coordinator: Coordinator,
    /// Kept until all its processes have ended.
    work: TempDir,
}

impl Scene {
    /// Sets everything up except the real session. Returns `None` and reports a skipped test if Claude Code is not installed.
    pub(super) async fn set(test: &str, script: Script) -> Result<Option<Self>> {
        Self::set_on(test, script, None).await
    }

    /// Does the same with a coordinator on that store.
    pub(super) async fn set_on(
        test: &str,
        script: Script,
        store: Option<String>,
    ) -> Result<Option<Self>> {
        let claude = match ClaudeCode::find() {
            Ok(claude) => claude,
            Err(reason) => return skipped(test, &format!("{reason:#}")).map(|()| None),
        };
        let work = tempfile::tempdir()?;
        let coordinator = match store {
            Some(store) => Coordinator::start_on(work.path(), &store).await?,
            None => Coordinator::start(work.path()).await?,
        };
        let model = FakeApi::start(script).await?;
        let plugin = plugin_copy(work.path())?;
        let options =
            Options::new(work.path(), RECIPIENT, &model, &coordinator.url()).plugin(&plugin);
        let sender = session(work.path(), SENDER, &coordinator.url()).await?;
        Ok(Some(Self {
            claude,
            options,
            model,
            sender,
            coordinator,
            work,
        }))
    }

    /// Returns the folder of the test.
    pub(super) fn work(&self) -> &Path {
        self.work.path()
    }

    /// Starts the real session and waits until it is idle.
    pub(super) async fn start(&self) -> Result<Interactive> {
        self.start_with(&self.options, RECIPIENT).await
    }

    /// Starts a session with these options, and waits until it is idle under that name.
    pub(super) async fn start_with(&self, options: &Options, name: &str) -> Result<Interactive> {
        let session = self.claude.interactive(options).await?;
        self.is(name, "ready")
            .await
            .with_context(|| session.log())?;
        Ok(session)
    }

    /// Waits until an agent is online in that state.
    pub(super) async fn is(&self, name: &str, state: &str) -> Result<Value> {
        self.agent(name, state, |agent| {
            agent["status"] == "online" && agent["state"] == state
        })
        .await
    }

    /// Waits until an agent has no session.
    pub(super) async fn is_offline(&self, name: &str) -> Result<Value> {
        self.agent(name, "offline", |agent| agent["status"] == "offline")
            .await
    }

    async fn agent(&self, name: &str, what: &str, look: impl Fn(&Value) -> bool) -> Result<Value> {
        let (mut last, what) = (Value::Null, format!("{name} {what}"));
        let found = eventually(&what, SOON, async || {
            last = self
                .sender
                .reply("get_agent_status", json!({"agent_id": name}))
                .await
                .ok()?;
            look(&last).then(|| last.clone())
        });
        found.await.with_context(|| format!("its record: {last}"))
    }

    /// Sends a message that needs an answer, and returns its id.
    pub(super) async fn ask(&self, body: &str) -> Result<String> {
        self.send(json!({"target": RECIPIENT, "message": body}))
            .await
    }

    /// Sends a message that needs no answer, and returns its id.
    pub(super) async fn inform(&self, body: &str) -> Result<String> {
        self.send(json!({"target": RECIPIENT, "message": body, "requires_response": false}))
            .await
    }

    /// Sends a message and returns its id.
    pub(super) async fn send(&self, arguments: Value) -> Result<String> {
        let sent = self.sender.reply("send_message", arguments).await?;
        Ok(sent["id"]
            .as_str()
            .context("a message without id")?
            .to_owned())
    }

    /// Waits until a message has reached `stage`, and returns its history as `stage` or `stage via`.
    pub(super) async fn reaches(&self, id: &str, stage: &str) -> Result<Vec<String>> {
        let (mut last, what) = (Vec::new(), format!("{id} {stage}"));
        let reached = eventually(&what, SOON, async || {
            last = self.history(id).await.ok()?;
            last.iter()
                .any(|step| step.split(' ').next() == Some(stage))
                .then(|| last.clone())
        });
        reached
            .await
            .with_context(|| format!("its history: {last:?}"))
    }

    /// Returns the history of a message, each step as `stage` or `stage via`.
    pub(super) async fn history(&self, id: &str) -> Result<Vec<String>> {
        let status = self
            .sender
            .reply("message_status", json!({"message_id": id}))
            .await?;
        let steps = status["history"].as_array().context("no history")?;
        let step = |step: &Value| match step["via"].as_str() {
            Some(via) => format!("{} {via}", step["stage"].as_str().unwrap_or_default()),
            None => step["stage"].as_str().unwrap_or_default().to_owned(),
        };
        Ok(steps.iter().map(step).collect())
    }

    /// Waits for a request to the model that contains that text.
    pub(super) async fn shown(&self, text: &str) -> Result<Asked> {
        self.model
            .wait_for(text, SOON, |asked| {
                asked.offers_tools() && asked.holds(text)
            })
            .await
    }

    /// Waits until the tools are offered to the model, because the client may send a request before it has them.
    pub(super) async fn offers_tools(&self, session: &Interactive) -> Result<()> {
        let mut turns = 0;
        eventually("the tools", SOON, async || {
            turns += 1;
            let asked = self
                .type_and_see(session, &format!("hello for the {turns}. time"))
                .await
                .ok()?;
            self.is(RECIPIENT, "ready").await.ok()?;
            asked.body()["tools"]
                .to_string()
                .contains("__send_message")
                .then_some(())
        })
        .await
    }

    /// Types a line and returns the request that follows from it.
    pub(super) async fn type_and_see(&self, session: &Interactive, line: &str) -> Result<Asked> {
        session.type_line(line).await?;
        // Older versions also request a title, and quote the same line in that request.
        let is_it = |asked: &Asked| asked.offers_tools() && asked.last_user_text().contains(line);
        let asked = self.model.wait_for(line, SOON, is_it).await;
        asked.with_context(|| session.log())
    }
}
