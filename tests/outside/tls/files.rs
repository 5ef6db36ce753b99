//! The certificate: it is kept across restarts, reloaded when its files change, and never replaced by broken ones.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Result, ensure};
use harness::certificates::Certificates;
use harness::eventually::eventually;
use serde_json::json;
use tempfile::TempDir;

use super::{SOON, coordinator, pinned, refusal};

#[tokio::test]
async fn a_restart_keeps_the_coordinators_own_certificate() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = coordinator(&work, "auto").await?;
    let before = coordinator.fingerprint()?;
    let session = pinned(&work, "loyal", &coordinator, &before).await?;
    session.reply("ping", json!({})).await?;
    coordinator.stop().await?;
    fs::remove_file(work.path().join("coordinator.log"))?;
    coordinator.restart().await?;
    assert_eq!(coordinator.fingerprint()?, before);
    eventually("the link is up again", SOON, async || {
        let pong = session.call("ping", json!({})).await.ok()?;
        (!pong.is_error).then_some(())
    })
    .await
}

#[tokio::test]
async fn a_certificate_that_is_replaced_is_shown_to_newcomers_and_older_links_live() -> Result<()> {
    let work = TempDir::new()?;
    let (older, newer) = (
        Certificates::make()?.identity_text()?,
        Certificates::make()?.identity_text()?,
    );
    let (certificate, key) = (work.path().join("cert.pem"), work.path().join("key.pem"));
    let write = |(certificate_text, key_text): &(String, String)| {
        fs::write(&certificate, certificate_text).and_then(|()| fs::write(&key, key_text))
    };
    write(&older)?;
    fs::set_permissions(&key, Permissions::from_mode(0o644))?;
    fs::set_permissions(work.path(), Permissions::from_mode(0o755))?;
    let coordinator = coordinator(
        &work,
        &format!("{},{}", certificate.display(), key.display()),
    )
    .await?;
    let first = coordinator.fingerprint()?;
    let loyal = pinned(&work, "loyal", &coordinator, &first).await?;
    loyal.reply("ping", json!({})).await?;

    write(&("broken".to_owned(), "broken".to_owned()))?;
    let log = work.path().join("coordinator.log");
    let warned = async || {
        fs::read_to_string(&log)
            .ok()?
            .contains("the previous certificate stays in use")
            .then_some(())
    };
    eventually("a warning", SOON, warned).await?;
    let warning = format!("other users could read {} (mode 644): ", key.display());
    ensure!(fs::read_to_string(&log)?.contains(&warning), "{warning}");
    let newcomer = pinned(&work, "newcomer", &coordinator, &first).await?;
    newcomer.reply("ping", json!({})).await?;

    write(&newer)?;
    let second = eventually("the new one is taken up", SOON, async || {
        coordinator
            .fingerprint()
            .ok()
            .filter(|fingerprint| *fingerprint != first)
    })
    .await?;
    let latecomer = pinned(&work, "latecomer", &coordinator, &second).await?;
    latecomer
        .reply(
            "send_message",
            json!({"target": "loyal", "message": "still there?"}),
        )
        .await?;
    let message = loyal
        .reply("wait_for_message", json!({"timeout": 10}))
        .await?;
    ensure!(message["message"] == "still there?", "{message}");
    let outdated = pinned(&work, "outdated", &coordinator, &first).await?;
    let told = refusal(&outdated).await?;
    ensure!(
        told["code"] == "UNAUTHORIZED" && told.to_string().contains(&second),
        "{told}"
    );
    Ok(())
}

#[tokio::test]
async fn a_database_and_a_key_that_others_could_change_are_closed_with_one_warning_each()
-> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = coordinator(&work, "auto").await?;
    let data = work.path().join(".local/share/c3po");
    let (database, key) = (work.path().join("c3po.db"), data.join("tls/key.pem"));
    coordinator.stop().await?;
    for file in [&database, &key] {
        fs::set_permissions(file, Permissions::from_mode(0o666))?;
    }
    for folder in [
        "",
        ".local",
        ".local/share",
        ".local/share/c3po",
        ".local/share/c3po/tls",
    ] {
        fs::set_permissions(work.path().join(folder), Permissions::from_mode(0o755))?;
    }
    // One start with the open files, and one with the closed ones.
    for _ in 0..2 {
        coordinator.restart().await?;
        coordinator.stop().await?;
    }
    let log = fs::read_to_string(work.path().join("coordinator.log"))?;
    for (file, advice) in [
        (&database, "restore a backup"),
        (&key, "make a new certificate"),
    ] {
        let warning = format!("other users could change {} (mode 666): ", file.display());
        ensure!(log.matches(&warning).count() == 1, "{warning}: {log}");
        let advised = log.lines().find(|line| line.contains(&warning));
        ensure!(
            advised.is_some_and(|line| line.contains("it is private now") && line.contains(advice)),
            "{log}"
        );
        assert_eq!(fs::metadata(file)?.permissions().mode() & 0o777, 0o600);
    }
    let folder = format!("the data folder {} (mode 755)", data.display());
    ensure!(log.matches(&folder).count() == 1, "{folder}: {log}");
    Ok(())
}
