//! A host with a different platform than the coordinator's machine: it gets the program provided for it, or its code stays
//! valid.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use harness::process::{command, join_code, program};
use tempfile::TempDir;

use super::joining::{c3po, coordinator, line};

fn put_program(path: &Path, content: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().context("a folder")?)?;
    fs::write(path, content)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o755))?)
}

/// Creates a host that pretends to be another platform: its `uname` prints these words.
fn host(system: &str, processor: &str) -> Result<TempDir> {
    let home = TempDir::new()?;
    let uname = format!(
        "#!/bin/sh\ncase $1 in -m) echo {processor} ;; -s) echo {system} ;; *) exit 1 ;; esac\n"
    );
    put_program(&home.path().join("fake/uname"), uname.as_bytes())?;
    Ok(home)
}

async fn paste(home: &Path, line: &str) -> Result<Output> {
    let mut shell = command("sh", home);
    let path = format!(
        "{}:/usr/local/bin:/usr/bin:/bin",
        home.join("fake").display()
    );
    Ok(shell.args(["-c", line]).env("PATH", path).output().await?)
}

/// Returns the path at which the coordinator of a test keeps the program for another platform.
fn download(work: &Path, machine: &str) -> std::path::PathBuf {
    work.join(".local/share/c3po/downloads")
        .join(machine)
        .join("c3po")
}

/// Asserts that a line only printed advice, and that its code still admits another host.
async fn unspent(home: &Path, said: &Output, line: &str, parts: &[&str]) -> Result<()> {
    let error = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.code() == Some(1), "{said:?}");
    for part in parts {
        ensure!(error.contains(part), "{part:?} is not in:\n{error}");
    }
    let left = fs::read_dir(home.join(".local/bin"))
        .map(Iterator::count)
        .unwrap_or_default();
    assert_eq!(left, 0, "nothing is installed");
    // The last of the printed lines, on a host that has the program, with the code supplied.
    let join = error
        .lines()
        .find_map(|line| line.trim().strip_prefix("Then: "))
        .context("the line for later")?;
    let other = TempDir::new()?;
    let joined = c3po(
        other.path(),
        &format!("C3PO_JOIN_CODE={} {join}", join_code(line)?),
    )
    .await?;
    ensure!(joined.status.success(), "{joined:?}");
    Ok(())
}

#[tokio::test]
async fn a_host_gets_the_program_that_was_put_there_for_its_kind() -> Result<()> {
    let (work, home) = (TempDir::new()?, host("Darwin", "arm64")?);
    let coordinator = coordinator(work.path()).await?;
    let line = line(work.path(), &coordinator, "curl ").await?;
    // Provided after the coordinator's start. The program runs on this machine, whatever its platform is called.
    put_program(
        &download(work.path(), "macos-aarch64"),
        &fs::read(program("c3po")?)?,
    )?;
    let installed = paste(home.path(), &line).await?;
    ensure!(installed.status.success(), "{installed:?}");
    ensure!(
        String::from_utf8_lossy(&installed.stderr).contains("fetching c3po for macos-aarch64"),
        "{installed:?}"
    );
    let status = command(home.path().join(".local/bin/c3po"), home.path())
        .arg("status")
        .output()
        .await?;
    ensure!(status.status.success(), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn a_host_of_a_kind_that_no_program_is_there_for_keeps_its_code() -> Result<()> {
    let (work, home) = (TempDir::new()?, host("Linux", "riscv64")?);
    let coordinator = coordinator(work.path()).await?;
    put_program(&download(work.path(), "linux-armv7l"), b"any")?;
    let line = line(work.path(), &coordinator, "curl ").await?;
    let said = paste(home.path(), &line).await?;
    let parts = [
        "no program for linux-riscv64; it has those for linux-armv7l, ",
        "downloads/linux-riscv64/c3po",
        "git clone http",
    ];
    unspent(home.path(), &said, &line, &parts).await
}

#[tokio::test]
async fn a_host_that_cannot_run_the_program_keeps_its_code() -> Result<()> {
    let (work, home) = (TempDir::new()?, host("Linux", "armv7l")?);
    let coordinator = coordinator(work.path()).await?;
    let line = line(work.path(), &coordinator, "curl ").await?;
    let broken =
        "#!/bin/sh\necho 'c3po: /lib/libc.so.6: version GLIBC_2.34 not found' >&2\nexit 1\n";
    put_program(&download(work.path(), "linux-armv7l"), broken.as_bytes())?;
    let said = paste(home.path(), &line).await?;
    let parts = [
        "the c3po for linux-armv7l does not run on this host: c3po: /lib/libc.so.6: version GLIBC_2.34 not found",
    ];
    unspent(home.path(), &said, &line, &parts).await
}
