//! The scene of these tests: a coordinator, an agent that sends, and a real session with the plugin that receives.

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

/// Everything takes less than a second alone; much else runs at the same time.
pub(super) const SOON: Duration = Duration::from_secs(60);
/// So long nothing must happen where nothing may happen: a wake-up takes a tenth of that.
pub(super) const QUIET: Duration = Duration::from_secs(3);
/// Who receives: the folder of the real session.
pub(super) const RECIPIENT: &str = "meshtastic";
/// Who sends.
const SENDER: &str = "homeassistant";
/// What a message that is shown a second time has in its line of origin.
pub(super) const REPEATED: &str = "[may have been shown before]";

pub(super) struct Scene {
    pub(super) claude: ClaudeCode,
    /// With what the real session is started, and started again.
    pub(super) options: Options,
    /// The model of the real session.
    pub(super) model: FakeApi,
    /// A scripted session that sends.
    pub(super) sender: McpClient,
    /// Kept running.
    _coordinator: Coordinator,
    /// Kept until everything in it has ended.
    _work: TempDir,
}

impl Scene {
    /// Sets everything up but the real session. Returns nothing where there is no Claude Code; that is said then.
    pub(super) async fn set(test: &str, script: Script) -> Result<Option<Self>> {
        let claude = match ClaudeCode::find() {
            Ok(claude) => claude,
            Err(reason) => return skipped(test, &format!("{reason:#}")).map(|()| None),
        };
        let work = tempfile::tempdir()?;
        let coordinator = Coordinator::start(work.path()).await?;
        let model = FakeApi::start(script).await?;
        let plugin = plugin_copy(work.path())?;
        let options = Options::new(work.path(), RECIPIENT, &model, &coordinator.url()).plugin(&plugin);
        let sender = session(work.path(), SENDER, &coordinator.url()).await?;
        Ok(Some(Self { claude, options, model, sender, _coordinator: coordinator, _work: work }))
    }

    /// Starts the real session and waits until it rests.
    pub(super) async fn start(&self) -> Result<Interactive> {
        self.start_with(&self.options, RECIPIENT).await
    }

    /// Starts a session with these options, and waits until it rests under that name.
    pub(super) async fn start_with(&self, options: &Options, name: &str) -> Result<Interactive> {
        let session = self.claude.interactive(options).await?;
        self.is(name, "ready").await.with_context(|| session.log())?;
        Ok(session)
    }

    /// Waits until an agent is online in that state.
    pub(super) async fn is(&self, name: &str, state: &str) -> Result<Value> {
        self.agent(name, state, |agent| agent["status"] == "online" && agent["state"] == state).await
    }

    /// Waits until an agent has no session.
    pub(super) async fn is_offline(&self, name: &str) -> Result<Value> {
        self.agent(name, "offline", |agent| agent["status"] == "offline").await
    }

    async fn agent(&self, name: &str, what: &str, look: impl Fn(&Value) -> bool) -> Result<Value> {
        let (mut last, what) = (Value::Null, format!("{name} {what}"));
        let found = eventually(&what, SOON, async || {
            last = self.sender.reply("get_agent_status", json!({"agent_id": name})).await.ok()?;
            look(&last).then(|| last.clone())
        });
        found.await.with_context(|| format!("its record: {last}"))
    }

    /// Sends a message that wants an answer, and returns its id.
    pub(super) async fn ask(&self, body: &str) -> Result<String> {
        self.send(json!({"target": RECIPIENT, "message": body})).await
    }

    /// Sends a message that wants no answer, and returns its id.
    pub(super) async fn inform(&self, body: &str) -> Result<String> {
        self.send(json!({"target": RECIPIENT, "message": body, "requires_response": false})).await
    }

    /// Sends a message and returns its id.
    pub(super) async fn send(&self, arguments: Value) -> Result<String> {
        let sent = self.sender.reply("send_message", arguments).await?;
        Ok(sent["id"].as_str().context("a message without id")?.to_owned())
    }

    /// Waits until a message has got as far as `stage`, and returns its history as `stage` or `stage via`.
    pub(super) async fn reaches(&self, id: &str, stage: &str) -> Result<Vec<String>> {
        let (mut last, what) = (Vec::new(), format!("{id} {stage}"));
        let reached = eventually(&what, SOON, async || {
            last = self.history(id).await.ok()?;
            last.iter().any(|step| step.split(' ').next() == Some(stage)).then(|| last.clone())
        });
        reached.await.with_context(|| format!("its history: {last:?}"))
    }

    /// Returns the history of a message, each step as `stage` or `stage via`.
    pub(super) async fn history(&self, id: &str) -> Result<Vec<String>> {
        let status = self.sender.reply("message_status", json!({"message_id": id})).await?;
        let steps = status["history"].as_array().context("no history")?;
        let step = |step: &Value| match step["via"].as_str() {
            Some(via) => format!("{} {via}", step["stage"].as_str().unwrap_or_default()),
            None => step["stage"].as_str().unwrap_or_default().to_owned(),
        };
        Ok(steps.iter().map(step).collect())
    }

    /// Waits for a request of the model that holds that text.
    pub(super) async fn shown(&self, text: &str) -> Result<Asked> {
        self.model.wait_for(text, SOON, |asked| asked.offers_tools() && asked.holds(text)).await
    }

    /// Returns the request that follows on a line that is typed now.
    pub(super) async fn type_and_see(&self, session: &Interactive, line: &str) -> Result<Asked> {
        session.type_line(line).await?;
        // Older versions ask for a title as well, with the same line in the question.
        let is_it = |asked: &Asked| asked.offers_tools() && asked.last_user_text().contains(line);
        let asked = self.model.wait_for(line, SOON, is_it).await;
        asked.with_context(|| session.log())
    }
}
