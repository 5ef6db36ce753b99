//! A program in its own terminal: a separate tmux server that tests type into and read as a person would.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::Command;
use tokio::time::timeout;

use crate::eventually::eventually;

/// Large enough that a line of a test is one line on the screen.
const SIZE: [&str; 4] = ["-x", "180", "-y", "50"];
/// The terminal type that tmux sets for its programs.
const TERM: &str = "screen-256color";
/// tmux answers within milliseconds; this allows for a busy machine.
const ANSWER: Duration = Duration::from_secs(20);

/// A running terminal. Dropping it ends it and its programs, and prints its screen if the test failed.
#[derive(Debug)]
pub struct Terminal {
    socket: PathBuf,
    /// The program in it.
    pid: u32,
    quiet: bool,
}

impl Terminal {
    /// Opens a terminal whose server listens at `socket`, and runs `program` in `folder`. Its environment is `environment`,
    /// PATH and TERM.
    ///
    /// Errors: tmux is not installed, or it fails.
    pub async fn open(
        socket: &Path,
        folder: &Path,
        environment: &[(String, OsString)],
        program: &Path,
        arguments: &[OsString],
    ) -> Result<Self> {
        let mut tmux = tmux(socket);
        // The screen of an ended program stays, so that a failed test can show it.
        tmux.args([
            "start-server",
            ";",
            "set-option",
            "-g",
            "remain-on-exit",
            "on",
            ";",
        ]);
        tmux.args(["new-session", "-d", "-P", "-F", "#{pane_pid}"])
            .args(SIZE)
            .arg("-c")
            .arg(folder);
        // tmux adds variables, and `env` removes them. `env` becomes the program and keeps its process id.
        tmux.args(["--", "env", "-i"]).arg(format!("TERM={TERM}"));
        if let Some(path) = env::var_os("PATH") {
            tmux.arg(assignment("PATH", &path));
        }
        tmux.args(
            environment
                .iter()
                .map(|(name, value)| assignment(name, value)),
        );
        tmux.arg(program)
            .args(arguments.iter().map(|argument| escaped(argument)));
        let pid = run(tmux).await.context("opening a terminal")?;
        let pid = pid
            .trim()
            .parse()
            .with_context(|| format!("the terminal's program is no number: {pid}"))?;
        Ok(Self {
            socket: socket.to_owned(),
            pid,
            quiet: false,
        })
    }

    /// Prints no screen at the end, for a program that is not a test.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Returns the process id of the program.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Gives the terminal another size.
    ///
    /// Errors: the terminal is gone.
    pub async fn resize(&self, columns: u16, rows: u16) -> Result<()> {
        let mut tmux = tmux(&self.socket);
        tmux.args([
            "resize-window",
            "-x",
            &columns.to_string(),
            "-y",
            &rows.to_string(),
        ]);
        run(tmux).await.map(drop).context("changing the size")
    }

    /// Returns the text on the screen.
    ///
    /// Errors: the terminal is gone.
    pub async fn screen(&self) -> Result<String> {
        let mut tmux = tmux(&self.socket);
        tmux.args(["capture-pane", "-p"]);
        run(tmux).await.context("reading the screen")
    }

    /// Writes everything that the program sends to its terminal from now on into that file.
    ///
    /// Errors: the terminal is gone.
    pub async fn record(&self, file: &Path) -> Result<()> {
        let mut tmux = tmux(&self.socket);
        let into = format!("exec cat >> '{}'", file.display());
        tmux.args(["pipe-pane", "-O", &into]);
        run(tmux).await.map(drop).context("recording the terminal")
    }

    /// Types a text, waits until it is on the screen, and presses Enter.
    ///
    /// Errors: it does not appear; the error shows the screen.
    pub async fn type_line(&self, text: &str) -> Result<()> {
        let sign = dense(text).chars().take(40).collect::<String>();
        let count = |screen: &str| dense(screen).matches(&sign).count();
        let before = count(&self.screen().await?);
        self.write(text).await?;
        // An immediate Enter would be taken for part of a pasted text.
        let typed = format!("{text:?} on the screen");
        self.wait_for(&typed, ANSWER, |screen| count(screen) > before)
            .await?;
        self.key("Enter").await
    }

