//! The coordinator as a service: the location of its files, and whether systemd accepts its unit and rates it as confined.

use std::fs;
use std::path::Path;

use anyhow::{Result, ensure};
use harness::process::{command, program};
use harness::skip::skipped;
use tempfile::TempDir;

use super::{dist, mode, programs, text, well};

/// The path of the unit.
const UNIT: &str = "etc/systemd/system/c3po-coordinator.service";
/// The path of the settings.
const SETTINGS: &str = "etc/c3po/coordinator.env";
/// The highest exposure allowed in `systemd-analyze security`, in tenths: 100 is a service without any confinement.
const EXPOSURE_MAX: &str = "--threshold=15";

/// Installs the files of the service below a folder.
async fn install(root: &Path, url: &str) -> Result<String> {
    let mut script = command(dist("install-server"), root);
    script
        .arg(programs()?)
        .env("DESTDIR", root)
        .env("C3PO_PUBLIC_URL", url);
    well(&script.output().await?)
}

#[tokio::test]
async fn the_files_of_the_service_are_placed_and_settings_that_are_there_stay() -> Result<()> {
    let root = TempDir::new()?;
    let at = |path: &str| root.path().join(path);
    install(root.path(), "https://nas:8420").await?;
    for name in ["c3po", "c3po-coordinator"] {
        assert_eq!(mode(at("usr/local/bin").join(name))?, 0o755);
    }
    assert_eq!(
        (
            mode(at(UNIT))?,
            mode(at(SETTINGS))?,
            mode(at("var/lib/c3po"))?
        ),
        (0o644, 0o600, 0o700)
    );
    let settings = text(&at(SETTINGS))?;
    ensure!(
        settings
            .lines()
            .any(|line| line == "C3PO_PUBLIC_URL=https://nas:8420"),
        "{settings}"
    );
    ensure!(
        !settings.contains("C3PO_LISTEN="),
        "what was not said is left to the unit: {settings}"
    );

    install(root.path(), "https://elsewhere:8420").await?;
    assert_eq!(text(&at(SETTINGS))?, settings);
    Ok(())
}

#[tokio::test]
async fn systemd_takes_the_unit_and_finds_it_confined() -> Result<()> {
    const NAME: &str = "shipping::server::systemd_takes_the_unit_and_finds_it_confined";
    let work = TempDir::new()?;
    if command("systemd-analyze", work.path())
        .arg("--version")
        .output()
        .await
        .is_err()
    {
        return skipped(NAME, "systemd-analyze is not installed");
    }
    // With an existing program, because the unit is rejected otherwise.
    let shipped = text(&dist("c3po-coordinator.service"))?;
    let program = program("c3po-coordinator")?;
    let unit = work.path().join("c3po-coordinator.service");
    fs::write(
        &unit,
        shipped.replace(
            "/usr/local/bin/c3po-coordinator",
            &program.display().to_string(),
        ),
    )?;
    let analyze = async |words: &[&str]| -> Result<String> {
        well(
            &command("systemd-analyze", work.path())
                .args(words)
                .arg(&unit)
                .output()
                .await?,
        )
    };
    let complaints = analyze(&["verify", "--man=no"]).await?;
    assert_eq!(complaints, "", "nothing is ignored or unknown");
    analyze(&["security", "--offline=true", "--no-pager", EXPOSURE_MAX]).await?;
    Ok(())
}

/// A further line would be a further setting, such as one that lets everybody in.
#[tokio::test]
async fn a_setting_of_two_lines_is_refused_and_no_escape_becomes_one() -> Result<()> {
    let root = TempDir::new()?;
    let refused = install(root.path(), "https://nas:8420\nC3PO_OPEN=true").await;
    let why = refused.expect_err("two lines").to_string();
    ensure!(why.contains("C3PO_PUBLIC_URL"), "{why}");
    ensure!(!root.path().join(SETTINGS).exists());

    install(root.path(), r"https://nas:8420\nC3PO_OPEN=true").await?;
    let settings = text(&root.path().join(SETTINGS))?;
    ensure!(
        !settings.lines().any(|line| line == "C3PO_OPEN=true"),
        "{settings}"
    );
    Ok(())
}

#[tokio::test]
async fn an_installation_without_systemd_is_refused_with_an_alternative() -> Result<()> {
    const NAME: &str =
        "shipping::server::an_installation_without_systemd_is_refused_with_an_alternative";
    let work = TempDir::new()?;
    if Path::new("/run/systemd/system").exists() {
        return skipped(
            NAME,
            "this machine runs systemd, and installing would change it",
        );
    }
    let refused = command(dist("install-server"), work.path())
        .arg(programs()?)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    ensure!(
        said.contains("does not run systemd") && said.contains("--listen 0.0.0.0:8420"),
        "{said}"
    );
    Ok(())
}
