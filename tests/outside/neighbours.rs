//! Another user of the same machine, who was there first and looks everywhere. This user gets no code, key, text, socket or
//! answer, and cannot silence a hook.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::process::{Process, join_code, program};
use harness::skip::skipped;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;
use tokio::process::Command;

/// The time limit of a start, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(60);
/// A text that occurs only in one message.
const TEXT: &str = "text-for-nobody-else";

/// A user without an account entry, with the programs, a home, and a permissive umask.
struct User {
    id: u32,
    home: PathBuf,
    programs: PathBuf,
}

impl User {
    fn new(base: &Path, id: u32) -> Result<Self> {
        let home = base.join(id.to_string());
        fs::create_dir(&home)?;
        fs::set_permissions(&home, Permissions::from_mode(0o755))?;
        chown(&home, Some(id), Some(id))?;
        Ok(Self {
            id,
            home,
            programs: base.join("bin"),
        })
    }

    /// Returns a command of this user with umask 0, so that every file is open to all by default.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", "umask 000; exec \"$@\"", "sh"])
            .args(words)
            .uid(self.id)
            .gid(self.id);
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("TMPDIR", &self.home)
            .current_dir(&self.home);
        command
            .env("PATH", format!("{}:/usr/bin:/bin", self.programs.display()))
            .stdin(Stdio::null());
        command
    }

    async fn run(&self, words: &[&str]) -> Result<Output> {
        Ok(self.command(words).output().await?)
    }

    /// Runs a command. Returns both its outputs.
    async fn says(&self, words: &[&str]) -> Result<String> {
        let output = self.run(words).await?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr))
    }

    /// Runs the prompt hook of the session beside this test. Returns its output for the client.
    async fn prompts(&self) -> Result<String> {
        let mut hook = self.command(&["c3po", "hook", "user-prompt-submit"]);
        hook.env("CLAUDE_PID", std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut hook = hook.spawn()?;
        let event = json!({"session_id": "s1", "prompt_id": "p1", "prompt": "go on"}).to_string();
        // A hook that finds no proxy may have exited.
        let _ = hook
            .stdin
            .take()
            .context("its input")?
            .write_all(event.as_bytes())
            .await;
        Ok(String::from_utf8(hook.wait_with_output().await?.stdout)?)
    }
}

/// A folder in `/tmp`, removed when this is dropped.
struct Planted(PathBuf);

impl Drop for Planted {
    fn drop(&mut self) {
        // An error does not matter: the next test creates another folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a folder with the programs that every user may run, and two users; `None` if this process may not switch users.
fn users(test: &str) -> Result<Option<(TempDir, User, User)>> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        skipped(test, "only root can be two users")?;
        return Ok(None);
    }
    let base = TempDir::new_in("/tmp")?;
    fs::set_permissions(base.path(), Permissions::from_mode(0o755))?;
    let programs = base.path().join("bin");
    fs::create_dir(&programs)?;
    for name in ["c3po", "c3po-coordinator"] {
        fs::copy(program(name)?, programs.join(name))?;
    }
    // Different ids for each test and run, because the folder in `/tmp` contains the id.
    let first = 20_000 + std::process::id() % 20_000 * 2;
    let (victim, other) = (
        User::new(base.path(), first)?,
        User::new(base.path(), first + 1)?,
    );
    Ok(Some((base, victim, other)))
}

/// Starts that user's coordinator, which requires keys, and joins its own host.
async fn joined(user: &User, listen: &str) -> Result<(Process, String)> {
    let mut command = user.command(&[
        "c3po-coordinator",
        "--listen",
        listen,
        "--closed",
        "--tls",
        "auto",
    ]);
    command.env("C3PO_LOG", "trace");
    let coordinator = Process::start(command, &user.home.join("coordinator.log"))?;
    let invite = ["c3po-coordinator", "invite", "--listen", listen];
    let line = eventually("an invite", SOON, async || {
        let said = user.says(&invite).await.ok()?;
        said.lines()
            .find(|line| line.contains("c3po join "))
            .map(|line| line.trim().to_owned())
    });
    let line = line.await?;
    let mut join = user.command(&[
        "c3po",
        "join",
        line.split(' ').next_back().context("a URL")?,
    ]);
    let joined = join
        .env("C3PO_JOIN_CODE", join_code(&line)?)
        .output()
        .await?;
    ensure!(joined.status.success(), "{joined:?}");
    Ok((coordinator, join_code(&line)?.to_owned()))
}

/// Makes the logs that the test keeps its own.
fn take_logs(victim: &User) -> Result<()> {
    for kept in ["coordinator.log", "session.log"] {
        chown(victim.home.join(kept), Some(0), Some(0))?;
        fs::set_permissions(victim.home.join(kept), Permissions::from_mode(0o600))?;
    }
    Ok(())
}

