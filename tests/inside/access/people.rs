//! A person's commands with keys of every scope: those that are permitted, and the messages for the others.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::AgentId;
use c3po_shared::time::Timestamp;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use harness::process::{command, program};
use inside::gate::Gate;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

/// How long a command may take, on a machine that builds at the same time.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// A host with a key and its own home.
pub(super) struct Host {
    home: TempDir,
    pub(super) url: String,
    pub(super) key: String,
}

impl Host {
    /// Creates a host with a new key.
    pub(super) async fn with(gate: &Gate, scope: &str, agents: &str) -> Result<Self> {
        let key = gate.key(scope, agents, &[]).await?;
        Ok(Self {
            home: TempDir::new()?,
            url: format!("http://{}", gate.served.address),
            key,
        })
    }

    /// Creates a host with a new key for all agents, and with a login of its person.
    pub(super) async fn of_person(gate: &Gate) -> Result<Self> {
        let (host, token) = (
            Self::with(gate, "agent", "*").await?,
            gate.login("answer").await?,
        );
        let folder = host.home.path().join(".config/c3po");
        fs::create_dir_all(&folder)?;
        let file = format!("coordinator_url = \"{}\"\ntoken = \"{token}\"\n", host.url);
        fs::write(folder.join("person.toml"), file)?;
        fs::set_permissions(
            folder.join("person.toml"),
            fs::Permissions::from_mode(0o600),
        )?;
        // The notices about the login.
        host.says("ack --all").await?;
        Ok(host)
    }

    /// Returns a command of the host.
    pub(super) fn c3po(&self, words: &str) -> Result<Command> {
        let mut c3po = command(program("c3po")?, self.home.path());
        c3po.args(words.split_whitespace())
            .env("C3PO_COORDINATOR_URL", &self.url)
            .env("C3PO_TOKEN", &self.key);
        c3po.env("PATH", "/usr/bin:/bin")
            .env("XDG_RUNTIME_DIR", self.home.path());
        Ok(c3po)
    }

    /// Runs a command. Returns its output and exit code.
    pub(super) async fn run(&self, words: &str) -> Result<Output> {
        Ok(self.c3po(words)?.output().await?)
    }

    /// Runs a command that must succeed. Returns its output.
    pub(super) async fn says(&self, words: &str) -> Result<String> {
        let output = self.run(words).await?;
        ensure!(output.status.success(), "{words}: {output:?}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs a command that must exit with that code. Returns its standard error.
    pub(super) async fn fails(&self, words: &str, code: i32) -> Result<String> {
        let output = self.run(words).await?;
        ensure!(output.status.code() == Some(code), "{words}: {output:?}");
        Ok(String::from_utf8(output.stderr)?)
    }
}

#[tokio::test]
async fn a_shell_completes_the_ids_of_the_agents_that_the_coordinator_knows() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::with(&gate, "agent", "web-*").await?;
    let mut web = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    web.hello(&Who::new("web-1")).await?.expect("it is covered");
    for words in ["send we", "--as we", "policy check we", "audit --agent we"] {
        let mut shell = host.c3po("-- c3po")?;
        let offered = shell
            .args(words.split(' '))
            .env("C3PO_COMPLETE", "fish")
            .output()
            .await?;
        assert_eq!(String::from_utf8(offered.stdout)?, "web-1\n", "{words}");
    }
    Ok(())
}

/// Returns the events in the audit, but for those about keys.
async fn audited_events(host: &Host) -> Result<Vec<Value>> {
    let entries = host.says("audit --json").await?;
    let entries: Value = serde_json::from_str(&format!("[{}]", entries.replace("}\n{", "},\n{")))?;
    let of_keys = |entry: &&Value| entry["event"] != "key_changed";
    Ok(entries
        .as_array()
        .context("entries")?
        .iter()
        .filter(of_keys)
        .map(|entry| entry["event"].clone())
        .collect())
}

#[tokio::test]
async fn a_key_that_may_look_looks_and_one_that_may_operate_reads() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("agent", "web-1", &[]).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
    web.hello(&Who::new("web-1")).await?.expect("it is covered");
    let read = Host::with(&gate, "read", "*").await?;
    let operator = Host::with(&gate, "operator", "*").await?;
    let narrow = Host::with(&gate, "agent", "web-*").await?;
    for (host, own) in [
        (&read, None),
        (&operator, None),
        (&narrow, Some("somebody-4-cli")),
    ] {
        ensure!(host.says("agents").await?.contains("web-1"));
        ensure!(host.says("agents --online").await?.contains("web-1"));
        let status = host.says("status").await?;
        let link = own.unwrap_or("none to http");
        ensure!(
            status.contains("web-1 (1 of 1)") && status.contains(link),
            "{status}"
        );
        let status: Value = serde_json::from_str(&host.says("status --json").await?)?;
        let code = own.map_or(json!("FORBIDDEN"), |_| Value::Null);
        assert_eq!(
            (&status["agents_online"], &status["error"]["code"]),
            (&json!(["web-1"]), &code)
        );
    }
    let audit = operator.says("audit --since 1h --agent web-1").await?;
    ensure!(audit.contains("web-1"), "{audit}");
    ensure!(
        operator
            .says("audit --since 1s --agent nobody")
            .await?
            .is_empty()
    );
    let checked = operator.says("policy check web-1 web-2 message").await?;
    ensure!(
        checked.contains("allow  message from web-1 (host somebody) to web-2"),
        "{checked}"
    );
    for words in ["audit", "policy check web-1 web-2 message"] {
        for host in [&read, &narrow] {
            ensure!(host.fails(words, 1).await?.contains("FORBIDDEN"), "{words}");
        }
    }
    assert_eq!(
        audited_events(&operator).await?,
        ["session_begun"],
        "reading leaves no entry, be it allowed or refused"
    );
    // Commands that need an agent are refused as before.
    ensure!(
        operator
            .fails("send web-1 hello", 1)
            .await?
            .contains("may not act as an agent")
    );
    web.call("ping", json!({})).await?;
    Ok(())
}

