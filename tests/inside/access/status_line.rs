//! The status line of a session shows the questions that wait for people, if its host may read them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{self, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use harness::eventually::eventually;
use harness::link::{Link, Who};
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::proxy_command;
use inside::gate::Gate;
use inside::served::Served;
use serde_json::json;
use tempfile::TempDir;

/// How long a step may take, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

/// A session with its proxy, whose status line is shown.
struct Shown<'a> {
    home: &'a Path,
    _client: McpClient,
}

impl<'a> Shown<'a> {
    async fn start(home: &'a Path, url: &str, key: Option<&str>) -> Result<Self> {
        let mut proxy = proxy_command(home, "db", url)?;
        proxy.envs(key.map(|key| ("C3PO_TOKEN", key)));
        let client = McpClient::start(proxy, &home.join("db.log"))?;
        client.initialize().await?;
        client.call("ping", json!({})).await?;
        Ok(Self {
            home,
            _client: client,
        })
    }

    async fn line(&self) -> Result<String> {
        let mut shown = command(program("c3po")?, self.home);
        shown
            .arg("statusline")
            .env("NO_COLOR", "1")
            .env("XDG_RUNTIME_DIR", self.home)
            .env("CLAUDE_PID", process::id().to_string())
            .stdin(Stdio::null());
        Ok(String::from_utf8(shown.output().await?.stdout)?)
    }

    async fn has(&self, part: &str) -> Result<()> {
        eventually(&format!("the line with '{part}'"), SOON, async || {
            self.line().await.ok()?.contains(part).then_some(())
        })
        .await
    }
}

async fn asks(web: &mut Link) -> Result<()> {
    let call = json!({"question": "Which one?", "wait": false});
    web.call("ask_user", call).await.map(drop)
}

#[tokio::test]
async fn the_status_line_shows_what_waits_for_a_person_while_the_login_is_valid() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
    web.hello(&Who::new("web")).await?.expect("an agent");
    asks(&mut web).await?;
    asks(&mut web).await?;
    let url = format!("http://{}", gate.served.address);
    let without = Shown::start(home.path(), &url, Some(&key)).await?;
    without.has("connected").await?;
    ensure!(!without.line().await?.contains("question"));
    drop(without);
    let login = gate.login("answer").await?;
    let folder = home.path().join(".config/c3po");
    std::fs::create_dir_all(&folder)?;
    let file = format!("coordinator_url = \"{url}\"\ntoken = \"{login}\"\n");
    std::fs::write(folder.join("person.toml"), file)?;
    std::fs::set_permissions(
        folder.join("person.toml"),
        std::fs::Permissions::from_mode(0o600),
    )?;
    let shown = Shown::start(home.path(), &url, Some(&key)).await?;
    shown.has("2 questions, the oldest ").await?;
    gate.revoke_login(&login).await?;
    eventually("no number stays", 3 * SOON, async || {
        let line = shown.line().await.ok()?;
        (!line.contains("question")).then_some(())
    })
    .await
}

#[tokio::test]
async fn the_status_line_shows_what_waits_on_an_open_coordinator() -> Result<()> {
    let (served, home) = (Served::start().await?, TempDir::new()?);
    let mut web = served.join("web").await?;
    asks(&mut web).await?;
    let url = format!("http://{}", served.address);
    let shown = Shown::start(home.path(), &url, None).await?;
    shown.has("db · 1 question, ").await
}
