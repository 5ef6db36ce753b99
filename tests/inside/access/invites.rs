//! Open invites: who may list them, that no answer contains a code, and that a revoked one admits no host.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_coordinator::store::{Invite, Key};
use c3po_shared::limits::{INVITES_MAX, KEYS_MAX};
use harness::eventually::eventually;
use harness::process::join_code;
use inside::gate::{Gate, id};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::hosts::{invited, joined};
use super::{ask, code};

/// A shutdown that waited for a client would take 5 s, the time after which it cuts them off.
const STOP: Duration = Duration::from_secs(4);

/// Makes an invite over HTTP. Returns the answer and the join code.
async fn invite(gate: &Gate, key: &str, body: &Value) -> Result<(Value, String)> {
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
    let code = join_code(invite["line"].as_str().context("a line")?)?.to_owned();
    Ok((invite, code))
}

async fn join(gate: &Gate, code: &str) -> Result<u16> {
    let body = json!({"code": code, "host": "laptop"}).to_string();
    Ok(ask(gate, "POST", "/api/join", None, None, &body)
        .await?
        .status)
}

/// Returns the open invites, without the one that the coordinator made at its start.
async fn listed(gate: &Gate, key: &str) -> Result<Vec<Value>> {
    let answer = ask(gate, "GET", "/api/invites", Some(key), None, "").await?;
    let list: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    let all = list["invites"].as_array().context("a list")?.iter();
    Ok(all
        .filter(|invite| invite["made_by"] != "start")
        .cloned()
        .collect())
}

#[tokio::test]
async fn an_open_invite_is_listed_without_its_code_and_can_be_revoked() -> Result<()> {
    let gate = Gate::start().await?;
    let admin = gate.key("admin", "*", &[]).await?;
    let wish = json!({"uses": 3, "scope": "read", "agents": ["web-*"]});
    let (made, code_of) = invite(&gate, &admin, &wish).await?;
    assert_eq!(join(&gate, &code_of).await?, 200);
    let shown = json!({"id": made["id"], "scope": "read", "agents": ["web-*"], "host": null, "uses": 2,
        "expires_at": made["expires_at"], "made_by": id(&admin)?});
    assert_eq!(listed(&gate, &admin).await?, std::slice::from_ref(&shown));

    let path = format!("/api/invites/{}", made["id"].as_str().context("its id")?);
    let revoked = ask(&gate, "DELETE", &path, Some(&admin), None, "").await?;
    assert_eq!(
        (
            revoked.status,
            serde_json::from_str::<Value>(&revoked.body)?
        ),
        (200, shown)
    );
    assert_eq!(listed(&gate, &admin).await?, [Value::Null; 0]);
    assert_eq!(join(&gate, &code_of).await?, 401);
    let again = ask(&gate, "DELETE", &path, Some(&admin), None, "").await?;
    assert_eq!(
        (again.status, code(&again).as_deref()),
        (404, Some("INVITE_NOT_FOUND"))
    );
    Ok(())
}

#[tokio::test]
async fn closed_invites_are_not_listed() -> Result<()> {
    let gate = Gate::start().await?;
    let (admin, other) = (
        gate.key("admin", "*", &[]).await?,
        gate.key("admin", "*", &[]).await?,
    );
    let (_, used) = invite(&gate, &admin, &json!({})).await?;
    assert_eq!(join(&gate, &used).await?, 200);
    let (ended, _) = invite(&gate, &other, &json!({"uses": 5})).await?;
    assert_eq!(listed(&gate, &admin).await?.len(), 1);
    gate.revoke(&other).await?;
    assert_eq!(listed(&gate, &admin).await?, [Value::Null; 0]);
    let path = format!("/api/invites/{}", ended["id"].as_str().context("its id")?);
    assert_eq!(
        ask(&gate, "DELETE", &path, Some(&admin), None, "")
            .await?
            .status,
        404
    );
    Ok(())
}

/// Waits until the audit has exactly these verbs and reasons about an invite.
async fn audited(gate: &Gate, reader: &str, invite: &str, told: [(&str, &str); 2]) -> Result<()> {
    eventually("the audit says so", super::keys::SOON, async || {
        let page = ask(gate, "GET", "/api/audit?limit=1000", Some(reader), None, "")
            .await
            .ok()?;
        let audit: Value = serde_json::from_str(&page.body).ok()?;
        let entries = audit["entries"]
            .as_array()?
            .iter()
            .filter(|entry| entry["key"] == invite);
        entries
            .map(|entry| (entry["verb"].as_str(), entry["why"].as_str()))
            .eq(told.map(|(verb, why)| (Some(verb), Some(why))))
            .then_some(())
    })
    .await
}

#[tokio::test]
async fn the_command_line_names_and_revokes_its_invite_and_both_are_audited() -> Result<()> {
    let gate = Gate::start().await?;
    let said = gate.ask(&["invite", "--agents", "web-*"]).await?;
    let (_, end) = said
        .split_once(" invites revoke ")
        .with_context(|| said.clone())?;
    let (end, place) = end.trim().split_once(' ').with_context(|| said.clone())?;
    assert!(
        said.contains(&format!("This is the invite {end};")),
        "{said}"
    );
    // Pasted unchanged, the command reaches this coordinator, not the one at the default address.
    assert_eq!(
        place,
        format!(
            "--data-dir {} --listen {}",
            gate.served.folder().display(),
            gate.address()?
        )
    );
    let list = gate.ask(&["invites", "list"]).await?;
    let line = list
        .lines()
        .find(|line| line.starts_with(end))
        .with_context(|| list.clone())?;
    assert!(line.contains("local") && line.ends_with("web-*"), "{list}");

    assert_eq!(
        gate.ask(&["invites", "revoke", end]).await?,
        format!("The invite {end} is revoked: no host can join with it any more.")
    );
    assert!(
        !gate
            .ask(&["invites", "list", "--json"])
            .await?
            .contains(end)
    );
    let refused = gate
        .ask(&["invites", "revoke", end])
        .await
        .expect_err("it is over");
    assert!(
        refused
            .to_string()
            .starts_with(&format!("there is no open invite {end}. ")),
        "{refused}"
    );
    let reader = gate.key("operator", "*", &[]).await?;
    let told = [("invited", "by local"), ("revoked", "by local")];
    audited(&gate, &reader, end, told).await
}

