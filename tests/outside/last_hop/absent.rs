//! If any part of c3po is missing or broken, a session behaves as if it had no hooks: the requests to its model are
//! identical, byte for byte.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::claude::{ClaudeCode, Options};
use harness::eventually::eventually;
use harness::fake_api::{Block, FakeApi, Script};
use harness::skip::skipped;
use serde_json::{Value, json};

use super::trouble::{Hook, Mount, Plugin, Trouble, hook, plugin};

/// A session takes about 2 s alone.
const TURN: Duration = Duration::from_secs(60);
/// The time limit of a hook here: c3po guarantees 200 ms, but a debug build under a recorder starts late on a busy machine.
const IN_TIME: u64 = 400;
/// The prompt in every session.
const PROMPT: &str = "call it, then say that you did";
const PROJECT: &str = "meshtastic";
/// The words of the client about a server that is not connected yet.
const TO_COME: &str = "MCP servers are still connecting";
/// How often a session is run until its server is connected before the prompt.
const RUNS: usize = 3;

/// Whether a session runs in a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Manner {
    Printing,
    Terminal,
}

/// The observations of one session.
struct Seen {
    /// The requests to its model.
    asked: Vec<String>,
    hooks: Vec<Hook>,
    proxies: usize,
}

/// Runs one session in that folder, which is the same for all compared sessions, and returns the observations.
async fn run(
    claude: &ClaudeCode,
    work: &Path,
    trouble: &Trouble,
    kind: Plugin,
    manner: Manner,
) -> Result<Seen> {
    fs::create_dir(work)?;
    let command = trouble.command.clone();
    let calls = move |_: &_| vec![Block::call("Bash", json!({"command": command}))];
    let model = FakeApi::start(
        Script::new()
            .then_with(calls)
            .otherwise([Block::text("I did")]),
    )
    .await?;
    let mut options = Options::new(work, PROJECT, &model, &trouble.coordinator);
    options = match kind {
        Plugin::None => options.without_c3po(),
        kind => options.plugin(&plugin(work, kind)?),
    };
    for (name, value) in &trouble.environment {
        options = options.environment(*name, value.display().to_string());
    }
    options = options.arguments(trouble.arguments.iter().copied());
    let lines = |name: &str| fs::read_to_string(work.join(name)).unwrap_or_default();
    let mounts = (trouble.prepare)(&options)?;
    match manner {
        Manner::Printing => {
            let finished = claude.print(&options, PROMPT)?.finish(TURN).await?;
            ensure!(
                finished.output.trim() == "I did",
                "{}\n{}",
                finished.output,
                finished.log
            );
        }
        Manner::Terminal => {
            in_a_terminal(claude, &options, trouble, kind, &lines).await?;
        }
    }
    ensure!(model.others().is_empty(), "{:?}", model.others());
    let hooks = lines("hooks").lines().map(hook).collect::<Result<_>>()?;
    let proxies = lines("proxies").lines().count();
    let asked = model
        .asked()
        .iter()
        .map(|asked| plain(asked.body()))
        .collect::<Result<_>>()?;
    drop(mounts);
    let emptied = eventually("room for the next run", TURN, async || {
        fs::remove_dir_all(work).ok()
    });
    emptied.await?;
    Ok(Seen {
        asked,
        hooks,
        proxies,
    })
}

