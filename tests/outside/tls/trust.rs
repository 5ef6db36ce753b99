//! The certificates that a host trusts.

use std::fs;

use anyhow::{Result, ensure};
use harness::breaker::Breaker;
use harness::certificates::Certificates;
use harness::process::{command, program};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use super::{coordinator, pinned, refusal, session};

#[tokio::test]
async fn two_sessions_that_know_the_certificate_talk_over_tls() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = coordinator(&work, "auto").await?;
    let fingerprint = coordinator.fingerprint()?;
    let asks = pinned(&work, "asks", &coordinator, &fingerprint).await?;
    let answers = pinned(&work, "answers", &coordinator, &fingerprint).await?;
    answers.reply("ping", json!({})).await?;
    let sent = asks
        .reply(
            "send_message",
            json!({"target": "answers", "message": "what?"}),
        )
        .await?;
    let question = answers
        .reply("wait_for_message", json!({"timeout": 10}))
        .await?;
    assert_eq!(
        (&question["id"], &question["message"]),
        (&sent["id"], &json!("what?"))
    );
    answers
        .reply(
            "reply",
            json!({"message_id": sent["id"], "response": "that"}),
        )
        .await?;
    let answer = asks
        .reply("wait_for_message", json!({"timeout": 10}))
        .await?;
    assert_eq!(answer["response"], "that", "{answer}");
    // A person's commands use the host's trust too. The doctor removes its temporary agent over HTTP.
    let person = async |arguments: &[&str]| {
        let mut c3po = command(program("c3po")?, work.path());
        c3po.args(arguments)
            .env("C3PO_COORDINATOR_URL", coordinator.url());
        let output = c3po.env("C3PO_FINGERPRINT", &fingerprint).output().await?;
        anyhow::Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let found = person(&["doctor"]).await?;
    ensure!(
        found.contains(&coordinator.url()) && found.contains("by a wait"),
        "{found}"
    );
    let agents = person(&["agents", "--json"]).await?;
    ensure!(
        agents.contains("answers") && !agents.contains("doctor-"),
        "{agents}\n{found}"
    );
    Ok(())
}

#[tokio::test]
async fn an_untrusted_certificate_ends_the_link_and_fails_every_tool() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = coordinator(&work, "auto").await?;
    let (shown, trusted) = (
        coordinator.fingerprint()?,
        format!("sha256:{}", "ab".repeat(32)),
    );
    let way = Breaker::before(coordinator.address()).await?;
    let url = format!("https://{}", way.address());
    let session = session(work.path(), "wary", &url, &[("C3PO_FINGERPRINT", &trusted)]).await?;
    let told = refusal(&session).await?;
    let address = way.address();
    let expected = format!(
        "the coordinator at {address} presents another certificate ({shown}) than the one this host trusts ({trusted})"
    );
    ensure!(
        told["code"] == "UNAUTHORIZED" && told["error"] == expected.as_str(),
        "{told}"
    );
    let next = told["suggestion"].as_str().unwrap_or_default();
    ensure!(
        next.contains("c3po-coordinator invite") && next.contains("man-in-the-middle"),
        "{told}"
    );
    let refused = session
        .call("send_message", json!({"target": "b", "message": "c"}))
        .await?;
    ensure!(refused.is_error && refused.json()?["error"] == expected.as_str());
    ensure!(way.taken() == 1, "it does not try again: {}", way.taken());
    Ok(())
}

#[tokio::test]
async fn without_a_fingerprint_the_systems_authorities_decide() -> Result<()> {
    let work = TempDir::new()?;
    let own = coordinator(&work, "auto").await?;
    let stranger = session(work.path(), "stranger", &own.url(), &[]).await?;
    let told = refusal(&stranger).await?;
    let said = told.to_string();
    ensure!(
        told["code"] == "UNAUTHORIZED" && said.contains("does not trust the certificate"),
        "{told}"
    );
    ensure!(said.contains("C3PO_FINGERPRINT"), "{told}");

    let (made, folder) = (Certificates::make()?, TempDir::new()?);
    let (certificate, key) = made.identity();
    let signed = coordinator(
        &folder,
        &format!("{},{}", certificate.display(), key.display()),
    )
    .await?;
    let authority = made.authority().display().to_string();
    let trusts = [("SSL_CERT_FILE", authority.as_str())];
    let friend = session(folder.path(), "friend", &signed.url(), &trusts).await?;
    friend.reply("ping", json!({})).await?;
    // The certificate is for 127.0.0.1: an authority vouches for names.
    let url = signed.url().replace("127.0.0.1", "localhost");
    let misled = session(folder.path(), "misled", &url, &trusts).await?;
    let told = refusal(&misled).await?;
    ensure!(told["code"] == "UNAUTHORIZED", "{told}");
    Ok(())
}

#[tokio::test]
async fn a_certificate_that_signed_itself_as_an_authority_is_not_taken_for_a_forged_one()
-> Result<()> {
    let work = TempDir::new()?;
    // Like the output of `openssl req -x509`.
    let mut parameters = CertificateParams::new(["127.0.0.1".to_owned()])?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = KeyPair::generate()?;
    let (certificate, key) = (work.path().join("cert.pem"), work.path().join("key.pem"));
    fs::write(&certificate, parameters.self_signed(&own)?.pem())?;
    fs::write(&key, own.serialize_pem())?;
    let coordinator = coordinator(
        &work,
        &format!("{},{}", certificate.display(), key.display()),
    )
    .await?;
    // The system trusts it as an authority, which does not make it a valid server certificate.
    let trusts = [("SSL_CERT_FILE", certificate.to_str().unwrap_or_default())];
    let stranger = session(work.path(), "stranger", &coordinator.url(), &trusts).await?;
    let told = refusal(&stranger).await?.to_string();
    ensure!(
        told.contains("does not trust the certificate") && told.contains("C3PO_FINGERPRINT"),
        "{told}"
    );
    ensure!(!told.contains("man-in-the-middle"), "{told}");
    let known = pinned(&work, "known", &coordinator, &coordinator.fingerprint()?).await?;
    known.reply("ping", json!({})).await?;
    Ok(())
}
