//! The login in a `person.toml` that is not accepted: `c3po logout` and `c3po login` end it all the same.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use inside::gate::{Gate, id};
use tempfile::TempDir;

use super::person_commands::c3po;

/// Another coordinator, where none listens.
const EVIL: &str = "http://127.0.0.1:1";

/// A host with a login.
struct Host {
    gate: Gate,
    home: TempDir,
    key: String,
    file: PathBuf,
}

impl Host {
    async fn new() -> Result<Self> {
        let (gate, home) = (Gate::start().await?, TempDir::new()?);
        let key = gate.key("agent", "*", &[]).await?;
        let file = home.path().join(".config/c3po/person.toml");
        let host = Self {
            gate,
            home,
            key,
            file,
        };
        host.set_up(&host.url())?;
        Ok(host)
    }

    fn url(&self) -> String {
        format!("http://{}", self.gate.served.address)
    }

    /// Writes the coordinator into the file of the host.
    fn set_up(&self, url: &str) -> Result<()> {
        let folder = self.file.parent().context("a folder")?;
        fs::create_dir_all(folder)?;
        let text = format!("coordinator_url = \"{url}\"\n");
        Ok(fs::write(folder.join("config.toml"), text)?)
    }

    async fn run(&self, words: &[&str], input: &str) -> Result<Output> {
        c3po(&self.gate, self.home.path(), &self.key, words, input).await
    }

    async fn log_in(&self) -> Result<Output> {
        let code = self.gate.login_code("answer").await?;
        self.run(&["login", &self.url(), "--yes"], &code).await
    }

    /// Logs in. Returns the token and the text of the file.
    async fn logged_in(&self) -> Result<(String, String)> {
        let done = self.log_in().await?;
        ensure!(done.status.success(), "{done:?}");
        let text = fs::read_to_string(&self.file)?;
        let token = text.split("token = \"").nth(1).context("a token")?;
        let token = token.split('"').next().unwrap_or_default();
        Ok((token.to_owned(), text))
    }

    fn write(&self, text: &str, mode: u32) -> Result<()> {
        fs::write(&self.file, text)?;
        Ok(fs::set_permissions(
            &self.file,
            Permissions::from_mode(mode),
        )?)
    }

    async fn is_valid(&self, token: &str) -> Result<bool> {
        let of = id(token)?;
        let mut logins = self.gate.served.store.logins().await?.into_iter();
        let login = logins.find(|login| login.id == of).context("a login")?;
        Ok(login.revoked_at.is_none())
    }
}