#[tokio::test]
async fn an_offline_agent_is_not_reported_as_unknown() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    let mut gone = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    gone.hello(&Who::new("gone")).await?.expect("it is covered");
    gone.notify("goodbye", json!({})).await?;
    // With or without a close frame, the link has ended.
    let _ = gone.hear_close().await;
    let all = host.says("agents").await?;
    ensure!(all.contains("gone") && all.contains("last seen"), "{all}");
    assert_eq!(
        host.says("agents --online").await?,
        "No agent is online; `c3po agents` lists all agents.\n"
    );
    Ok(())
}

#[tokio::test]
async fn a_person_is_referred_to_commands_and_not_to_tools() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    for (words, command) in [
        ("send nobodi hello", "`c3po agents`"),
        ("receipt a::b::00000001", "`c3po inbox`"),
        ("thread a::b::00000001", "`c3po inbox`"),
        ("reply a::b::00000001 yes", "`c3po inbox`"),
    ] {
        let said = host.fails(words, 1).await?;
        ensure!(said.contains(command), "{words}: {said}");
        ensure!(
            !["list_agents", "send_message", "get_messages"]
                .iter()
                .any(|tool| said.contains(tool)),
            "{said}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_name_that_the_key_covers_is_made_and_belongs_to_its_host() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::with(&gate, "agent", "*").await?;
    let mut web = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    web.hello(&Who::new("web")).await?.expect("it is covered");
    let sent: Value = serde_json::from_str(&host.says("--as ops send web hello --json").await?)?;
    assert_eq!(
        (&sent["from_agent"], &sent["from_host"]),
        (&json!("ops"), &json!("somebody"))
    );
    let id = sent["id"].as_str().context("an id")?;
    web.call("reply", json!({"message_id": id, "response": "for ops"}))
        .await?;
    ensure!(host.says("--as ops inbox").await?.contains("> for ops"));
    let other = Host {
        key: gate.key("agent", "*", &["--host", "box"]).await?,
        ..Host::with(&gate, "agent", "*").await?
    };
    ensure!(
        other
            .fails("--as ops inbox", 1)
            .await?
            .contains("ops belongs to the host somebody, and this is box")
    );
    let narrow = Host::with(&gate, "agent", "api").await?;
    for (words, why, code) in [
        ("--as other inbox", "does not cover other", 1),
        ("--as human inbox", "c3po login", 2),
    ] {
        ensure!(narrow.fails(words, code).await?.contains(why), "{words}");
    }
    ensure!(
        host.fails("--as web inbox", 1)
            .await?
            .contains("web is held by a connected session")
    );
    for words in ["--as system inbox", "--as all inbox"] {
        ensure!(
            host.fails(words, 1).await?.contains("no agent named"),
            "{words}"
        );
    }
    let agents = host.says("agents").await?;
    ensure!(
        agents.contains("ops") && !agents.contains("other"),
        "{agents}"
    );
    Ok(())
}

#[tokio::test]
async fn a_command_that_follows_ends_with_an_error_when_its_key_is_revoked() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::with(&gate, "agent", "*").await?;
    let mut sender = Link::open_with(
        &gate.served.address,
        Some(&gate.key("agent", "*", &[]).await?),
    )
    .await?;
    sender
        .hello(&Who::new("sender"))
        .await?
        .expect("it is covered");
    host.says("inbox").await?;
    let mut tail = host
        .c3po("tail")?
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    sender
        .call(
            "send_message",
            json!({"target": "somebody-cli", "message": "it follows"}),
        )
        .await?;
    let mut lines = BufReader::new(tail.stdout.take().context("its output")?).lines();
    while !lines
        .next_line()
        .await?
        .context("it ended")?
        .contains("it follows")
    {}
    gate.revoke(&host.key).await?;
    let ended = timeout(SOON, tail.wait_with_output())
        .await
        .context("it goes on")??;
    let said = String::from_utf8(ended.stderr)?;
    ensure!(
        ended.status.code() == Some(1)
            && said.contains("UNAUTHORIZED")
            && said.contains("c3po join"),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn a_person_is_online_as_long_as_a_terminal_follows() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    let person = async || -> Result<Value> {
        let agents: Value = serde_json::from_str(&host.says("agents --json").await?)?;
        let agents = agents["agents"].as_array().context("no agents")?;
        Ok(agents
            .iter()
            .find(|agent| agent["id"] == "human")
            .cloned()
            .unwrap_or_default())
    };
    let is = async |status: &str| -> Result<()> {
        eventually(status, SOON, async || {
            person()
                .await
                .ok()
                .filter(|person| person["status"] == status)
        })
        .await
        .map(drop)
    };
    host.says("inbox").await?;
    is("offline").await?;
    let mut tail = host
        .c3po("inbox --follow")?
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    is("online").await?;
    ensure!(
        person().await?["reach"] == json!(["terminal"]),
        "{}",
        person().await?
    );
    host.says("send human note-to-self").await?;
    tail.kill().await?;
    is("offline").await
}

#[tokio::test]
async fn a_person_is_online_until_the_last_terminal_ends() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.login("answer").await?;
    let terminal = async || -> Result<Link> {
        let mut terminal = Link::open_with(&gate.served.address, Some(&key)).await?;
        let who = Who {
            more: json!({"person": true, "reach": ["terminal"]}),
            ..Who::new("human")
        };
        terminal.hello(&who).await?.expect("it is covered");
        Ok(terminal)
    };
    let person = async || {
        anyhow::Ok(
            gate.served
                .store
                .agent(&AgentId::human())
                .await?
                .context("it exists")?,
        )
    };
    let (mut first, mut second) = (terminal().await?, terminal().await?);
    let before = person().await?.held_until;
    // A heartbeat within the pause after the last renewal extends nothing.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    first
        .request("heartbeat", json!({"timestamp": "2026-01-15T10:30:00Z"}))
        .await?
        .expect("it is answered");
    let extended = async || {
        person()
            .await
            .ok()
            .filter(|person| person.held_until > before)
    };
    eventually("a heartbeat extends it", SOON, extended).await?;
    for (terminal, online) in [(&mut first, true), (&mut second, false)] {
        terminal.notify("goodbye", json!({})).await?;
        // With or without a close frame, the link has ended.
        let _ = terminal.hear_close().await;
        assert_eq!(person().await?.is_online(Timestamp::now()), online);
    }
    Ok(())
}

