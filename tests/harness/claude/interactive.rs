//! A session in a terminal, as people use it: tests type into it, let it idle, wake it and kill it.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{ClaudeCode, Options};
use crate::eventually::eventually;
use crate::terminal::Terminal;

/// A start takes half a second, and much longer while other tests run.
const READY: Duration = Duration::from_secs(60);
/// After `/exit` the client stops its servers, within half a second each, and runs its last hooks.
const EXIT: Duration = Duration::from_secs(30);
/// The number of lines of its debug log that are printed on failure.
const LOG_LINES: usize = 60;
/// Log lines that are irrelevant for a session.
const NOISE: &[&str] = &[
    ".claude.json",
    "emp file",
    "permissions: 1",
    "stat directory",
    "ui.render",
    "FileIndex",
];
/// The character before the input line.
const PROMPT: char = '❯';

/// A running session. Dropping it ends it, and prints its screen and log if the test failed.
#[derive(Debug)]
pub struct Interactive {
    terminal: Terminal,
    log: PathBuf,
    home: PathBuf,
    inboxes: PathBuf,
}

impl ClaudeCode {
    /// Starts an interactive session and waits until it accepts input.
    ///
    /// Errors: there is no tmux, or the prompt does not appear; the error shows the screen.
    pub async fn interactive(&self, options: &Options) -> Result<Interactive> {
        options.make_home()?;
        let name = Uuid::new_v4().simple().to_string();
        let log = options.work.join(format!("debug-{name}"));
        let mut arguments = options.all_arguments();
        arguments.extend([OsString::from("--debug-file"), OsString::from(&log)]);
        let mut environment = options.all_environment();
        environment.extend(["HOME", "TMPDIR"].map(|name| (name.to_owned(), options.home().into())));
        // Short, because the path of a socket is limited to about 100 bytes.
        let socket = options.work.join(format!("tmux-{}", &name[..8]));
        let terminal = Terminal::open(
            &socket,
            &options.folder(),
            &environment,
            &self.program,
            &arguments,
        )
        .await?;
        let session = Interactive {
            terminal,
            log,
            home: options.home(),
            inboxes: options.inbox_folder(),
        };
        session.wait_ready().await?;
        Ok(session)
    }
}