fn printed(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

#[tokio::test]
async fn a_logout_ends_the_login_in_a_file_that_is_not_accepted() -> Result<()> {
    let host = Host::new().await?;
    let end = "\"\n";
    for (what, mode) in [
        ("a mode", 0o666),
        ("a broken line", 0o600),
        ("an unknown key", 0o600),
        ("no end", 0o600),
    ] {
        let (token, text) = host.logged_in().await?;
        let text = match what {
            "a broken line" => text + "x\n",
            "an unknown key" => text + "note = 1\n",
            "no end" => text.trim_end_matches(end).to_owned(),
            _ => text,
        };
        host.write(&text, mode)?;
        let out = host.run(&["logout"], "").await?;
        let is_over = !host.is_valid(&token).await? && !host.file.exists();
        ensure!(is_over && out.status.success(), "{what}: {out:?}");
        ensure!(printed(&out).contains("is revoked"), "{what}: {out:?}");
    }
    // Every login in it ends.
    let (one, first) = host.logged_in().await?;
    fs::remove_file(&host.file)?;
    let (other, second) = host.logged_in().await?;
    host.write(&(first + &second), 0o600)?;
    let out = host.run(&["logout"], "").await?;
    ensure!(out.status.success(), "{out:?}");
    ensure!(!host.is_valid(&one).await? && !host.is_valid(&other).await?);
    Ok(())
}

#[tokio::test]
async fn a_logout_that_did_not_end_the_login_names_the_next_step() -> Result<()> {
    let host = Host::new().await?;
    let (token, text) = host.logged_in().await?;
    let revoke = format!("c3po-coordinator logins revoke {}", id(&token)?);
    let damaged = text.replace(&token, &token[..token.len() - 1]);
    let none = text.replace(&token, "secret");
    let elsewhere = text.replace(&host.url(), EVIL);
    for (what, text, coordinator, next) in [
        ("a damaged token", &damaged, host.url(), revoke.as_str()),
        (
            "no token",
            &none,
            host.url(),
            "c3po-coordinator logins list",
        ),
        // Another user wrote it, or the host has joined another coordinator since.
        ("another URL", &elsewhere, host.url(), &revoke),
        // A project may have set the one of the environment.
        ("the environment", &text, EVIL.to_owned(), &revoke),
    ] {
        host.set_up(&coordinator)?;
        host.write(text, 0o666)?;
        let out = host.run(&["logout"], "").await?;
        let said = printed(&out);
        let is_told = said.contains(next) && !said.contains("is revoked");
        let is_left = host.is_valid(&token).await? && !host.file.exists();
        ensure!(
            is_told && is_left && !out.status.success(),
            "{what}: {out:?}"
        );
    }
    // Another user wrote many into it: these ids are not for the owner to revoke.
    let others = (0..50).map(|n| format!("# c3po-login_{n:08}_x\n"));
    host.set_up(&host.url())?;
    host.write(&(text + &others.collect::<String>()), 0o666)?;
    let said = printed(&host.run(&["logout"], "").await?);
    ensure!(!host.is_valid(&token).await?, "{said}");
    let is_short = said.contains("logins list") && said.lines().count() < 8;
    ensure!(is_short && !said.contains("00000001"), "{said}");
    host.write("", 0o600)?;
    let out = host.run(&["logout"], "").await?;
    ensure!(out.status.success() && !host.file.exists(), "{out:?}");
    let said = printed(&out);
    ensure!(
        said.contains("it had no login") && said.contains("logins list"),
        "{out:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_login_ends_the_one_before_in_a_file_that_is_not_accepted() -> Result<()> {
    let host = Host::new().await?;
    let (first, text) = host.logged_in().await?;
    host.write(&text, 0o666)?;
    let (second, text) = host.logged_in().await?;
    ensure!(!host.is_valid(&first).await? && host.is_valid(&second).await?);
    let damaged = text.replace(&second, &second[..second.len() - 1]);
    let revoke = format!("c3po-coordinator logins revoke {}", id(&second)?);
    for (text, next) in [
        (damaged, revoke.as_str()),
        (text.replace(&second, "secret"), "logins list"),
    ] {
        host.write(&text, 0o666)?;
        let done = host.log_in().await?;
        ensure!(
            done.status.success() && printed(&done).contains(next),
            "{done:?}"
        );
        ensure!(host.is_valid(&second).await?);
    }
    let mode = fs::metadata(&host.file)?.permissions().mode() & 0o777;
    ensure!(mode == 0o600, "{mode:o}");
    Ok(())
}

#[tokio::test]
async fn a_login_that_fails_leaves_the_file_as_it_is() -> Result<()> {
    let host = Host::new().await?;
    let (token, text) = host.logged_in().await?;
    host.write(&text, 0o666)?;
    let words = ["login", &host.url(), "--yes"];
    let refused = host.run(&words, "wrong").await?;
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    let mode = fs::metadata(&host.file)?.permissions().mode() & 0o777;
    // With another mode it would be accepted, though other users may have written it.
    ensure!(mode == 0o666, "{mode:o}");
    ensure!(fs::read_to_string(&host.file)? == text && host.is_valid(&token).await?);
    let folder = host.file.parent().context("a folder")?;
    ensure!(
        fs::read_dir(folder)?.count() == 2,
        "config.toml and person.toml"
    );
    Ok(())
}

#[tokio::test]
async fn a_link_to_the_file_is_no_login_and_gets_no_request() -> Result<()> {
    let host = Host::new().await?;
    let (token, _) = host.logged_in().await?;
    let elsewhere = host.home.path().join("person.toml");
    fs::rename(&host.file, &elsewhere)?;
    std::os::unix::fs::symlink(&elsewhere, &host.file)?;
    let code = host.gate.login_code("answer").await?;
    for (words, input) in [
        (&["logout"][..], ""),
        (&["login", &host.url(), "--yes"], code.as_str()),
    ] {
        let out = host.run(words, input).await?;
        ensure!(!out.status.success(), "{words:?}: {out:?}");
        ensure!(printed(&out).contains("is a link"), "{out:?}");
    }
    let out = host.run(&["questions"], "").await?;
    ensure!(!out.status.success(), "it has the key alone: {out:?}");
    ensure!(host.is_valid(&token).await?);
    // The code was not spent.
    fs::remove_file(&host.file)?;
    let done = host.run(&["login", &host.url(), "--yes"], &code).await?;
    ensure!(done.status.success(), "{done:?}");
    Ok(())
}
