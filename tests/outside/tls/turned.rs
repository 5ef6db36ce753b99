//! A project's link to a folder of settings, which is turned between one of its own and that of the user while commands run: no
//! command takes a part of each.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use c3po_shared::time::Timestamp;
use harness::coordinator::Coordinator;
use harness::link::Link;
use harness::process::{command, program};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// How many commands run while the link is turned.
const COMMANDS: usize = 60;

/// The host of the agents that the tests make.
const HOST: &str = "testhost";

/// The token of the coordinator that no one else has.
const TOKEN: &str = "0123456789-0123456789-0123456789-0123456789";

/// A user with a coordinator, and a project that brings `XDG_CONFIG_HOME`.
struct Desk {
    work: TempDir,
    coordinator: Coordinator,
    home: PathBuf,
    /// The folder of settings of the user, and that of the project.
    own: PathBuf,
    planted: PathBuf,
}

impl Desk {
    /// Opens one with a coordinator that answers no one without a credential.
    async fn with_tls() -> Result<Self> {
        let work = TempDir::new()?;
        let store = format!("sqlite:{}", work.path().join("c3po.db").display());
        let coordinator = Coordinator::absent(work.path(), &store)?.over_tls("auto");
        let mut coordinator = coordinator.with("C3PO_TOKEN", Path::new(TOKEN));
        coordinator.restart().await?;
        let fingerprint = coordinator.fingerprint()?;
        Self::new(work, coordinator, Some(&fingerprint))
    }

    fn new(work: TempDir, coordinator: Coordinator, fingerprint: Option<&str>) -> Result<Self> {
        let home = work.path().join("home");
        let own = home.join(".config/c3po");
        let planted = work.path().join("project/mine");
        for folder in [&own, &planted, &work.path().join("project/conf")] {
            fs::create_dir_all(folder)?;
        }
        let desk = Self {
            work,
            coordinator,
            home,
            own,
            planted,
        };
        for folder in [&desk.own, &desk.planted] {
            desk.set_up(folder, fingerprint)?;
        }
        turn(&desk.link(), &desk.own)?;
        Ok(desk)
    }

    /// Makes the `config.toml` of a folder name the coordinator and a certificate.
    fn set_up(&self, folder: &Path, fingerprint: Option<&str>) -> Result<()> {
        let pinned = fingerprint.map(|of| format!("fingerprint = \"{of}\"\n"));
        let url = self.coordinator.url();
        let text = format!("coordinator_url = \"{url}\"\n") + &pinned.unwrap_or_default();
        Ok(fs::write(folder.join("config.toml"), text)?)
    }

    fn link(&self) -> PathBuf {
        self.work.path().join("project/conf/c3po")
    }