    /// Types a text without Enter.
    ///
    /// Errors: the terminal is gone.
    pub async fn write(&self, text: &str) -> Result<()> {
        let mut tmux = tmux(&self.socket);
        tmux.args(["send-keys", "-l", "--"])
            .arg(escaped(OsStr::new(text)));
        run(tmux).await.map(drop).context("typing")
    }

    /// Presses one key, by its name in tmux: `Escape`, `Enter`, `C-c`.
    ///
    /// Errors: the terminal is gone.
    pub async fn key(&self, name: &str) -> Result<()> {
        let mut tmux = tmux(&self.socket);
        tmux.args(["send-keys", name]);
        run(tmux)
            .await
            .map(drop)
            .with_context(|| format!("pressing {name}"))
    }

    /// Waits until the screen satisfies `look`.
    ///
    /// Errors: it does not `within` the time, or the program has ended; the error shows the screen.
    pub async fn wait_for(
        &self,
        what: &str,
        within: Duration,
        look: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let mut last = String::new();
        let seen = eventually(what, within, async || {
            match self.screen().await {
                Ok(screen) => last = screen,
                Err(error) => return Some(Err(error)),
            }
            look(&last).then_some(Ok(()))
        });
        seen.await
            .and_then(|seen| seen)
            .with_context(|| format!("on the screen was:\n{}", last.trim()))
    }

    /// Returns how the program ended, if it has: its exit code, or `None` inside if a signal ended it.
    ///
    /// Errors: the terminal is gone.
    pub async fn ended(&self) -> Result<Option<Option<i32>>> {
        match Life::of(self.pid) {
            Life::Alive => return Ok(None),
            // tmux may take half a minute to reap an ended program.
            Life::Ended(code) => return Ok(Some(code)),
            Life::Gone => {}
        }
        let mut tmux = tmux(&self.socket);
        tmux.args(["display-message", "-p", "#{pane_dead_status}"]);
        let code = run(tmux).await.context("asking how the program ended")?;
        // There is no code if a signal ended it.
        Ok(Some(code.trim().parse().ok()))
    }

    /// Waits for the program to end and returns its exit code.
    ///
    /// Errors: it keeps running; the error shows the screen.
    pub async fn end(&self, within: Duration) -> Result<Option<i32>> {
        let ended = eventually("the end of the program", within, async || {
            self.ended().await.transpose()
        })
        .await;
        if let Ok(ended) = ended {
            return ended;
        }
        bail!(
            "it runs on after {within:?}; on its screen is:\n{}",
            self.screen().await?
        )
    }

    /// Sends the program a signal by name, such as `KILL`.
    ///
    /// Errors: it has ended, or `kill` refuses.
    pub async fn signal(&self, name: &str) -> Result<()> {
        ensure!(self.ended().await?.is_none(), "the program has ended");
        let mut kill = Command::new("kill");
        kill.args(["-s", name, &self.pid.to_string()]);
        run(kill).await.map(drop)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let tmux = |arguments: &[&str]| {
            let socket = self.socket.as_os_str();
            std::process::Command::new("tmux")
                .arg("-S")
                .arg(socket)
                .args(arguments)
                .stderr(Stdio::null())
                .output()
        };
        if let (false, Ok(screen)) = (self.quiet, tmux(&["capture-pane", "-p"])) {
            // The test runner hides this unless the test fails.
            eprintln!(
                "--- screen ---\n{}",
                String::from_utf8_lossy(&screen.stdout).trim()
            );
        }
        if let Life::Alive = Life::of(self.pid) {
            // A program that ignores the end of its terminal would outlive the test. It may end before the signal.
            let _ = std::process::Command::new("kill")
                .args(["-s", "KILL", &self.pid.to_string()])
                .status();
        }
        // The server may already be gone, which is fine.
        let _ = tmux(&["kill-server"]);
    }
}