#[tokio::test]
async fn a_rotated_key_changes_nothing_through_a_stale_coordinator() -> Result<()> {
    let gate = Gate::start().await?;
    let store = &gate.served.store;
    let victim = gate.key("agent", "*", &[]).await?;
    for (method, path, body) in [
        (
            "POST",
            "/api/keys".to_owned(),
            json!({"name": "thief", "scope": "admin"}),
        ),
        ("POST", "/api/invites".to_owned(), json!({"scope": "admin"})),
        ("POST", "/api/keys/ITSELF/rotate".to_owned(), json!({})),
        ("DELETE", format!("/api/keys/{}", id(&victim)?), json!({})),
    ] {
        let admin = gate.key("admin", "*", &[]).await?;
        assert_eq!(listed(&gate, &admin).await?, [Value::Null; 0]);
        // As another coordinator of this store does it; this one notices within a second.
        let own = store
            .keys()
            .await?
            .into_iter()
            .find(|key| Some(key.id.as_str()) == id(&admin).ok());
        let own = own.context("its own key")?;
        let rotated = Key {
            revision: own.revision + 1,
            hash: "f".repeat(64),
            ..own
        };
        assert!(store.put_key(&rotated, None, KEYS_MAX, None).await?);
        let before = store.keys().await?;
        let path = path.replace("ITSELF", &rotated.id);
        let answer = ask(&gate, method, &path, Some(&admin), None, &body.to_string()).await?;
        assert_eq!(
            (answer.status, code(&answer).as_deref()),
            (401, Some("UNAUTHORIZED")),
            "{method} {path}"
        );
        assert!(
            store.keys().await?.iter().all(|key| before.contains(key)),
            "{method} {path}"
        );
        assert!(
            store
                .invites()
                .await?
                .iter()
                .all(|invite| invite.made_by.as_deref() == Some("start"))
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_body_that_is_half_sent_holds_up_no_stop() -> Result<()> {
    for path in ["/api/join", "/mcp"] {
        let gate = Gate::start().await?;
        let key = gate.key("agent", "*", &[]).await?;
        let mut half = TcpStream::connect(gate.address()?).await?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\nX-Agent-ID: half\r\n\
             Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
             Content-Length: 100\r\n\r\n{{"
        );
        half.write_all(head.as_bytes()).await?;
        // The request has begun when a later one is answered.
        assert_eq!(
            ask(&gate, "GET", "/metrics", Some(&key), None, "")
                .await?
                .status,
            200
        );
        let began = Instant::now();
        gate.served.stop().await?;
        ensure!(
            began.elapsed() < STOP,
            "{path}: it took {:?}",
            began.elapsed()
        );
        let mut answer = String::new();
        half.read_to_string(&mut answer).await?;
        ensure!(
            answer.starts_with("HTTP/1.1 503") && answer.contains("COORD_DOWN"),
            "{path}: {answer}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn so_many_invites_may_be_open_and_no_more() -> Result<()> {
    let gate = Gate::start().await?;
    let admin = gate.key("admin", "*", &[]).await?;
    let store = &gate.served.store;
    gate.ask(&["invite"]).await?;
    let open = store.invites().await?;
    let ours = open.first().context("an open one")?;
    for number in open.len()..INVITES_MAX {
        let number = format!("{number:08x}");
        store
            .put_invite(
                &Invite {
                    id: number.clone(),
                    hash: number.repeat(8),
                    ..ours.clone()
                },
                None,
            )
            .await?;
    }
    let more = ask(&gate, "POST", "/api/invites", Some(&admin), None, "{}").await?;
    assert_eq!(
        (more.status, code(&more).as_deref()),
        (409, Some("CONFLICT"))
    );
    gate.ask(&["invites", "revoke", &ours.id]).await?;
    assert_eq!(
        ask(&gate, "POST", "/api/invites", Some(&admin), None, "{}")
            .await?
            .status,
        200
    );
    Ok(())
}

#[tokio::test]
async fn no_other_host_gets_the_name_of_an_open_invite() -> Result<()> {
    let gate = Gate::start().await?;
    let given = invited(&gate, &["--host", "nas"]).await?;
    for wish in ["nas", "NAS"] {
        let (_, host) = joined(&gate, &invited(&gate, &[]).await?, wish, None).await?;
        ensure!(host.starts_with(&format!("{wish}-")), "{host}");
    }
    let (key, host) = joined(&gate, &given, "box", None).await?;
    assert_eq!(host, "nas");
    let said = gate.ask(&["invite", "--host", "nas"]).await?;
    let note = format!("that host has a key already ({})", id(&key)?);
    ensure!(said.contains(&note), "{said}");
    let said = gate.ask(&["invite", "--host", "new"]).await?;
    ensure!(!said.contains("has a key already"), "{said}");
    Ok(())
}