/// Types the prompt in a terminal, and ends the session after its last hook.
async fn in_a_terminal(
    claude: &ClaudeCode,
    options: &Options,
    trouble: &Trouble,
    kind: Plugin,
    lines: &impl Fn(&str) -> String,
) -> Result<()> {
    let session = claude.interactive(options).await?;
    if trouble.has_proxy(kind) {
        // The offered tools must not depend on timing. The client logs this text when it has received them.
        let connected = || session.debug_log().contains("Channel notifications");
        eventually("its server", TURN, async || connected().then_some(())).await?;
    }
    session.type_line(PROMPT).await?;
    session
        .wait_for_screen("the answer", TURN, |screen| screen.contains("I did"))
        .await?;
    session.wait_ready().await?;
    if matches!(kind, Plugin::Whole | Plugin::HooksAlone | Plugin::Talkative) {
        let stopped = eventually("the last hook", TURN, async || {
            lines("hooks").contains("stop ").then_some(())
        });
        stopped.await?;
    }
    let process = PathBuf::from(format!("/proc/{}", session.claude_pid()));
    drop(session);
    eventually("the end of the session", TURN, async || {
        (!process.exists()).then_some(())
    })
    .await?;
    Ok(())
}

/// Returns a request without the parts that differ in every run: the metadata, and the ids of the model's calls.
fn plain(body: &Value) -> Result<String> {
    let mut body = body.clone();
    body["metadata"] = Value::Null;
    for message in body["messages"].as_array_mut().context("no messages")? {
        for block in message["content"].as_array_mut().into_iter().flatten() {
            for name in ["id", "tool_use_id"] {
                if block[name].is_string() {
                    block[name] = "toolu".into();
                }
            }
        }
    }
    Ok(serde_json::to_string_pretty(&body)?)
}

