//! The proof that a host has a key: it counts with one code at one coordinator, and gives no more than that key.

use anyhow::{Context, Result, ensure};
use c3po_shared::join::Fingerprint;
use c3po_shared::proof::ProofOf;
use inside::gate::{Gate, id};
use serde_json::{Value, json};

use super::ask;
use super::hosts::{invited, joined};

/// Returns the proof for a coordinator without a certificate.
pub(super) fn proof(key: &str, code: &str) -> String {
    ProofOf::Host.with_key(key, code, None)
}

#[tokio::test]
async fn a_proof_for_another_coordinator_does_not_count() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let elsewhere = Some(Fingerprint::of([7; 32]));
    let code = invited(&gate, &[]).await?;
    let replayed = ProofOf::Host.with_key(&key, &code, elsewhere);
    let (_, host) = joined(&gate, &code, "laptop", Some(&replayed)).await?;
    assert_eq!(host, "laptop-2");
    Ok(())
}

#[tokio::test]
async fn a_coordinator_proves_that_it_knows_the_older_key() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let code = invited(&gate, &[]).await?;
    let body = json!({"code": code, "host": "laptop", "older_key": id(&key)?}).to_string();
    let answer = ask(&gate, "POST", "/api/join", None, None, &body).await?;
    let reply: Value = serde_json::from_str(&answer.body)?;
    let expected = ProofOf::Fleet.with_key(&key, &code, None);
    ensure!(reply["older_key"]["proof"] == expected.as_str(), "{reply}");
    Ok(())
}

#[tokio::test]
async fn a_key_with_a_proof_has_no_more_names_than_the_proven_one() -> Result<()> {
    let gate = Gate::start().await?;
    joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    for (scope, agents, expected, host) in [
        ("agent", "web-*", "web-*", "laptop"),
        ("read", "*", "*", "new"),
    ] {
        let known = gate.key(scope, agents, &["--host", "laptop"]).await?;
        let code = invited(&gate, &[]).await?;
        let body = json!({"code": code, "host": "new", "proof": proof(&known, &code)}).to_string();
        let answer = ask(&gate, "POST", "/api/join", None, None, &body).await?;
        let reply: Value = serde_json::from_str(&answer.body)?;
        let agents = reply["agents"][0].as_str().context(answer.body)?;
        assert_eq!((agents, reply["host"].as_str()), (expected, Some(host)));
    }
    Ok(())
}
