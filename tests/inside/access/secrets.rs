//! No join code is an argument of a program, because every user of the machine can see those. This holds for printed lines
//! and for `c3po join`, which reads the code instead.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::process::{command, join_code, program};
use harness::terminal::Terminal;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;

use super::joining::{coordinator, line};

/// How long a program may take to start, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(20);

/// Adds the arguments of a process and of those that it started. The other processes of a machine may be many, and a look at
/// all of them takes longer than some programs run.
fn see(process: &Path, seen: &mut BTreeSet<String>) {
    let text = std::fs::read(process.join("cmdline")).unwrap_or_default();
    seen.insert(String::from_utf8_lossy(&text).replace('\0', " "));
    let threads = std::fs::read_dir(process.join("task"));
    for thread in threads.into_iter().flatten().flatten() {
        let started = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in started.split_whitespace() {
            see(&Path::new("/proc").join(child), seen);
        }
    }
}

/// Makes a shell run a line as if it were pasted. Returns whether it succeeded, and the arguments of all its programs.
fn paste(home: &Path, line: &str) -> Result<(bool, BTreeSet<String>)> {
    let folder = program("c3po")?.parent().context("a folder")?.to_owned();
    let mut shell = Command::new("sh");
    shell.env_clear().env("HOME", home).env(
        "PATH",
        format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display()),
    );
    let mut shell = shell
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    shell
        .stdin
        .take()
        .context("a standard input")?
        .write_all(format!("{line}\n").as_bytes())?;
    let (mut seen, process) = (BTreeSet::new(), format!("/proc/{}", shell.id()));
    while shell.try_wait()?.is_none() {
        see(Path::new(&process), &mut seen);
    }
    Ok((shell.wait()?.success(), seen))
}

#[tokio::test]
async fn no_program_that_a_printed_line_starts_has_the_code_among_its_arguments() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = coordinator(work.path()).await?;
    for mark in ["c3po join ", "curl "] {
        let (home, line) = (
            TempDir::new()?,
            line(work.path(), &coordinator, mark).await?,
        );
        let (code, url) = (join_code(&line)?, coordinator.url());
        let (folder, pasted) = (home.path().to_owned(), line.clone());
        let (is_in, seen) = tokio::task::spawn_blocking(move || paste(&folder, &pasted)).await??;
        ensure!(is_in, "{line}");
        ensure!(
            seen.iter()
                .any(|arguments| arguments.contains(&format!("join {url}"))),
            "it was looked at: {seen:?}"
        );
        let shown: Vec<_> = seen
            .iter()
            .filter(|arguments| arguments.contains(code))
            .collect();
        ensure!(shown.is_empty(), "{shown:?}");
    }
    Ok(())
}

/// Runs `c3po join` with that standard input and additional arguments.
async fn join(home: &Path, url: &str, input: &str, more: &[&str]) -> Result<Output> {
    let mut c3po = command(program("c3po")?, home);
    c3po.args(["join", url])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut c3po = c3po.spawn()?;
    // A program that does not read its input may have closed it.
    let _ = c3po
        .stdin
        .take()
        .context("a standard input")?
        .write_all(input.as_bytes())
        .await;
    Ok(c3po.wait_with_output().await?)
}

#[tokio::test]
async fn a_code_among_the_arguments_is_refused_and_one_on_standard_input_taken() -> Result<()> {
    let (work, home) = (TempDir::new()?, TempDir::new()?);
    let coordinator = coordinator(work.path()).await?;
    let line = line(work.path(), &coordinator, "c3po join ").await?;
    let (code, url) = (join_code(&line)?, coordinator.url());
    let refused = join(home.path(), &url, "", &[code]).await?;
    let said = String::from_utf8(refused.stderr)?;
    ensure!(
        refused.status.code() == Some(2) && !said.contains(code),
        "{said}"
    );
    ensure!(
        said.contains(&format!("run `c3po join {url}`")) && said.contains("C3PO_JOIN_CODE"),
        "{said}"
    );
    ensure!(
        !home.path().join(".config/c3po/config.toml").exists(),
        "nothing is written"
    );
    let joined = join(home.path(), &url, &format!("{code}\n"), &[]).await?;
    ensure!(joined.status.success(), "{joined:?}");
    Ok(())
}

#[tokio::test]
async fn a_code_is_asked_for_on_a_terminal_that_does_not_show_it() -> Result<()> {
    let (work, home) = (TempDir::new()?, TempDir::new()?);
    let coordinator = coordinator(work.path()).await?;
    let line = line(work.path(), &coordinator, "c3po join ").await?;
    let code = join_code(&line)?;
    let environment = [("HOME".to_owned(), OsString::from(home.path()))];
    let arguments = ["join".into(), coordinator.url().into()];
    let socket = home.path().join("tmux");
    let terminal = Terminal::open(
        &socket,
        home.path(),
        &environment,
        &program("c3po")?,
        &arguments,
    )
    .await?;
    terminal
        .wait_for("the question", SOON, |screen| {
            screen.contains("it is not shown")
        })
        .await?;
    terminal.write(code).await?;
    terminal.key("Enter").await?;
    terminal
        .wait_for("the end", SOON, |screen| {
            screen.contains("This host has joined")
        })
        .await?;
    let screen = terminal.screen().await?.replace('\n', "");
    ensure!(!screen.contains(code), "{screen}");
    Ok(())
}