/// Returns the first line in which two runs differ, from shortly before the difference on. A whole line may be a tool's
/// description of many kilobytes.
fn difference(one: &Seen, other: &Seen) -> Option<String> {
    let lines = |seen: &Seen| {
        seen.asked
            .iter()
            .flat_map(|asked| asked.lines())
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (one, other) = (lines(one), lines(other));
    let Some((one, other)) = one.iter().zip(&other).find(|(one, other)| one != other) else {
        return (one.len() != other.len())
            .then(|| format!("{} and {} lines", one.len(), other.len()));
    };
    let same = one.chars().zip(other.chars());
    let same = same.take_while(|(one, other)| one == other).count();
    let part = |line: &str| -> String {
        line.chars()
            .skip(same.saturating_sub(80))
            .take(240)
            .collect()
    };
    Some(format!("{}\n{}", part(one), part(other)))
}

/// Checks that every hook ran, succeeded quickly, and printed nothing.
fn check_hooks(what: &str, seen: &Seen) {
    for name in [
        "session-start",
        "user-prompt-submit",
        "post-tool-batch",
        "stop",
    ] {
        assert!(
            seen.hooks.iter().any(|hook| hook.name == name),
            "{what}: no {name} in {:?}",
            seen.hooks
        );
    }
    for hook in &seen.hooks {
        assert!(
            hook.code == "0" && hook.said == 0 && hook.milliseconds < IN_TIME,
            "{what}: {hook:?}"
        );
    }
}

/// The common setup of the tests in this file. The path of its folder is short, because it contains sockets.
struct Bench {
    claude: ClaudeCode,
    folder: tempfile::TempDir,
    /// The sessions for comparison, each run once.
    references: HashMap<(Plugin, Manner), Seen>,
}

impl Bench {
    /// Returns `None` and reports a skipped test if Claude Code is not installed.
    fn set(test: &str) -> Result<Option<Self>> {
        match ClaudeCode::find() {
            Ok(claude) => Ok(Some(Self {
                claude,
                folder: tempfile::tempdir()?,
                references: HashMap::new(),
            })),
            Err(reason) => skipped(test, &format!("{reason:#}")).map(|()| None),
        }
    }

    /// Runs a session in the folder that all sessions of this test use. A prompt right after the client logged that its
    /// server is connected may still be sent with the server as one to come: such a session is run again.
    async fn run(&self, trouble: &Trouble, kind: Plugin, manner: Manner) -> Result<Seen> {
        let work = self.folder.path().join("w");
        for _ in 0..RUNS {
            let seen = run(&self.claude, &work, trouble, kind, manner).await;
            let seen = seen.with_context(|| format!("{kind:?} {manner:?}"))?;
            if !seen.asked.iter().any(|asked| asked.contains(TO_COME)) {
                return Ok(seen);
            }
        }
        anyhow::bail!(
            "{kind:?} {manner:?}: the server is still connecting in each of {RUNS} sessions"
        )
    }

    /// Compares sessions with and without hooks, both printing and in a terminal. The sessions without hooks are shared by
    /// all faults of a test, because their requests do not depend on the fault.
    async fn compare(
        &mut self,
        what: &str,
        trouble: &Trouble,
        pair: (Plugin, Plugin),
    ) -> Result<()> {
        for manner in [Manner::Printing, Manner::Terminal] {
            self.compare_by(manner, what, trouble, pair).await?;
        }
        Ok(())
    }

    /// Compares a session with hooks to one without.
    async fn compare_by(
        &mut self,
        manner: Manner,
        what: &str,
        trouble: &Trouble,
        pair: (Plugin, Plugin),
    ) -> Result<()> {
        let (with, without) = pair;
        let one = self
            .run(trouble, with, manner)
            .await
            .context(what.to_owned())?;
        if !self.references.contains_key(&(without, manner)) {
            let reference = self
                .run(trouble, without, manner)
                .await
                .context(what.to_owned())?;
            self.references.insert((without, manner), reference);
        }
        let other = &self.references[&(without, manner)];
        check_hooks(what, &one);
        assert_eq!(
            (other.hooks.len(), one.asked.len()),
            (0, 2),
            "{what}, {manner:?}"
        );
        assert_eq!(one.proxies, other.proxies, "{what}, {manner:?}");
        assert_eq!(
            one.proxies > 0,
            trouble.has_proxy(with),
            "{what}, {manner:?}"
        );
        let difference = difference(&one, other);
        assert!(
            difference.is_none(),
            "{what}, {manner:?}: {}",
            difference.unwrap_or_default()
        );
        Ok(())
    }
}

const HOOKS: (Plugin, Plugin) = (Plugin::Whole, Plugin::WithoutHooks);

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_prints_text_is_noticed() -> Result<()> {
    let Some(bench) = Bench::set("a hook that is noticed")? else {
        return Ok(());
    };
    let trouble = Trouble::without_coordinator()?;
    let talks = bench
        .run(&trouble, Plugin::Talkative, Manner::Printing)
        .await?;
    let silent = bench
        .run(&trouble, Plugin::WithoutHooks, Manner::Printing)
        .await?;
    assert!(
        difference(&talks, &silent).is_some_and(|lines| lines.contains("UserPromptSubmit hook"))
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_coordinator_a_session_is_as_without_hooks() -> Result<()> {
    let Some(mut bench) = Bench::set("a session without a coordinator")? else {
        return Ok(());
    };
    bench
        .compare("nobody listens", &Trouble::without_coordinator()?, HOOKS)
        .await?;

    let silent = TcpListener::bind("127.0.0.1:0")?;
    let trouble = Trouble::coordinator(format!("http://{}", silent.local_addr()?));
    bench
        .compare_by(
            Manner::Printing,
            "one that accepts and never answers",
            &trouble,
            HOOKS,
        )
        .await?;

    let (full, _waiting) = full_listener()?;
    let trouble = Trouble::coordinator(format!("http://{}", full.local_addr()?));
    bench
        .compare_by(
            Manner::Printing,
            "one that does not even accept",
            &trouble,
            HOOKS,
        )
        .await
}

/// Returns a listener whose backlog is full, and the connections in it.
fn full_listener() -> Result<(tokio::net::TcpListener, Vec<TcpStream>)> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let listener = socket.listen(1)?;
    let (address, mut waiting) = (listener.local_addr()?, Vec::new());
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        ensure!(waiting.len() < 100, "everybody gets through");
        waiting.push(stream);
    }
    Ok((listener, waiting))
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_proxy_a_session_is_as_without_c3po() -> Result<()> {
    let Some(mut bench) = Bench::set("a session without a proxy")? else {
        return Ok(());
    };
    let alone = (Plugin::HooksAlone, Plugin::None);
    bench
        .compare(
            "a plugin without a server",
            &Trouble::without_coordinator()?,
            alone,
        )
        .await?;
    let trouble = Trouble {
        arguments: vec!["--strict-mcp-config"],
        ..Trouble::without_coordinator()?
    };
    bench
        .compare_by(Manner::Printing, "servers turned off", &trouble, HOOKS)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_a_proxy_that_has_stopped_a_session_is_as_without_hooks() -> Result<()> {
    let Some(mut bench) = Bench::set("a session beside a stopped proxy")? else {
        return Ok(());
    };
    // Not a killed proxy: the time at which its client notices that and offers other tools varies.
    let command = "kill -STOP $(cat ../proxies)".to_owned();
    bench
        .compare(
            "a stopped proxy",
            &Trouble {
                command,
                ..Trouble::without_coordinator()?
            },
            HOOKS,
        )
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_socket_folder_that_is_not_safe_a_session_is_as_without_hooks() -> Result<()> {
    let Some(mut bench) = Bench::set("a session with a bad socket folder")? else {
        return Ok(());
    };
    let made = |change: fn(&Path) -> Result<()>| {
        let prepare = move |options: &Options| {
            let folder = options.runtime_folder().join("c3po");
            fs::create_dir_all(options.runtime_folder())?;
            change(&folder)?;
            Ok(Vec::new())
        };
        Trouble::without_coordinator().map(|trouble| trouble.prepare(prepare))
    };
    let file = made(|folder| Ok(fs::write(folder, "")?))?;
    bench
        .compare_by(Manner::Printing, "a file", &file, HOOKS)
        .await?;
    let open = made(|folder| {
        fs::create_dir(folder)?;
        Ok(fs::set_permissions(folder, Permissions::from_mode(0o777))?)
    })?;
    bench
        .compare_by(Manner::Printing, "open to others", &open, HOOKS)
        .await?;
    let unreadable = made(|folder| {
        fs::create_dir(folder)?;
        Ok(fs::set_permissions(folder, Permissions::from_mode(0o000))?)
    })?;
    bench
        .compare_by(Manner::Printing, "unreadable", &unreadable, HOOKS)
        .await?;
    let link = made(|folder| Ok(symlink(folder.with_file_name("elsewhere"), folder)?))?;
    bench.compare("a link", &link, HOOKS).await?;
    if is_root() {
        let foreign = made(|folder| {
            fs::create_dir(folder)?;
            fs::set_permissions(folder, Permissions::from_mode(0o700))?;
            Ok(chown(folder, Some(12_345), None)?)
        })?;
        bench
            .compare_by(Manner::Printing, "another user's", &foreign, HOOKS)
            .await?;
    }
    Ok(())
}

/// Returns whether the test may change the owner of folders.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|this| std::os::unix::fs::MetadataExt::uid(&this) == 0)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_full_disk_a_session_is_as_without_hooks() -> Result<()> {
    let Some(mut bench) = Bench::set("a session with a full disk")? else {
        return Ok(());
    };
    let probe = bench.folder.path().join("probe");
    if Mount::full(&probe)?.is_none() {
        return skipped("a session with a full disk", "no disk may be mounted here");
    }
    let full = bench.folder.path().join("w/run");
    let places = [
        ("XDG_STATE_HOME", full.join("state")),
        ("C3PO_LOG_FILE", full.join("log")),
    ];
    let trouble = Trouble {
        environment: places.into(),
        ..Trouble::without_coordinator()?
    };
    let trouble = trouble.prepare(|options| {
        Ok(Mount::full(&options.runtime_folder())?
            .into_iter()
            .collect())
    });
    bench.compare("a full disk", &trouble, HOOKS).await
}
