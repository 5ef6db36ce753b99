//! A release archive, from packing to a program that runs.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use harness::process::{command, program};
use tempfile::TempDir;

use super::{dist, machine, mode, well};

/// Packs the built programs as a release in that folder, without debug symbols, which are most of their size.
async fn release(folder: &Path) -> Result<()> {
    let stripped = folder.join("stripped");
    fs::create_dir(&stripped)?;
    for name in ["c3po", "c3po-coordinator"] {
        let mut strip = command("strip", folder);
        well(
            &strip
                .arg("-o")
                .arg(stripped.join(name))
                .arg(program(name)?)
                .output()
                .await?,
        )?;
    }
    let mut pack = command(dist("pack"), folder);
    well(
        &pack
            .arg(stripped)
            .arg(machine())
            .arg(folder)
            .output()
            .await?,
    )?;
    Ok(())
}

/// Installs from the release in that folder.
async fn install(home: &Path, folder: &Path) -> Result<std::process::Output> {
    let mut script = command("sh", home);
    Ok(script
        .args(["-c", "umask 000; exec \"$0\""])
        .arg(dist("install.sh"))
        .env("C3PO_RELEASE", format!("file://{}", folder.display()))
        .output()
        .await?)
}

#[tokio::test]
async fn an_archive_is_checked_and_installs_c3po_for_its_user() -> Result<()> {
    let (folder, home) = (TempDir::new()?, TempDir::new()?);
    let nothing = install(home.path(), folder.path()).await?;
    let said = String::from_utf8_lossy(&nothing.stderr).into_owned();
    ensure!(nothing.status.code() == Some(1), "{nothing:?}");
    ensure!(
        said.contains(&format!("there is no c3po for {}", machine())),
        "{said}"
    );
    let place = format!(
        "installing from file://{} (C3PO_RELEASE)",
        folder.path().display()
    );
    ensure!(said.starts_with(&place), "before anything runs: {said}");

    release(folder.path()).await?;
    let said = well(&install(home.path(), folder.path()).await?)?;
    let installed = home.path().join(".local/bin/c3po");
    ensure!(
        said.contains(&format!("installed {}", installed.display())),
        "{said}"
    );
    for path in [".local", ".local/bin", ".local/bin/c3po"] {
        let mode = mode(home.path().join(path))?;
        assert_eq!(mode, 0o755, "{path}: others could replace it");
    }
    let version = well(
        &command(&installed, home.path())
            .arg("--version")
            .output()
            .await?,
    )?;
    ensure!(version.starts_with("c3po "), "{version}");

    let other = TempDir::new()?;
    let checksum = folder
        .path()
        .join(format!("c3po-{}.tar.gz.sha256", machine()));
    fs::write(&checksum, format!("{}  c3po", "0".repeat(64)))?;
    let refused = install(other.path(), folder.path()).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(
        refused.status.code() == Some(1) && said.contains("does not match its checksum"),
        "{said}"
    );
    ensure!(
        !other.path().join(".local").exists(),
        "nothing is installed"
    );
    Ok(())
}