/// The state of a process.
enum Life {
    Alive,
    /// It ended with that code or by a signal, and has not been reaped.
    Ended(Option<i32>),
    /// It has been reaped.
    Gone,
}

impl Life {
    fn of(pid: u32) -> Self {
        let Ok(line) = fs::read_to_string(format!("/proc/{pid}/stat")) else {
            return Self::Gone;
        };
        // The state follows the name, which may contain any characters. The last field is the status that `wait` would
        // return.
        let fields: Vec<_> = line
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let waited: i32 = fields
            .last()
            .and_then(|last| last.parse().ok())
            .unwrap_or_default();
        match fields.first() {
            Some(&("Z" | "X")) => Self::Ended((waited & 0x7f == 0).then_some(waited >> 8)),
            _ => Self::Alive,
        }
    }
}

/// Returns a tmux command for the server at that socket, without any user's configuration.
fn tmux(socket: &Path) -> Command {
    let mut command = Command::new("tmux");
    // Without UTF-8, tmux would print underscores for non-ASCII characters.
    command
        .arg("-u")
        .arg("-S")
        .arg(socket)
        .args(["-f", "/dev/null"])
        .env_clear()
        .env("LANG", "C.UTF-8");
    if let Some(path) = env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

async fn run(mut command: Command) -> Result<String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(ANSWER, command.output())
        .await
        .context("no answer")?;
    let output =
        output.with_context(|| format!("starting {:?}", command.as_std().get_program()))?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn assignment(name: &str, value: &OsStr) -> OsString {
    let mut assignment = OsString::from(format!("{name}="));
    assignment.push(value);
    escaped(&assignment)
}

/// Escapes a final semicolon, which tmux would treat as the end of a command.
fn escaped(argument: &OsStr) -> OsString {
    match argument.to_str().and_then(|text| text.strip_suffix(';')) {
        Some(text) => format!("{text}\\;").into(),
        None => argument.to_owned(),
    }
}

/// Returns a text without white space, because the screen wraps lines anywhere.
fn dense(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shell(folder: &Path, script: &str) -> Result<Terminal> {
        let environment = [("GREETING".to_owned(), OsString::from("hello;"))];
        let arguments = ["-c".into(), script.into()];
        Terminal::open(
            &folder.join("tmux"),
            folder,
            &environment,
            Path::new("sh"),
            &arguments,
        )
        .await
    }

    #[tokio::test]
    async fn a_program_is_typed_to_and_read_and_its_end_is_seen() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let terminal = shell(
            folder.path(),
            "read line; echo \"$GREETING $line ${TMUX:-alone}\"; exit 3;",
        )
        .await?;
        assert!(terminal.ended().await?.is_none());
        terminal.type_line("you there;").await?;
        terminal
            .wait_for("an answer", ANSWER, |screen| {
                screen.contains("hello; you there; alone")
            })
            .await?;
        assert_eq!(terminal.end(ANSWER).await?, Some(3));
        Ok(())
    }

    #[tokio::test]
    async fn a_program_is_signalled_and_a_timeout_is_reported_with_the_screen() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let terminal = shell(folder.path(), "echo over here; exec sleep 600").await?;
        let never = terminal
            .wait_for("a flying pig", Duration::from_millis(500), |screen| {
                screen.contains("pig")
            })
            .await;
        let never = format!("{:#}", never.expect_err("never"));
        assert!(
            never.contains("a flying pig") && never.contains("over here"),
            "{never}"
        );
        terminal.signal("KILL").await?;
        assert_eq!(terminal.end(ANSWER).await?, None);
        assert!(terminal.signal("KILL").await.is_err());
        Ok(())
    }
}