impl Interactive {
    /// Prints no screen at the end, for a program that is not a test.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.terminal = self.terminal.quietly();
        self
    }

    /// Waits until the prompt is visible.
    ///
    /// Errors: it does not appear; the error shows the screen.
    pub async fn wait_ready(&self) -> Result<()> {
        self.wait_for_screen("the prompt", READY, |screen| {
            let lines = screen.lines().rev().filter(|line| !line.trim().is_empty());
            // Below it there is a rule, and a line with key hints.
            lines.take(5).any(|line| line.starts_with(PROMPT))
        })
        .await
    }

    /// Types a line and presses Enter.
    ///
    /// Errors: the line does not appear; the error shows the screen.
    pub async fn type_line(&self, text: &str) -> Result<()> {
        self.terminal
            .type_line(text)
            .await
            .with_context(|| self.story())
    }

    /// Types a text without Enter.
    ///
    /// Errors: the terminal is gone.
    pub async fn write(&self, text: &str) -> Result<()> {
        self.terminal.write(text).await
    }

    /// Presses one key, by its name in tmux, such as `Escape`.
    ///
    /// Errors: the terminal is gone.
    pub async fn key(&self, name: &str) -> Result<()> {
        self.terminal.key(name).await
    }

    /// Gives its terminal another size.
    ///
    /// Errors: the terminal is gone.
    pub async fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        self.terminal.resize(columns, rows).await
    }

    /// Returns the text on the screen.
    ///
    /// Errors: the terminal is gone.
    pub async fn screen(&self) -> Result<String> {
        self.terminal.screen().await
    }

    /// Writes everything that the client sends to its terminal from now on into that file.
    ///
    /// Errors: the terminal is gone.
    pub async fn record(&self, file: &Path) -> Result<()> {
        self.terminal.record(file).await
    }

    /// Waits until the screen satisfies `look`.
    ///
    /// Errors: it does not `within` the time; the error shows the screen and the debug log.
    pub async fn wait_for_screen(
        &self,
        what: &str,
        within: Duration,
        look: impl Fn(&str) -> bool,
    ) -> Result<()> {
        self.terminal
            .wait_for(what, within, look)
            .await
            .with_context(|| self.story())
    }

    /// Returns the process id of the client.
    pub fn claude_pid(&self) -> u32 {
        self.terminal.pid()
    }

    /// Returns the client's session id.
    ///
    /// Errors: the client has not recorded it.
    pub fn session_id(&self) -> Result<String> {
        Ok(said(&self.home, self.claude_pid())?["sessionId"]
            .as_str()
            .context("no session id")?
            .to_owned())
    }

    /// Returns the process id of the proxy beside it.
    ///
    /// Errors: there is none.
    pub fn proxy_pid(&self) -> Result<u32> {
        let parent = format!("PPid:\t{}\n", self.claude_pid());
        let processes = fs::read_dir("/proc")
            .context("listing processes")?
            .flatten();
        let ids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
        let of = |id: u32, file: &str| {
            fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default()
        };
        let mut proxies = ids.filter(|id| {
            of(*id, "status").contains(&parent) && of(*id, "cmdline").ends_with("c3po\0proxy\0")
        });
        proxies.next().context("no proxy runs beside the session")
    }

    /// Sends it a signal by name, such as `KILL`.
    ///
    /// Errors: it has ended.
    pub async fn kill(&self, signal: &str) -> Result<()> {
        self.terminal.signal(signal).await
    }

    /// Returns whether it has ended.
    ///
    /// Errors: the terminal is gone.
    pub async fn has_ended(&self) -> Result<bool> {
        Ok(self.terminal.ended().await?.is_some())
    }

    /// Waits for its end, for any reason.
    ///
    /// Errors: it keeps running; the error shows the screen.
    pub async fn end(&self) -> Result<Option<i32>> {
        self.terminal.end(EXIT).await.with_context(|| self.story())
    }

    /// Types `/exit` and waits for the end.
    ///
    /// Errors: it keeps running; the error shows the screen.
    pub async fn exit(self) -> Result<Option<i32>> {
        self.type_line("/exit").await?;
        self.end().await
    }

    /// Returns the socket through which other local processes can post texts into the session. Older versions have none.
    pub fn inbox(&self) -> PathBuf {
        self.inboxes.join(format!("{}.sock", self.claude_pid()))
    }

    /// Removes the inbox socket, so that nothing can be posted to it.
    ///
    /// Errors: there is none.
    pub async fn remove_inbox(&self) -> Result<()> {
        let inbox = self.inbox();
        let removed = eventually("an inbox", READY, async || fs::remove_file(&inbox).ok());
        removed.await.with_context(|| inbox.display().to_string())
    }

    /// Posts a text into the session without c3po, as any process of this user can. The socket appears soon after the prompt.
    ///
    /// Errors: there is no such socket.
    pub async fn post(&self, text: &str) -> Result<()> {
        let inbox = self.inbox();
        let open = eventually("an inbox", READY, async || UnixStream::connect(&inbox).ok());
        let mut socket = open.await.with_context(|| inbox.display().to_string())?;
        let line = json!({"type": "user", "message": {"role": "user", "content": text}});
        socket
            .write_all(format!("{line}\n").as_bytes())
            .context("posting to a session")
    }

    /// Returns its whole debug log.
    pub fn debug_log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Returns the end of its debug log, without the irrelevant lines.
    pub fn log(&self) -> String {
        let text = self.debug_log();
        let lines: Vec<_> = text
            .lines()
            .filter(|line| !NOISE.iter().any(|noise| line.contains(noise)))
            .collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    fn story(&self) -> String {
        format!("the end of its debug log:\n{}", self.log())
    }
}

/// Returns the session file of the client with that process id and HOME. It has `sessionId`, and `status`: `idle`, `busy`, or
/// `waiting` for a person.
///
/// Errors: there is no such client.
pub fn said(home: &Path, pid: u32) -> Result<Value> {
    let file = home.join(format!(".claude/sessions/{pid}.json"));
    let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    serde_json::from_str(&text).context("what it says of itself is no JSON")
}
