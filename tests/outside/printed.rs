//! All output of the programs from the first start to the last, and every command in it, pasted on the machine it is for.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use tempfile::TempDir;

use crate::pasted::{Terminals, commands};

/// A home that a shell splits into several words unless it is quoted.
const HOME: &str = "home of ann's";

/// Starts a coordinator that requires keys, over TLS, with its own home.
async fn coordinator(machine: &Path) -> Result<Coordinator> {
    std::fs::create_dir(machine)?;
    let store = format!("sqlite:{}", machine.join("c3po.db").display());
    let coordinator = Coordinator::absent(machine, &store)?.over_tls("auto");
    let mut coordinator = coordinator.with("C3PO_CLOSED", Path::new("true"));
    coordinator.restart().await?;
    Ok(coordinator)
}

/// Returns terminals of a new host and of the coordinator's machine.
fn terminals(work: &Path, host: &str, coordinator: &Coordinator) -> Result<Terminals> {
    let home = work.join(format!("home of {host}"));
    std::fs::create_dir(&home)?;
    Ok(Terminals::of(&home)
        .with("C3PO_HOST", host)
        .beside(&work.join(HOME), coordinator))
}

/// Returns the only command in a text that contains `mark`.
fn the(text: &str, mark: &str) -> Result<String> {
    let mut found = commands(text)?
        .into_iter()
        .filter(|line| line.contains(mark));
    let line = found
        .next()
        .with_context(|| format!("no {mark} in:\n{text}"))?;
    ensure!(found.next().is_none(), "several {mark} in:\n{text}");
    Ok(line)
}

async fn back_up_and_restore(
    known: &Terminals,
    machine: &Path,
    coordinator: &mut Coordinator,
) -> Result<()> {
    let file = machine.join("a copy").display().to_string();
    let store = format!("sqlite:{}", machine.join("c3po.db").display());
    let kept = known
        .paste(&format!(
            "c3po-coordinator --store \"{store}\" backup \"{file}\""
        ))
        .await?;
    coordinator.kill().await?;
    let restored = known.paste(&the(&kept, " restore ")?).await?;
    ensure!(restored.contains("was restored from"), "{restored}");
    coordinator.restart().await?;
    for mark in [" logins list", " keys list"] {
        known.paste(&the(&restored, mark)?).await?;
    }
    Ok(())
}

/// A person names the wrong port, and uses the option that the error shows.
async fn name_the_wrong_port(known: &Terminals) -> Result<()> {
    let absent = known
        .paste("c3po-coordinator keys list --listen 127.0.0.1:1")
        .await
        .expect_err("nobody is there");
    let option = the(&absent.to_string(), "--listen")?;
    known
        .paste(&format!("c3po-coordinator keys list {option}"))
        .await?;
    Ok(())
}

#[tokio::test]
async fn every_command_from_the_first_start_to_the_last_works_as_pasted() -> Result<()> {
    let work = TempDir::new()?;
    let machine: PathBuf = work.path().join(HOME);
    let mut coordinator = coordinator(&machine).await?;
    let (bare, known) = (
        terminals(work.path(), "bare", &coordinator)?,
        terminals(work.path(), "known", &coordinator)?,
    );

    // A second start revokes the invite of the first one.
    coordinator.kill().await?;
    coordinator.restart().await?;
    let invites = bare.paste("c3po-coordinator invites list").await?;
    ensure!(
        invites.lines().count() == 2,
        "one below the heads of the columns: {invites}"
    );

    // The first start, a host without c3po, and a host that has it.
    let log = std::fs::read_to_string(machine.join("coordinator.log"))?;
    let first = log
        .rsplit("No host has a key yet")
        .next()
        .context("the first line")?;
    let installed = bare.paste(&the(first, "curl ")?).await?;
    ensure!(bare.paste_all(&installed).await? > 0, "{installed}");
    let more = the(first, " invite ")?;
    let joined = known
        .paste(&the(&known.paste(&more).await?, " c3po join ")?)
        .await?;
    ensure!(known.paste_all(&joined).await? == 2, "{joined}");

    // The host joins again and revokes its older key. An unused invite is revoked too.
    let again = known
        .paste(&the(&known.paste(&more).await?, " c3po join ")?)
        .await?;
    let ended = known.paste(&the(&again, "keys revoke")?).await?;
    ensure!(ended.contains("revoked"), "{ended}");
    let ended = known
        .paste(&the(&known.paste(&more).await?, "invites revoke")?)
        .await?;
    ensure!(ended.contains("is revoked"), "{ended}");
    let none = known.paste("c3po-coordinator invites list").await?;
    ensure!(known.paste_all(&none).await? == 1, "{none}");
    for host in [&bare, &known] {
        host.paste("c3po inbox").await?;
    }
    let stopped = known
        .paste("c3po-coordinator guard stop bare-cli known-cli")
        .await?;
    known.paste(&the(&stopped, "guard allow")?).await?;

    name_the_wrong_port(&known).await?;
    let gone = known.paste("c3po uninstall").await?;
    ensure!(
        the(&gone, "keys revoke").is_ok() && known.paste_all(&gone).await? > 0,
        "{gone}"
    );

    back_up_and_restore(&known, &machine, &mut coordinator).await?;
    let keys = known.paste("c3po-coordinator keys list").await?;
    ensure!(keys.contains("bare") && keys.contains("known"), "{keys}");
    Ok(())
}