#[tokio::test]
async fn a_host_whose_key_is_for_some_agents_is_well() -> Result<()> {
    let gate = Gate::start().await?;
    for agents in ["web-*", "web-*,web"] {
        let host = Host::with(&gate, "agent", agents).await?;
        let found: Value = serde_json::from_slice(&host.run("doctor --json").await?.stdout)?;
        let findings = found["findings"].as_array().context("findings")?;
        for rung in ["by a wait", "by a hook", "by a waiter"] {
            let finding = findings
                .iter()
                .find(|finding| finding["check"] == rung)
                .context(rung)?;
            ensure!(
                finding["verdict"] == "skip" && finding["found"].to_string().contains("cover"),
                "{agents}: {finding}"
            );
        }
        let coordinator = findings
            .iter()
            .find(|finding| finding["check"] == "coordinator")
            .context("a finding")?;
        assert_eq!(coordinator["verdict"], "ok", "{coordinator}");
    }
    Ok(())
}

#[tokio::test]
async fn a_configuration_that_cannot_be_meant_is_wrong_usage() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    for (variable, value) in [
        ("C3PO_TIMEOUT", "0"),
        ("C3PO_TIMEOUT", "3601"),
        ("C3PO_COORDINATOR_URL", "nonsense"),
    ] {
        let output = host.c3po("agents")?.env(variable, value).output().await?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(
            output.status.code() == Some(2) && said.contains(variable) && said.contains(value),
            "{variable}: {said}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_host_has_its_own_agents_forgotten_and_a_host_renamed_only_as_administrator() -> Result<()>
{
    let gate = Gate::start().await?;
    let (host, admin) = (
        Host::of_person(&gate).await?,
        Host::with(&gate, "admin", "*").await?,
    );
    let mut web = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    web.hello(&Who::new("web")).await?.expect("it is covered");
    ensure!(
        host.fails("agents rm web", 1)
            .await?
            .contains("connected session")
    );
    web.notify("goodbye", json!({})).await?;
    let said = eventually("the session is over", SOON, async || {
        host.says("agents rm web").await.ok()
    })
    .await?;
    assert_eq!(said, "web is deleted, and its name is free.\n");
    ensure!(
        host.fails("agents rm web", 1)
            .await?
            .contains("no agent named web")
    );
    let refused = host.fails("hosts rename somebody nas", 1).await?;
    ensure!(
        refused.contains("`c3po-coordinator hosts rename somebody nas`"),
        "{refused}"
    );
    let renamed: Value =
        serde_json::from_str(&admin.says("hosts rename somebody nas --json").await?)?;
    assert_eq!(
        renamed,
        json!({"from": "somebody", "to": "nas", "agents": 0, "keys": 1})
    );
    Ok(())
}