/// Asserts that a user can read no file, socket or environment of the other one.
async fn reads_nothing_of(other: &User, victim: &User, coordinator: u32) -> Result<()> {
    let home = victim.home.display().to_string();
    for found in [
        ["-type", "f", "-readable"],
        ["-type", "s", "-writable"],
        ["-type", "d", "-writable"],
    ] {
        let found = other
            .says(&[&["find", &home, "-mindepth", "1"], &found[..]].concat())
            .await?;
        let found: Vec<_> = found
            .lines()
            .filter(|line| !line.contains("Permission denied"))
            .collect();
        ensure!(found.is_empty(), "{found:?}");
    }
    let environment = format!("/proc/{}/environ", coordinator);
    ensure!(!other.run(&["cat", &environment]).await?.status.success());
    Ok(())
}

#[tokio::test]
async fn another_user_of_the_machine_gets_nothing_and_silences_no_hook() -> Result<()> {
    let Some((_base, victim, other)) = users("another_user_of_the_machine")? else {
        return Ok(());
    };
    let planted = Planted(PathBuf::from(format!("/tmp/c3po-{}", victim.id)));
    let place = planted.0.display().to_string();
    ensure!(
        other
            .run(&["mkdir", "-m", "777", &place])
            .await?
            .status
            .success(),
        "he is first"
    );
    let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let (coordinator, code) = joined(&victim, &listen).await?;

    let log = victim.home.join("proxy.log").display().to_string();
    let mut proxy = victim.command(&["c3po", "proxy"]);
    proxy
        .env("C3PO_AGENT_ID", "bank")
        .env("C3PO_LOG", "trace")
        .env("C3PO_LOG_FILE", &log);
    let session = McpClient::start(proxy, &victim.home.join("session.log"))?;
    session.initialize().await?;
    session
        .reply("send_message", json!({"target": "bank", "message": TEXT}))
        .await?;
    take_logs(&victim)?;

    ensure!(other.prompts().await?.is_empty(), "nobody answers him");
    reads_nothing_of(&other, &victim, coordinator.id()?).await?;
    let data = victim.home.join(".local/share/c3po").display().to_string();
    let keys = [
        "c3po-coordinator",
        "keys",
        "list",
        "--listen",
        &listen,
        "--data-dir",
        &data,
    ];
    ensure!(!other.run(&keys).await?.status.success() && victim.run(&keys).await?.status.success());
    let mut join = other.command(&["c3po", "join", &format!("https://{listen}")]);
    ensure!(
        !join
            .env("C3PO_JOIN_CODE", &code)
            .output()
            .await?
            .status
            .success(),
        "the code was used"
    );

    let given = victim.prompts().await?;
    ensure!(given.contains(TEXT), "the hook answers: {given:?}");
    let logs =
        fs::read_to_string(&log)? + &fs::read_to_string(victim.home.join("coordinator.log"))?;
    ensure!(
        logs.contains("DEBUG") && !logs.contains(TEXT),
        "no log has a text"
    );
    Ok(())
}

/// Puts a queued message into a journal, as a session that died would have left it.
async fn plant(user: &User, journal: &Path, agent: &str, text: &str) -> Result<()> {
    let call = json!({
        "call_id": c3po_shared::ids::CallId::fresh(),
        "tool": "send_message",
        "arguments": {"target": "bank", "message": text},
        "at": c3po_shared::time::Timestamp::now(),
    });
    let file = journal.join(format!("{agent}.jsonl")).display().to_string();
    let script = "printf '%s\\n' \"$1\" > \"$2\"";
    let planted = user
        .run(&["sh", "-c", script, "sh", &call.to_string(), &file])
        .await?;
    ensure!(planted.status.success(), "{planted:?}");
    Ok(())
}

#[tokio::test]
async fn a_journal_that_another_user_wrote_is_not_sent() -> Result<()> {
    let Some((_base, victim, other)) = users("a_journal_that_another_user_wrote")? else {
        return Ok(());
    };
    let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let (_coordinator, _) = joined(&victim, &listen).await?;
    let journal = victim.home.join(".local/state/c3po/journal");
    let made = victim
        .run(&["mkdir", "-p", &journal.display().to_string()])
        .await?;
    ensure!(made.status.success(), "{made:?}");
    // As a restored backup may leave them. The next session closes them, after the other user was there.
    for folder in journal.ancestors().take(4) {
        fs::set_permissions(folder, Permissions::from_mode(0o777))?;
    }
    plant(&other, &journal, "a-forged", "forged").await?;
    plant(&other, &journal, "bank", "forged").await?;
    plant(&victim, &journal, "b-own", "own").await?;
    let mut proxy = victim.command(&["c3po", "proxy"]);
    proxy.env("C3PO_AGENT_ID", "bank");
    let session = McpClient::start(proxy, &victim.home.join("session.log"))?;
    session.initialize().await?;
    let first = session
        .reply("wait_for_message", json!({"timeout": 60}))
        .await?;
    ensure!(first["message"] == "own", "{first}");
    let next = session
        .reply("wait_for_message", json!({"timeout": 2}))
        .await?;
    ensure!(next["status"] == "timeout", "{next}");
    // His file is in the way of messages that wait on this host, and of no others.
    let sent = session
        .reply("send_message", json!({"target": "bank", "message": "x"}))
        .await?;
    ensure!(sent["id"].is_string(), "{sent}");
    let kept = fs::read_to_string(journal.join("bank.jsonl"))?;
    ensure!(
        kept.contains("forged") && kept.lines().count() == 1,
        "{kept}"
    );
    Ok(())
}

