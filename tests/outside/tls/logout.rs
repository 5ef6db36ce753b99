//! `c3po logout` over TLS: it reports that a login is revoked only if its coordinator has answered so.

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::process::{command, join_code, program};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

use super::coordinator;

/// A host with a login at a coordinator with TLS.
struct Host {
    work: TempDir,
    coordinator: Coordinator,
    folder: PathBuf,
}

impl Host {
    async fn new() -> Result<Self> {
        let work = TempDir::new()?;
        let coordinator = coordinator(&work, "auto").await?;
        let folder = work.path().join("home/.config/c3po");
        fs::create_dir_all(&folder)?;
        Ok(Self {
            work,
            coordinator,
            folder,
        })
    }

    /// Makes `config.toml` name a coordinator and its certificate.
    fn set_up(&self, url: &str, fingerprint: Option<&str>) -> Result<()> {
        let pinned = fingerprint.map(|of| format!("fingerprint = \"{of}\"\n"));
        let text = format!("coordinator_url = \"{url}\"\n") + &pinned.unwrap_or_default();
        Ok(fs::write(self.folder.join("config.toml"), text)?)
    }

    async fn run(&self, words: &[&str], input: &str) -> Result<Output> {
        let mut c3po = command(program("c3po")?, &self.work.path().join("home"));
        c3po.args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut c3po = c3po.spawn()?;
        let mut asked = c3po.stdin.take().context("a standard input")?;
        // A program that does not read its input may have closed it.
        let _ = asked.write_all(input.as_bytes()).await;
        drop(asked);
        Ok(c3po.wait_with_output().await?)
    }

    /// Runs a command of the coordinator. Returns its JSON.
    async fn administer(&self, words: &[&str]) -> Result<Value> {
        let mut program = command(program("c3po-coordinator")?, self.work.path());
        let listen = self.coordinator.address().to_string();
        program.args(words).args(["--json", "--listen", &listen]);
        let made = program.output().await?;
        serde_json::from_slice(&made.stdout)
            .with_context(|| String::from_utf8_lossy(&made.stderr).into_owned())
    }

    async fn log_in(&self) -> Result<()> {
        let made = self
            .administer(&["login", "Ann", "--scope", "answer"])
            .await?;
        let code = made["code"].as_str().context("a code")?;
        let words = ["login", &self.coordinator.url(), "--yes"];
        let done = self.run(&words, code).await?;
        ensure!(done.status.success(), "{done:?}");
        Ok(())
    }

    /// Returns how many logins are valid.
    async fn valid(&self) -> Result<usize> {
        let listed = self.administer(&["logins", "list"]).await?;
        let logins = listed["logins"].as_array().context("logins")?.iter();
        Ok(logins.filter(|login| login["state"] == "valid").count())
    }
}

#[tokio::test]
async fn a_logout_reports_a_revocation_only_after_its_coordinator_has_answered() -> Result<()> {
    let host = Host::new().await?;
    let (url, own) = (host.coordinator.url(), host.coordinator.fingerprint()?);
    let other = format!("fingerprint = \"sha256:{}\"", "ab".repeat(32));
    host.set_up(&url, Some(&own))?;
    for fingerprint in [other.as_str(), ""] {
        host.log_in().await?;
        let valid = host.valid().await?;
        let file = host.folder.join("person.toml");
        let text = fs::read_to_string(&file)?;
        let pinned = format!("fingerprint = \"{own}\"");
        ensure!(text.contains(&pinned), "{text}");
        fs::write(&file, text.replace(&pinned, fingerprint))?;
        let out = host.run(&["logout"], "").await?;
        let printed = String::from_utf8_lossy(&out.stdout);
        ensure!(host.valid().await? == valid, "{printed}");
        ensure!(
            !out.status.success() && printed.contains("c3po-coordinator logins revoke"),
            "{out:?}"
        );
        ensure!(!printed.contains("Logged out"), "{printed}");
    }
    Ok(())
}

/// Joins the host again at its URL, with an invite of the coordinator that is there, whose data are in that folder.
async fn join_again(host: &Host, data: &TempDir) -> Result<String> {
    let mut program = command(program("c3po-coordinator")?, data.path());
    let listen = host.coordinator.address().to_string();
    let invite = program
        .args(["invite", "--listen", &listen])
        .output()
        .await?;
    let invite = String::from_utf8(invite.stdout)?;
    let url = host.coordinator.url();
    let out = host.run(&["join", &url, "-"], join_code(&invite)?).await?;
    ensure!(out.status.success(), "{out:?}");
    Ok(String::from_utf8(out.stdout)?)
}

#[tokio::test]
async fn a_login_goes_to_another_certificate_only_if_its_fleet_is_proved() -> Result<()> {
    let mut host = Host::new().await?;
    join_again(&host, &host.work).await?;
    host.log_in().await?;

    // Its own coordinator with another certificate knows the key of the host.
    host.coordinator.stop().await?;
    fs::remove_dir_all(host.work.path().join(".local/share/c3po/tls"))?;
    host.coordinator.restart().await?;
    let printed = join_again(&host, &host.work).await?;
    ensure!(!printed.contains("another fleet"), "{printed}");
    let out = host.run(&["questions"], "").await?;
    ensure!(out.status.success() && out.stderr.is_empty(), "{out:?}");

    // Another fleet is at that URL now.
    host.coordinator.stop().await?;
    let elsewhere = TempDir::new()?;
    let store = format!("sqlite:{}", elsewhere.path().join("c3po.db").display());
    let stranger = Coordinator::absent(elsewhere.path(), &store)?.over_tls("auto");
    let mut stranger = stranger.at(host.coordinator.address());
    stranger.restart().await?;
    let printed = join_again(&host, &elsewhere).await?;
    for left in ["keys revoke", "logins revoke"] {
        let command = format!("`c3po-coordinator {left} ");
        ensure!(printed.contains(&command), "{printed}");
    }
    let out = host.run(&["questions"], "").await?;
    let warned = String::from_utf8_lossy(&out.stderr);
    ensure!(warned.contains("is for other certificates"), "{out:?}");
    let out = host.run(&["logout"], "").await?;
    let printed = String::from_utf8_lossy(&out.stdout);
    ensure!(
        !out.status.success() && !printed.contains("Logged out"),
        "{out:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_login_is_revoked_where_it_was_made() -> Result<()> {
    let (host, folder) = (Host::new().await?, TempDir::new()?);
    let stranger = coordinator(&folder, "auto").await?;
    let (url, fingerprint) = (host.coordinator.url(), host.coordinator.fingerprint()?);
    let (other, known) = (stranger.url(), stranger.fingerprint()?);
    // The host has joined another coordinator since.
    host.set_up(&url, Some(&fingerprint))?;
    host.log_in().await?;
    host.set_up(&other, Some(&known))?;
    let out = host.run(&["logout"], "").await?;
    ensure!(out.status.success(), "{out:?}");
    ensure!(host.valid().await? == 0, "{out:?}");
    // The first one in the file knows no such login.
    let both = (format!("{other},{url}"), format!("{known},{fingerprint}"));
    host.set_up(&both.0, Some(&both.1))?;
    host.log_in().await?;
    let out = host.run(&["logout"], "").await?;
    ensure!(out.status.success(), "{out:?}");
    ensure!(host.valid().await? == 0, "{out:?}");
    Ok(())
}
