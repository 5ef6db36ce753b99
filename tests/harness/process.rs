//! A real program: started with a clean environment, with its log kept, and always ended.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long the kernel may take to end a killed program.
const KILLED: Duration = Duration::from_secs(10);
/// The number of log lines that are shown on failure.
const LOG_LINES: usize = 60;

/// The variable that names a folder with another build of the programs.
pub const PROGRAMS: &str = "C3PO_TEST_PROGRAMS";

/// Returns the path of a program of this workspace: in the folder that [`PROGRAMS`] names, otherwise the one built beside the
/// running test.
///
/// Errors: it has not been built.
pub fn program(name: &str) -> Result<PathBuf> {
    if let Some(folder) = env::var_os(PROGRAMS) {
        return Ok(Path::new(&folder).join(name));
    }
    let this = env::current_exe().context("asking for the running test's path")?;
    // Tests are in `deps`, one folder below the programs.
    let found = this
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    found.with_context(|| {
        format!("{name} is not built: run `cargo build --workspace --bins` before this")
    })
}

/// Returns a command whose environment has only PATH, HOME and TMPDIR; the last two are `home`.
pub fn command(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("TMPDIR", home);
    if let Some(path) = env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Returns the join code in a line that a coordinator printed.
///
/// Errors: the line contains none.
pub fn join_code(line: &str) -> Result<&str> {
    let code = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("C3PO_JOIN_CODE="));
    code.with_context(|| format!("no code in {line:?}"))
}

/// A running program. Dropping it kills it, and prints the end of its log if the test failed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
    quiet: bool,
}

impl Process {
    /// Starts a command with its standard error written to `log`. Standard input and output are those of the command.
    ///
    /// Errors: the log cannot be created, or the program cannot be started.
    pub fn start(mut command: Command, log: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| log.display().to_string())?;
        let child = command.stderr(file).kill_on_drop(true).spawn();
        let child =
            child.with_context(|| format!("starting {:?}", command.as_std().get_program()))?;
        Ok(Self {
            child,
            log: log.to_owned(),
            quiet: false,
        })
    }

    /// Prints no log at the end, for a program that is not a test.
    #[must_use]
    pub fn quietly(mut self) -> Self {
        self.quiet = true;
        self
    }

    /// Returns the process id while it runs.
    ///
    /// Errors: it has exited.
    pub fn id(&self) -> Result<u32> {
        self.child.id().context("the process has ended")
    }

    /// Takes its standard input and output. This works only once.
    ///
    /// Errors: they were not piped, or have been taken.
    pub fn take_pipes(&mut self) -> Result<(ChildStdin, ChildStdout)> {
        Ok((
            self.child.stdin.take().context("no standard input")?,
            self.child.stdout.take().context("no output")?,
        ))
    }

    /// Returns its exit status if it has exited.
    ///
    /// Errors: the system cannot report it.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().context("looking after a process")
    }

    /// Waits for its exit.
    ///
    /// Errors: it is still running after `within`; the error shows its log.
    pub async fn end(&mut self, within: Duration) -> Result<ExitStatus> {
        match timeout(within, self.child.wait()).await {
            Ok(status) => status.context("waiting for a process"),
            Err(_) => bail!(
                "the process still runs after {within:?}; its log:\n{}",
                self.log()
            ),
        }
    }

    /// Sends a signal by name, such as `TERM`.
    ///
    /// Errors: it has exited, or `kill` fails.
    pub async fn signal(&self, name: &str) -> Result<()> {
        let id = self.id()?.to_string();
        let status = Command::new("kill")
            .args(["-s", name, &id])
            .stdin(Stdio::null())
            .status()
            .await;
        if !status.context("running kill")?.success() {
            bail!("kill -s {name} {id} failed");
        }
        Ok(())
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    ///
    /// Errors: the system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        timeout(KILLED, self.child.kill())
            .await
            .context("a killed process does not end")?
            .context("killing a process")
    }

    /// Returns the end of its log.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.quiet {
            // The test runner hides this unless the test fails.
            eprintln!("--- {} ---\n{}", self.log.display(), self.log());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_stopped_and_its_log_kept() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut shell = command("sh", folder.path());
        shell.args([
            "-c",
            "echo $HOME >&2; trap 'exit 7' TERM; while :; do sleep 0.01; done",
        ]);
        let mut process = Process::start(shell, &folder.path().join("log"))?;
        let home = folder.path().display().to_string();
        crate::eventually::eventually("a log", KILLED, async || {
            (process.log() == home).then_some(())
        })
        .await?;
        assert!(process.ended()?.is_none());

        process.signal("TERM").await?;
        assert_eq!(process.end(KILLED).await?.code(), Some(7));
        assert!(process.id().is_err());
        Ok(())
    }

    #[tokio::test]
    async fn a_process_that_does_not_end_is_an_error_with_its_log() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut sleeper = command("sleep", folder.path());
        sleeper.arg("60");
        let mut process = Process::start(sleeper, &folder.path().join("log"))?;
        assert!(process.end(Duration::from_millis(20)).await.is_err());
        process.kill().await?;
        assert!(process.ended()?.is_some());
        Ok(())
    }

    #[test]
    fn a_program_that_was_not_built_is_named() {
        assert!(
            program("no-such-program")
                .expect_err("missing")
                .to_string()
                .contains("no-such-program")
        );
    }
}