#[tokio::test]
async fn a_folder_or_a_lock_that_another_user_prepared_is_refused() -> Result<()> {
    let Some((base, victim, other)) = users("a_folder_that_another_user_prepared")? else {
        return Ok(());
    };
    let shared = base.path().join("shared");
    fs::create_dir(&shared)?;
    fs::set_permissions(&shared, Permissions::from_mode(0o777))?;
    let (prepared, precious) = (shared.join("prepared"), victim.home.join("precious"));
    let [prepared, lock, database] = [
        prepared,
        shared.join("c3po.db.lock"),
        shared.join("c3po.db"),
    ]
    .map(|path| path.display().to_string());
    ensure!(
        other
            .run(&["mkdir", "-m", "777", &prepared])
            .await?
            .status
            .success()
    );
    let refused = victim
        .says(&[
            "c3po-coordinator",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            &prepared,
        ])
        .await?;
    ensure!(
        refused.contains(&format!("belongs to uid {}", other.id)),
        "{refused}"
    );

    ensure!(
        other
            .run(&["ln", "-s", &precious.display().to_string(), &lock])
            .await?
            .status
            .success()
    );
    let store = format!("sqlite:{database}");
    for mode in [0o777, 0o1777] {
        fs::set_permissions(&shared, Permissions::from_mode(mode))?;
        let refused = victim
            .says(&[
                "c3po-coordinator",
                "--listen",
                "127.0.0.1:0",
                "--store",
                &store,
            ])
            .await?;
        ensure!(
            refused.contains("shared is writable by other users"),
            "{refused}"
        );
        ensure!(!precious.exists() && !Path::new(&database).exists());
    }
    Ok(())
}

#[tokio::test]
async fn a_command_does_not_believe_the_coordinator_of_another_user() -> Result<()> {
    let Some((base, victim, other)) = users("the_coordinator_of_another_user")? else {
        return Ok(());
    };
    let data = base.path().join("data");
    fs::create_dir(&data)?;
    chown(&data, Some(other.id), Some(other.id))?;
    let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let (at, folder) = (listen.to_string(), data.display().to_string());
    let place = ["--listen", &at, "--data-dir", &folder];
    let serve = other.command(&[&["c3po-coordinator"], &place[..]].concat());
    let _coordinator = Process::start(serve, &other.home.join("coordinator.log"))?;
    let socket = data.join(format!("control-{}.sock", listen.port()));
    eventually("the socket", SOON, async || socket.exists().then_some(())).await?;
    for path in [&data, &socket] {
        fs::set_permissions(path, Permissions::from_mode(0o777))?;
    }
    let list = [&["c3po-coordinator", "logins", "list"], &place[..]].concat();
    ensure!(other.run(&list).await?.status.success());
    let refused = victim.says(&list).await?;
    let why = format!("is held by a process of uid {}", other.id);
    ensure!(refused.contains(&why), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_hook_believes_no_process_of_another_user() -> Result<()> {
    let Some((_base, victim, _)) = users("a_hook_and_another_user")? else {
        return Ok(());
    };
    let place = Planted(PathBuf::from(format!("/tmp/c3po-{}", victim.id)));
    let mut proxy = victim.command(&["c3po", "proxy"]);
    proxy.env("C3PO_AGENT_ID", "bank");
    let session = McpClient::start(proxy, &victim.home.join("session.log"))?;
    let socket = eventually("the socket", SOON, async || {
        let mut entries = fs::read_dir(&place.0).ok()?;
        entries.find_map(|entry| Some(entry.ok()?.path()).filter(|path| path.extension().is_some()))
    })
    .await?;
    drop(session);
    // This process is root: another user than the one of the hook, in whose folder it has replaced the socket.
    fs::remove_file(&socket)?;
    let listener = UnixListener::bind(&socket)?;
    chown(&socket, Some(victim.id), Some(victim.id))?;
    let answers = async {
        loop {
            let (stream, _) = listener.accept().await?;
            let mut stream = BufReader::new(stream);
            // A hook that does not believe it is gone.
            let _ = stream.read_line(&mut String::new()).await;
            let _ = stream.write_all(b"{\"stdout\": \"believed\"}\n").await;
        }
    };
    let given = tokio::select! {
        given = victim.prompts() => given?,
        failed = answers => return failed,
    };
    ensure!(given.is_empty(), "{given}");
    Ok(())
}
