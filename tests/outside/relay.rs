//! The relay of requests for a decision is turned on and off in `config.toml` while a session runs.

use std::fs;
use std::path::Path;
use std::process::{self, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::person::Person;
use harness::process::{command, program};
use harness::proxy::proxy_command;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::io::AsyncWriteExt;
use tokio::process::Child;
use tokio::time::timeout;

/// How long a hook may take whose request stays at the terminal.
const SOON: Duration = Duration::from_secs(10);
/// How long a hook must wait to count as one that waits for people.
const WAITS: Duration = Duration::from_secs(1);
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
    async fn is_relayed(&self, shell: &str) -> Result<(Child, Value)> {
        let hook = self.asks(shell).await?;
        let question = self.ann.question(shell).await?;
        Ok((hook, question))
    }

    /// Checks that a request stays at the terminal.
    async fn stays(&self, shell: &str) -> Result<()> {
        let hook = self.asks(shell).await?;
        prints_nothing(hook)
            .await
            .with_context(|| shell.to_owned())?;
        is_not_asked(&self.ann, shell).await
    }

    /// Starts the hook of a request while the coordinator is down, and does `change` to the configuration. Checks that the
    /// request stays at the terminal after the coordinator is up again.
    async fn stays_after(
        &mut self,
        session: &McpClient,
        shell: &str,
        change: impl FnOnce(&Self) -> Result<()>,
    ) -> Result<()> {
        self.writes(&self.coordinator.url(), ON)?;
        session.reply("ping", json!({})).await?;
        self.coordinator.kill().await?;
        let mut hook = self.asks(shell).await?;
        let ended = timeout(WAITS, hook.wait()).await;
        ensure!(ended.is_err(), "{shell} does not wait: {ended:?}");
        change(self)?;
        self.coordinator.restart().await?;
        prints_nothing(hook)
            .await
            .with_context(|| shell.to_owned())?;
        eventually("a connection", SOON, async || {
            session.reply("ping", json!({})).await.ok()
        })
        .await?;
        is_not_asked(&self.ann, shell).await
    }
}

/// Checks that a hook ends without a decision.
async fn prints_nothing(hook: Child) -> Result<()> {
    let ended = timeout(SOON, hook.wait_with_output()).await;
    let ended = ended.context("the hook waits for people")??;
    ensure!(ended.stdout.is_empty(), "{ended:?}");
    Ok(())
}

/// Checks that the person has no question about that command.
async fn is_not_asked(person: &Person, shell: &str) -> Result<()> {
    let questions = json!(person.questions().await?).to_string();
    ensure!(!questions.contains(shell), "{questions}");
    Ok(())
}

fn id(question: &Value) -> &str {
    question["id"].as_str().unwrap_or_default()
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
    // The one that was open before is withdrawn.
    prints_nothing(open).await?;
    let stages = host.ann.reaches(id(&question), "withdrawn").await?;
    assert_eq!(stages, ["stored", "withdrawn time_out"]);
    let (status, answer) = host.ann.decide(&question, "allow", &json!({})).await?;
    assert_eq!((status, &answer["code"]), (409, &json!("TOO_LATE")));

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
async fn a_verdict_that_arrives_while_the_relay_is_off_is_not_printed() -> Result<()> {
    let host = Host::new().await?;
    let url = host.coordinator.url();
    host.writes(&url, ON)?;
    let _session = host.session(("NO_COLOR", "")).await?;
    let (open, question) = host.is_relayed("make one").await?;
    host.writes(&url, "")?;
    // Before the session looks at the file again, as a rule.
    host.ann.decide(&question, "allow", &json!({})).await?;
    prints_nothing(open).await?;
    let stages = host.ann.stages(id(&question)).await?;
    ensure!(!json!(stages).to_string().contains("taken"), "{stages:?}");
    Ok(())
}

#[tokio::test]
async fn a_request_that_waits_for_its_coordinator_stays_after_the_relay_was_turned_off()
-> Result<()> {
    let mut host = Host::new().await?;
    let other = tempdir()?;
    let (box_b, config) = (
        Coordinator::start(other.path()).await?,
        host.work().join(".config/c3po/config.toml"),
    );
    let bob = Person::log_in(other.path(), &box_b, "bob", "person").await?;
    let url = host.coordinator.url();
    host.writes(&url, ON)?;
    let session = host.session(("NO_COLOR", "")).await?;
    let off = |host: &Host| host.writes(&url, "");
    host.stays_after(&session, "make one", off).await?;
    let gone = |_: &Host| Ok(fs::remove_file(&config)?);
    host.stays_after(&session, "make two", gone).await?;
    let invalid = |host: &Host| host.writes(&url, "relay_permissions = tru\n");
    host.stays_after(&session, "make three", invalid).await?;
    let elsewhere = |host: &Host| host.writes(&box_b.url(), "");
    host.stays_after(&session, "make four", elsewhere).await?;
    is_not_asked(&bob, "make four").await?;
    let log = fs::read_to_string(host.work().join("web.log"))?;
    let stay = log.matches("stays at the terminal: the relay is off");
    assert_eq!(stay.count(), 4, "{log}");
    Ok(())
}

#[tokio::test]
async fn a_request_that_waits_for_its_coordinator_never_goes_to_the_people_of_another() -> Result<()>
{
    let other = tempdir()?;
    let box_b = Coordinator::start(other.path()).await?;
    let bob = Person::log_in(other.path(), &box_b, "bob", "person").await?;
    for is_added in [false, true] {
        let mut host = Host::new().await?;
        let url = host.coordinator.url();
        host.writes(&url, ON)?;
        let session = host.session(("NO_COLOR", "")).await?;
        host.coordinator.kill().await?;
        let [first, later] = ["first", "later"].map(|which| format!("make {which} {is_added}"));
        let hook = host.asks(&first).await?;
        let named = match is_added {
            true => format!("{},{url}", box_b.url()),
            false => box_b.url(),
        };
        host.writes(&named, ON)?;
        prints_nothing(hook).await?;
        eventually("a connection", SOON, async || {
            session.reply("ping", json!({})).await.ok()
        })
        .await?;
        is_not_asked(&bob, &first).await?;
        let _hook = host.asks(&later).await?;
        bob.question(&later).await?;
    }
    Ok(())
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
