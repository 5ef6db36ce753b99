//! The relay of requests for a decision is turned on and off in `config.toml` while a session runs.

use std::fs;
use std::path::Path;
use std::process::{self, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::mcp::McpClient;
use harness::person::Person;
use harness::process::{command, program};
use harness::proxy::proxy_command;
use serde_json::json;
use tempfile::{TempDir, tempdir};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;
use tokio::time::timeout;

/// How long a hook may take whose request stays at the terminal.
const SOON: Duration = Duration::from_secs(10);
const ON: &str = "relay_permissions = true\n";

/// A person, and a session whose coordinator is named by `config.toml` alone.
struct Host {
    work: TempDir,
    coordinator: Coordinator,
    ann: Person,
}

impl Host {
    async fn new() -> Result<Self> {
        let work = tempdir()?;
        let coordinator = Coordinator::start(work.path()).await?;
        let ann = Person::log_in(work.path(), &coordinator, "ann", "person").await?;
        fs::create_dir_all(work.path().join(".config/c3po"))?;
        Ok(Self {
            work,
            coordinator,
            ann,
        })
    }

    fn work(&self) -> &Path {
        self.work.path()
    }

    /// Writes `config.toml`, with a coordinator and further settings.
    fn writes(&self, coordinator: &str, more: &str) -> Result<()> {
        let text = format!("coordinator_url = \"{coordinator}\"\n{more}");
        Ok(fs::write(
            self.work().join(".config/c3po/config.toml"),
            text,
        )?)
    }

    /// Starts the session with a further variable.
    async fn session(&self, variable: (&str, &str)) -> Result<McpClient> {
        let mut proxy = proxy_command(self.work(), "web", &self.coordinator.url())?;
        proxy
            .env_remove("C3PO_COORDINATOR_URL")
            .env("CLAUDE_CODE_ENTRYPOINT", "cli")
            .env(variable.0, variable.1);
        let session = McpClient::start(proxy, &self.work().join("web.log"))?;
        session.initialize().await?;
        session.reply("ping", json!({})).await?;
        Ok(session)
    }

    /// Starts the hook of a request to run a command.
    async fn asks(&self, shell: &str) -> Result<Child> {
        let mut hook = command(program("c3po")?, self.work());
        hook.args(["hook", "permission-request"])
            .env("XDG_RUNTIME_DIR", self.work())
            .env("CLAUDE_PID", process::id().to_string())
            .kill_on_drop(true);
        let mut hook = hook.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = json!({
            "session_id": "s1", "prompt_id": "p1", "hook_event_name": "PermissionRequest",
            "tool_name": "Bash", "tool_input": {"command": shell},
        });
        let mut stdin = hook.stdin.take().context("its input")?;
        stdin.write_all(input.to_string().as_bytes()).await?;
        Ok(hook)
    }

    /// Checks that a request reaches people. Returns its hook, which waits, and the question.
    async fn is_relayed(&self, shell: &str) -> Result<(Child, serde_json::Value)> {
        let hook = self.asks(shell).await?;
        let question = self.ann.question(shell).await?;
        Ok((hook, question))
    }

    /// Checks that a request stays at the terminal.
    async fn stays(&self, shell: &str) -> Result<()> {
        let hook = self.asks(shell).await?;
        let ended = timeout(SOON, hook.wait_with_output()).await;
        let ended = ended.with_context(|| format!("the hook of {shell} waits for people"))??;
        ensure!(ended.stdout.is_empty(), "{ended:?}");
        let questions = json!(self.ann.questions().await?).to_string();
        ensure!(!questions.contains(shell), "{questions}");
        Ok(())
    }
}

#[tokio::test]
async fn a_running_session_follows_the_file() -> Result<()> {
    let host = Host::new().await?;
    let url = host.coordinator.url();
    host.writes(&url, ON)?;
    let _session = host.session(("NO_COLOR", "")).await?;
    let (open, question) = host.is_relayed("make one").await?;

    host.writes(&url, "")?;
    host.stays("make two").await?;
    // The one that was open before is still decided elsewhere.
    let (status, answer) = host.ann.decide(&question, "allow", &json!({})).await?;
    ensure!(status == 201, "{answer}");
    let printed = timeout(SOON, open.wait_with_output()).await??;
    let printed = String::from_utf8(printed.stdout)?;
    ensure!(printed.contains("\"allow\""), "{printed}");

    host.writes(&url, ON)?;
    host.is_relayed("make three").await?;
    host.writes("http://127.0.0.1:9", ON)?;
    // The session is still connected to the former one.
    host.stays("make four").await?;
    host.writes(&format!("http://127.0.0.1:9,{url}"), ON)?;
    host.is_relayed("make five").await?;
    host.writes(&url, "relay_permissions = tru\n")?;
    host.stays("make six").await?;
    fs::remove_file(host.work().join(".config/c3po/config.toml"))?;
    host.stays("make seven").await
}

#[tokio::test]
async fn the_environment_decides_before_the_file() -> Result<()> {
    let host = Host::new().await?;
    let url = host.coordinator.url();
    host.writes(&url, ON)?;
    let session = host.session(("C3PO_RELAY_PERMISSIONS", "false")).await?;
    host.stays("make one").await?;
    // While the first one runs, it answers the hooks.
    session.end(SOON).await?;
    let _session = host.session(("C3PO_RELAY_PERMISSIONS", "true")).await?;
    host.writes(&url, "")?;
    host.is_relayed("make two").await.map(drop)
}
