//! Shipping c3po: release archives, the coordinator as a service, and the documentation for operators.

mod operations;
mod release;
mod server;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, ensure};
use harness::process::program;
use harness::project::root;

pub(super) use self::operations::check;

/// Returns the name of this platform in archives.
fn machine() -> String {
    format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH)
}

/// Returns the folder of the built programs.
fn programs() -> Result<PathBuf> {
    program("c3po-coordinator")?;
    Ok(program("c3po")?.parent().context("a folder")?.to_owned())
}

/// Returns a shipped script or file.
fn dist(name: &str) -> PathBuf {
    root().join("dist").join(name)
}

/// Returns the contents of an existing text file.
fn text(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// Returns the permission bits of a file or a folder.
fn mode(path: PathBuf) -> Result<u32> {
    let found = std::fs::metadata(&path).with_context(|| path.display().to_string())?;
    Ok(found.permissions().mode() & 0o777)
}

/// Returns both outputs of a program that succeeded.
fn well(output: &Output) -> Result<String> {
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(said)
}
