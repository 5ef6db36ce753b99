//! A program on a terminal whose every byte is kept, unlike that of [`crate::terminal`], which interprets them.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// How long a program may run, on a machine that builds at the same time.
const RUNS: Duration = Duration::from_secs(60);
/// How many pieces of output may wait; the reader of the terminal waits for room.
const PIECES: usize = 16;

/// Runs a command whose standard input, output and error are a terminal, until it ends or has printed `last`; a program that
/// goes on is killed. Returns all output with plain line ends.
///
/// Errors: there is no terminal, the program does not start or end, or its output is not UTF-8.
pub async fn output(mut command: Command, last: Option<&str>) -> Result<String> {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .context("a terminal")?;
    grantpt(&controller).context("granting the terminal")?;
    unlockpt(&controller).context("unlocking the terminal")?;
    let name = ptsname(&controller, Vec::new()).context("the terminal's name")?;
    let terminal = open(
        name,
        OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    command
        .stdin(terminal.try_clone()?)
        .stdout(terminal.try_clone()?)
        .stderr(terminal)
        .kill_on_drop(true);
    let mut child = command.spawn().context("starting it")?;
    // The output ends when the program's descriptors are the last ones, and closed.
    drop(command);
    let (sender, mut pieces) = mpsc::channel(PIECES);
    std::thread::spawn(move || {
        let (mut file, mut buffer) = (File::from(controller), [0; 4_096]);
        // A terminal without programs is an error to its reader.
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                break;
            }
        }
    });
    let reading = async {
        let mut all = Vec::new();
        while let Some(piece) = pieces.recv().await {
            all.extend(piece);
            if last.is_some_and(|last| String::from_utf8_lossy(&all).contains(last)) {
                break;
            }
        }
        all
    };
    let all = timeout(RUNS, reading)
        .await
        .context("the program prints nothing more and does not end")?;
    if last.is_some() {
        // It may have ended meanwhile.
        let _ = child.start_kill();
    }
    timeout(RUNS, child.wait())
        .await
        .context("the program does not end")??;
    Ok(String::from_utf8(all)
        .context("the output is not UTF-8")?
        .replace("\r\n", "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command;

    #[tokio::test]
    async fn a_program_is_on_a_terminal_and_its_bytes_are_kept() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let mut shell = command("sh", folder.path());
        shell.args([
            "-c",
            "test -t 0 && test -t 1 && test -t 2 && printf 'a\\033[2Jb\\r' && echo c >&2",
        ]);
        assert_eq!(output(shell, None).await?, "a\u{1b}[2Jb\rc\n");
        let mut shell = command("sh", folder.path());
        shell.args(["-c", "echo here; exec sleep 60"]);
        assert!(output(shell, Some("here")).await?.starts_with("here"));
        Ok(())
    }
}