    /// Returns a command in the environment of the project.
    fn c3po(&self, words: &[&str]) -> Result<tokio::process::Command> {
        let mut c3po = command(program("c3po")?, &self.home);
        c3po.args(words)
            .env("C3PO_HOST", HOST)
            .env("XDG_CONFIG_HOME", self.work.path().join("project/conf"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(c3po)
    }

    async fn run(&self, words: &[&str]) -> Result<Output> {
        Ok(self.c3po(words)?.output().await?)
    }

    /// Runs a command of the coordinator. Returns its output.
    async fn administer(&self, words: &[&str]) -> Result<String> {
        let mut program = command(program("c3po-coordinator")?, self.work.path());
        let listen = self.coordinator.address().to_string();
        program.args(words).args(["--listen", &listen]);
        program.env("C3PO_TOKEN", TOKEN);
        let made = program.output().await?;
        ensure!(made.status.success(), "{made:?}");
        Ok(String::from_utf8(made.stdout)?)
    }

    /// Starts to log in, and turns the link after the first line. Returns what the command printed then.
    async fn log_in(&self, then: &Path) -> Result<Output> {
        let made = self
            .administer(&["login", "Ann", "--scope", "answer", "--json"])
            .await?;
        let made: Value = serde_json::from_str(&made)?;
        let code = made["code"].as_str().context("a code")?;
        let words = ["login", &self.coordinator.url(), "--yes"];
        let mut c3po = self.c3po(&words)?.spawn()?;
        let mut line = String::new();
        let stderr = c3po.stderr.as_mut().context("a standard error")?;
        BufReader::new(stderr).read_line(&mut line).await?;
        turn(&self.link(), then)?;
        let mut asked = c3po.stdin.take().context("a standard input")?;
        asked.write_all(code.as_bytes()).await?;
        drop(asked);
        Ok(c3po.wait_with_output().await?)
    }
}

/// Makes a link lead to a folder, at one moment.
fn turn(link: &Path, to: &Path) -> Result<()> {
    let beside = link.with_extension("next");
    symlink(to, &beside)?;
    Ok(fs::rename(beside, link)?)
}

/// A thread that turns a link until it is dropped.
struct Turning {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Turning {
    fn start(desk: &Desk) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (link, folders) = (desk.link(), [desk.planted.clone(), desk.own.clone()]);
        let is_over = Arc::clone(&stop);
        let turning = move || {
            for folder in folders.iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                turn(&link, folder)?;
            }
            Ok(())
        };
        let thread = Some(thread::spawn(turning));
        Self { stop, thread }
    }

    fn end(mut self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("a thread")?;
        thread.join().ok().context("it turned the link")?
    }
}

impl Drop for Turning {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_queued_message_of_a_project_is_not_sent_with_the_login_of_the_user() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let desk = Desk::new(work, coordinator, None)?;
    let done = desk.log_in(&desk.own).await?;
    ensure!(done.status.success(), "{done:?}");
    Link::join(&desk.coordinator.address().to_string(), "web").await?;
    let line = json!({"call_id": CallId::fresh(), "tool": "send_message", "at": Timestamp::now(),
        "arguments": {"target": "web", "message": "planted"}});
    fs::create_dir(desk.planted.join("journal"))?;
    let queued = desk.planted.join("journal/human.jsonl");
    fs::write(&queued, format!("{line}\n"))?;
    let turning = Turning::start(&desk);
    let mut sent = 0;
    for _ in 0..COMMANDS {
        let out = desk.run(&["send", "web", "lunch?"]).await?;
        sent += usize::from(out.status.success());
    }
    turning.end()?;
    turn(&desk.link(), &desk.own)?;
    let inbox = desk.run(&["--as", "web", "--json", "inbox"]).await?;
    ensure!(inbox.status.success(), "{inbox:?}");
    let inbox = String::from_utf8(inbox.stdout)?;
    ensure!(sent > 0 && inbox.contains("lunch?"), "{sent}: {inbox}");
    ensure!(!inbox.contains("planted"), "{inbox}");
    ensure!(fs::read_to_string(&queued)?.starts_with('{'));
    Ok(())
}

#[tokio::test]
async fn a_login_is_not_sent_to_a_server_that_a_project_names() -> Result<()> {
    let desk = Desk::with_tls().await?;
    let done = desk.log_in(&desk.own).await?;
    ensure!(done.status.success(), "{done:?}");
    ensure!(desk.run(&["questions"]).await?.status.success());
    // For the user, another server is at that address now.
    let other = format!("sha256:{}", "ab".repeat(32));
    desk.set_up(&desk.own, Some(&other))?;
    turn(&desk.link(), &desk.planted)?;
    let out = desk.run(&["questions"]).await?;
    ensure!(!out.status.success(), "without a login: {out:?}");
    let turning = Turning::start(&desk);
    for _ in 0..COMMANDS {
        let out = desk.run(&["questions"]).await?;
        ensure!(!out.status.success(), "it got the login: {out:?}");
    }
    turning.end()
}

#[tokio::test]
async fn a_login_is_stored_in_the_folder_that_was_named_before_the_code() -> Result<()> {
    let desk = Desk::with_tls().await?;
    let done = desk.log_in(&desk.planted).await?;
    ensure!(done.status.success(), "{done:?}");
    ensure!(!desk.planted.join("person.toml").exists());
    let stored = fs::read_to_string(desk.own.join("person.toml"))?;
    ensure!(stored.contains("token = "), "{stored}");
    // Saved answers are beside it.
    turn(&desk.link(), &desk.own)?;
    let saved = desk.run(&["answers", "add", "yes", "Yes."]).await?;
    ensure!(saved.status.success() && desk.own.join("answers.toml").exists());
    Ok(())
}
