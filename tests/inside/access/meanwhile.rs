//! A login that another command of the host stores meanwhile: `c3po login` and `c3po logout` end it too.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::process::{command, program};
use inside::gate::Gate;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

/// Writes the files of a host with that coordinator.
fn set_up(home: &Path, url: &str) -> Result<()> {
    let folder = home.join(".config/c3po");
    fs::create_dir_all(&folder)?;
    let text = format!("coordinator_url = \"{url}\"\n");
    Ok(fs::write(folder.join("config.toml"), text)?)
}

/// Stores a login as `c3po login` does.
fn store(home: &Path, url: &str, token: &str) -> Result<()> {
    let file = home.join(".config/c3po/person.toml");
    let text = format!("coordinator_url = \"{url}\"\ntoken = \"{token}\"\n");
    fs::write(&file, text)?;
    Ok(fs::set_permissions(&file, Permissions::from_mode(0o600))?)
}

fn c3po(home: &Path, words: &[&str]) -> Result<Command> {
    let mut c3po = command(program("c3po")?, home);
    c3po.args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Ok(c3po)
}

/// Answers the next request as a coordinator that revokes the login, after `meanwhile`. Returns the first line of the request.
async fn revokes(peer: &TcpListener, meanwhile: impl FnOnce() -> Result<()>) -> Result<String> {
    let accepted = timeout(PATIENCE, peer.accept()).await;
    let (stream, _) = accepted.context("no request")??;
    let mut stream = BufReader::new(stream);
    let (mut first, mut line) = (String::new(), String::new());
    stream.read_line(&mut first).await?;
    while stream.read_line(&mut line).await? > 2 {
        line.clear();
    }
    meanwhile()?;
    stream.get_mut().write_all(ANSWER).await?;
    Ok(first)
}

#[tokio::test]
async fn a_login_ends_one_that_was_stored_while_its_code_was_typed() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let url = format!("http://{}", gate.served.address);
    set_up(home.path(), &url)?;
    let words = ["login", &url, "--yes"];
    let mut slow = c3po(home.path(), &words)?.spawn()?;
    let mut shown = BufReader::new(slow.stderr.take().context("errors")?);
    shown.read_line(&mut String::new()).await?;
    // It has looked at the file by the time the other one writes.
    let mut quick = c3po(home.path(), &words)?.spawn()?;
    for login in [&mut quick, &mut slow] {
        let code = gate.login_code("answer").await?;
        let mut typed = login.stdin.take().context("an input")?;
        typed.write_all(code.as_bytes()).await?;
        drop(typed);
        let ended = timeout(PATIENCE, login.wait()).await??;
        ensure!(ended.success(), "{ended:?}");
    }
    let mut more = String::new();
    shown.read_to_string(&mut more).await?;
    ensure!(!more.contains("may still be valid"), "{more}");
    let logins = gate.served.store.logins().await?;
    let mut valid = logins.iter().filter(|login| login.revoked_at.is_none());
    let (one, other) = (valid.next().context("a login")?, valid.next());
    ensure!(logins.len() == 2 && other.is_none(), "{logins:?}");
    let text = fs::read_to_string(home.path().join(".config/c3po/person.toml"))?;
    ensure!(text.contains(&format!("_{}_", one.id)), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_login_whose_file_another_one_takes_is_ended_by_itself() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let elsewhere = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", gate.served.address);
    let older = format!("http://{}", elsewhere.local_addr()?);
    set_up(home.path(), &url)?;
    store(home.path(), &older, "c3po-login_0a1b2c3d_old")?;
    let mut login = c3po(home.path(), &["login", &url, "--yes"])?.spawn()?;
    let code = gate.login_code("answer").await?;
    let mut typed = login.stdin.take().context("an input")?;
    typed.write_all(code.as_bytes()).await?;
    drop(typed);
    // It has written its own by the time it ends the older one.
    let another = || store(home.path(), &url, "c3po-login_0a1b2c3e_new");
    let ended = revokes(&elsewhere, another).await?;
    ensure!(ended.contains("/0a1b2c3d "), "{ended}");
    let out = timeout(PATIENCE, login.wait_with_output()).await??;
    let told = String::from_utf8_lossy(&out.stderr);
    ensure!(
        !out.status.success() && told.contains("This one is revoked"),
        "{out:?}"
    );
    let logins = gate.served.store.logins().await?;
    ensure!(
        logins.len() == 1 && logins[0].revoked_at.is_some(),
        "{logins:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_login_over_a_restored_one_names_a_newer_one() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let url = format!("http://{}", gate.served.address);
    set_up(home.path(), &url)?;
    let log_in = async || -> Result<String> {
        let mut login = c3po(home.path(), &["login", &url, "--yes"])?.spawn()?;
        let code = gate.login_code("answer").await?;
        let mut typed = login.stdin.take().context("an input")?;
        typed.write_all(code.as_bytes()).await?;
        drop(typed);
        let out = timeout(PATIENCE, login.wait_with_output()).await??;
        ensure!(out.status.success(), "{out:?}");
        Ok(String::from_utf8(out.stderr)?)
    };
    let file = home.path().join(".config/c3po/person.toml");
    log_in().await?;
    let backup = fs::read(&file)?;
    let told = log_in().await?;
    ensure!(!told.contains("logins list"), "{told}");
    fs::write(&file, backup)?;
    let told = log_in().await?;
    ensure!(told.contains("c3po-coordinator logins list"), "{told}");
    Ok(())
}

#[tokio::test]
async fn a_logout_ends_a_login_that_was_stored_meanwhile() -> Result<()> {
    let (peer, home) = (TcpListener::bind("127.0.0.1:0").await?, TempDir::new()?);
    let url = format!("http://{}", peer.local_addr()?);
    set_up(home.path(), &url)?;
    store(home.path(), &url, "c3po-login_0a1b2c3d_old")?;
    let logout = c3po(home.path(), &["logout"])?.spawn()?;
    let another = || store(home.path(), &url, "c3po-login_0a1b2c3e_new");
    let (old, new) = (
        revokes(&peer, another).await?,
        revokes(&peer, || Ok(())).await?,
    );
    ensure!(
        old.starts_with("DELETE") && old.contains("/0a1b2c3d "),
        "{old}"
    );
    ensure!(
        new.starts_with("DELETE") && new.contains("/0a1b2c3e "),
        "{new}"
    );
    let out = timeout(PATIENCE, logout.wait_with_output()).await??;
    let file = home.path().join(".config/c3po/person.toml");
    ensure!(out.status.success() && !file.exists(), "{out:?}");
    Ok(())
}
