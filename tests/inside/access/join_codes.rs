//! Join codes: each admits the hosts that its invite allows, guessing is throttled, and a code ends with its inviter's key.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use c3po_shared::join::JoinCode;
use c3po_shared::proof::ProofOf;
use harness::eventually::eventually;
use harness::http;
use harness::process::join_code;
use inside::gate::{Gate, id};
use serde_json::{Value, json};

use super::keys::{SOON, changes, linked};
use super::{ask, code};

/// Makes an invite. Returns its code.
async fn invited(gate: &Gate, more: &[&str]) -> Result<JoinCode> {
    let said = gate.ask(&[&["invite"], more].concat()).await?;
    let line = said
        .lines()
        .find(|line| line.contains("c3po join "))
        .with_context(|| said.clone())?;
    Ok(join_code(line)?.parse()?)
}

async fn join(gate: &Gate, code: &JoinCode, host: &str) -> Result<http::Answer> {
    let body = json!({"code": code.secret(), "host": host}).to_string();
    ask(gate, "POST", "/api/join", None, None, &body).await
}

#[tokio::test]
async fn a_join_code_makes_one_key_for_the_agents_it_names() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = invited(&gate, &["--agents", "web-*"]).await?;
    let joined = join(&gate, &code_of, "laptop").await?;
    assert_eq!(joined.status, 200, "{}", joined.body);
    let reply: Value = serde_json::from_str(&joined.body)?;
    let key = reply["key"].as_str().context("a key")?;
    assert_eq!(reply["agents"], json!(["web-*"]));
    linked(&gate, key, "web-1").await?;
    assert!(linked(&gate, key, "api").await.is_err());

    let stolen = join(&gate, &code_of, "thief").await?;
    assert_eq!(
        (stolen.status, code(&stolen).as_deref()),
        (401, Some("UNAUTHORIZED"))
    );
    let listed = gate.ask(&["keys", "list"]).await?;
    assert!(
        listed.contains("laptop") && !listed.contains("thief"),
        "{listed}"
    );
    Ok(())
}

#[tokio::test]
async fn a_join_code_under_concurrent_use_admits_exactly_its_number_of_uses() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = invited(&gate, &["--uses", "3"]).await?;
    let answers =
        futures_util::future::join_all((0..25).map(|_| join(&gate, &code_of, "racer"))).await;
    let statuses: Vec<u16> = answers
        .into_iter()
        .map(|answer| answer.map(|answer| answer.status))
        .collect::<Result<_>>()?;
    assert_eq!(
        statuses.iter().filter(|status| **status == 200).count(),
        3,
        "{statuses:?}"
    );
    assert!(
        statuses.iter().all(|status| [200, 401].contains(status)),
        "{statuses:?}"
    );
    Ok(())
}

#[tokio::test]
async fn guessing_join_codes_is_throttled_and_blocks_no_other_host() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = invited(&gate, &[]).await?;
    let mut statuses = Vec::new();
    for number in 0..40_u8 {
        statuses.push(
            join(&gate, &JoinCode::new([number; 16], None), "guesser")
                .await?
                .status,
        );
    }
    assert_eq!(
        statuses.iter().filter(|status| **status == 401).count(),
        30,
        "{statuses:?}"
    );
    assert_eq!(
        statuses.iter().filter(|status| **status == 429).count(),
        10,
        "{statuses:?}"
    );
    let told = join(&gate, &JoinCode::new([0; 16], None), "guesser").await?;
    assert!(
        told.body.contains("join code") && !told.body.contains("sent"),
        "{}",
        told.body
    );
    assert_eq!(join(&gate, &code_of, "laptop").await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn an_expired_invite_is_refused() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = invited(&gate, &["--expires", "1s"]).await?;
    let end = Instant::now() + Duration::from_secs(1);
    eventually("its time is over", SOON, async || {
        (Instant::now() > end).then_some(())
    })
    .await?;
    assert_eq!(join(&gate, &code_of, "late").await?.status, 401);
    Ok(())
}

#[tokio::test]
async fn a_refused_join_leaves_the_code_as_good_as_it_was() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = invited(&gate, &[]).await?;
    for host in ["", " ", "a\u{7}b", &"a".repeat(501)] {
        let refused = join(&gate, &code_of, host).await?;
        assert!(
            [400, 413].contains(&refused.status),
            "{host}: {}",
            refused.body
        );
    }
    assert_eq!(join(&gate, &code_of, "laptop").await?.status, 200);
    Ok(())
}

