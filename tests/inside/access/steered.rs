//! The environment of a project leads `c3po` to no other host than the one whose name is in the configuration.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, ensure};
use harness::coordinator::Coordinator;
use harness::process::{command, program};
use tempfile::TempDir;

/// A `getent` that knows one host, and stores its environment.
const GETENT: &str =
    "#!/bin/sh\nenv >\"$HOME/seen\"\n[ \"$*\" = 'ahosts nas' ] && echo '127.0.0.1 STREAM nas'\n";

/// A `getent` that knows no host.
const KNOWS_NONE: &str = "#!/bin/sh\nexit 2\n";

#[cfg(target_os = "linux")]
#[tokio::test]
async fn names_are_looked_up_without_the_variables_that_lead_elsewhere() -> Result<()> {
    let (work, home) = (TempDir::new()?, TempDir::new()?);
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator =
        Coordinator::absent(work.path(), &store)?.with("C3PO_ALLOWED_HOSTS", Path::new("nas"));
    coordinator.restart().await?;
    let getent = home.path().join("getent");
    fs::write(&getent, GETENT)?;
    fs::set_permissions(&getent, Permissions::from_mode(0o755))?;
    let url = format!("http://nas:{}", coordinator.address().port());
    for variable in ["LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES"] {
        let status = command(program("c3po")?, home.path())
            .arg("status")
            .env("PATH", format!("{}:/usr/bin:/bin", home.path().display()))
            .env("C3PO_COORDINATOR_URL", &url)
            .env(variable, "evil.example")
            .output()
            .await?;
        ensure!(status.status.success(), "{variable}: {status:?}");
        let seen = fs::read_to_string(home.path().join("seen"))?;
        ensure!(
            !seen.contains("evil.example") && seen.contains("C3PO_COORDINATOR_URL"),
            "{variable}: {seen}"
        );
        fs::remove_file(home.path().join("seen"))?;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_look_up_that_fails_names_the_variable_that_it_goes_without() -> Result<()> {
    let home = TempDir::new()?;
    let getent = home.path().join("getent");
    fs::write(&getent, KNOWS_NONE)?;
    fs::set_permissions(&getent, Permissions::from_mode(0o755))?;
    let status = command(program("c3po")?, home.path())
        .arg("status")
        .env("PATH", format!("{}:/usr/bin:/bin", home.path().display()))
        .env("C3PO_COORDINATOR_URL", "http://nas:8420")
        .env("RES_OPTIONS", "timeout:1")
        .output()
        .await?;
    let printed = format!("{status:?}");
    ensure!(
        !status.status.success()
            && printed.contains("RES_OPTIONS is set")
            && printed.contains(" is set, so c3po asks `getent`"),
        "{printed}"
    );
    Ok(())
}