/// Makes an invite over HTTP with a key. Returns its id and its code.
async fn invited_with(gate: &Gate, key: &str, body: &Value) -> Result<(String, JoinCode)> {
    let answer = ask(
        gate,
        "POST",
        "/api/invites",
        Some(key),
        None,
        &body.to_string(),
    )
    .await?;
    let invite: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    let code_of = join_code(invite["line"].as_str().context("a line")?)?;
    Ok((
        invite["id"].as_str().context("its id")?.to_owned(),
        code_of.parse()?,
    ))
}

#[tokio::test]
async fn an_invite_ends_with_the_key_that_made_it_and_the_audit_names_both() -> Result<()> {
    let gate = Gate::start().await?;
    let (admin, other) = (
        gate.key("admin", "*", &[]).await?,
        gate.key("operator", "*", &[]).await?,
    );
    let (invite, code_of) =
        invited_with(&gate, &admin, &json!({"uses": 5, "scope": "admin"})).await?;
    let joined = join(&gate, &code_of, "laptop").await?;
    let joined: Value = serde_json::from_str(&joined.body)?;
    let listed = gate.ask(&["keys", "list", "--json"]).await?;
    assert!(listed.contains(&format!("invite {invite}")), "{listed}");
    gate.revoke(&admin).await?;
    let late = join(&gate, &code_of, "accomplice").await?;
    assert_eq!(
        (late.status, code(&late).as_deref()),
        (401, Some("UNAUTHORIZED"))
    );
    // The first start made an invite, and then two keys were made.
    let said = changes(&gate, &other, 6).await?;
    let by = id(&admin)?;
    assert_eq!(said[3], format!("invited {invite} by {by}"));
    assert_eq!(
        said[4],
        format!(
            "joined {} by invite {invite}",
            joined["key_id"].as_str().unwrap_or_default()
        )
    );
    assert_eq!(said[5], format!("revoked {by} by local"));
    Ok(())
}

#[tokio::test]
async fn an_invite_ends_when_the_key_that_made_it_gets_another_text() -> Result<()> {
    let gate = Gate::start().await?;
    let admin = gate.key("admin", "*", &[]).await?;
    let (_, code_of) = invited_with(&gate, &admin, &json!({"uses": 5, "scope": "admin"})).await?;
    gate.ask(&["keys", "rotate", id(&admin)?]).await?;
    let late = join(&gate, &code_of, "thief").await?;
    assert_eq!(
        (late.status, code(&late).as_deref()),
        (401, Some("UNAUTHORIZED"))
    );
    Ok(())
}

#[tokio::test]
async fn a_host_that_joins_chooses_no_name_that_looks_like_something_else() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = invited(&gate, &[]).await?;
    for name in [
        "vi\u{441}",
        "vic] Deploy now? [x",
        "vic@nas",
        "vic  x",
        "vic ",
    ] {
        let refused = join(&gate, &code_of, name).await?;
        let body: Value = serde_json::from_str(&refused.body)?;
        assert_eq!(
            (refused.status, &body["code"]),
            (400, &json!("INVALID_REQUEST")),
            "{name}: {body}"
        );
        let advice = body["suggestion"].as_str().unwrap_or_default();
        assert!(
            advice.contains("--host NAME") && advice.contains("C3PO_HOST"),
            "{advice}"
        );
    }
    let joined = join(&gate, &code_of, "Ann\u{2019}s box_2.lan").await?;
    assert_eq!(
        joined.status, 200,
        "the code was not spent: {}",
        joined.body
    );

    // A name that an administrator chose stays, whatever the host calls itself.
    let of_host = invited(&gate, &["--host", "büro"]).await?;
    let joined = join(&gate, &of_host, "büro").await?;
    let reply: Value = serde_json::from_str(&joined.body)?;
    assert_eq!(reply["host"], "büro", "{reply}");
    let (key, again) = (reply["key"].as_str().context("a key")?, invited(&gate, &[]));
    let again = again.await?;
    let proof = ProofOf::Host.with_key(key, &again.secret(), None);
    let body = json!({"code": again.secret(), "host": "büro", "proof": proof}).to_string();
    let joined = ask(&gate, "POST", "/api/join", None, None, &body).await?;
    let reply: Value = serde_json::from_str(&joined.body)?;
    assert_eq!(reply["host"], "büro", "{reply}");
    Ok(())
}
