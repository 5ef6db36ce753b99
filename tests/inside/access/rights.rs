//! Every REST path with every kind of credential, on closed and open coordinators: keys and logins have their own rights, and
//! neither gets those of the other.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_coordinator::store::Login;
use c3po_shared::time::Timestamp;
use harness::eventually::eventually;
use harness::http;
use harness::link::{Link, Who};
use inside::gate::{Gate, id};
use serde_json::{Value, json};

use super::{ask, code};

/// How long the end of a credential may take to be noticed.
const SOON: Duration = Duration::from_secs(20);

const TOKEN: &str = "a token of everybody";

/// The letter of each right, in the order of the columns of [`Credential::rights`].
const RIGHTS: &str = "SLROAYM";

/// The right that each operation needs; `-` for any credential.
const OPERATIONS: [(&str, char); 56] = [
    ("GET /api/agents", 'L'),
    ("POST /api/agents/remove", 'R'),
    ("GET /api/audit", 'O'),
    ("GET /api/guard", 'A'),
    ("POST /api/guard/allow", 'A'),
    ("POST /api/guard/stop", 'A'),
    ("POST /api/hosts/rename", 'A'),
    ("GET /api/invites", 'A'),
    ("POST /api/invites", 'A'),
    ("DELETE /api/invites/{id}", 'A'),
    ("GET /api/keys", 'A'),
    ("POST /api/keys", 'A'),
    ("DELETE /api/keys/{id}", 'A'),
    ("POST /api/keys/{id}/rotate", 'A'),
    ("GET /api/pending", 'S'),
    ("GET /api/policy", 'O'),
    ("GET /api/policy/check", 'O'),
    ("GET /api/sent", 'S'),
    ("POST /api/unregister", 'S'),
    ("GET /api/v1/agents", 'L'),
    ("GET /api/v1/agents/{id}", 'L'),
    ("GET /api/v1/audit", 'O'),
    ("POST /api/v1/broadcasts", 'S'),
    ("GET /api/v1/events", 'L'),
    ("GET /api/v1/guard", 'A'),
    ("POST /api/v1/guard/allow", 'A'),
    ("POST /api/v1/guard/stop", 'A'),
    ("POST /api/v1/hosts/rename", 'A'),
    ("GET /api/v1/invites", 'A'),
    ("POST /api/v1/invites", 'A'),
    ("DELETE /api/v1/invites/{id}", 'A'),
    ("GET /api/v1/keys", 'A'),
    ("POST /api/v1/keys", 'A'),
    ("DELETE /api/v1/keys/{id}", 'A'),
    ("POST /api/v1/keys/{id}/rotate", 'A'),
    ("GET /api/v1/logins", 'M'),
    ("POST /api/v1/logins", 'M'),
    ("DELETE /api/v1/logins/{id}", 'M'),
    ("GET /api/v1/me", '-'),
    ("POST /api/v1/me/input", 'Y'),
    ("GET /api/v1/messages", 'S'),
    ("POST /api/v1/messages", 'S'),
    ("POST /api/v1/messages/acknowledge", 'S'),
    ("GET /api/v1/messages/{id}/receipt", 'S'),
    ("POST /api/v1/messages/{id}/reply", 'S'),
    ("GET /api/v1/policy", 'O'),
    ("GET /api/v1/policy/check", 'O'),
    ("GET /api/v1/threads/{id}", 'S'),
    ("GET /api/v1/questions", 'Y'),
    ("GET /api/v1/questions/waiting", 'Y'),
    ("GET /api/v1/questions/{id}", 'Y'),
    ("POST /api/v1/questions/{id}/answer", 'Y'),
    ("POST /api/v1/questions/{id}/receipt", 'Y'),
    ("GET /metrics", 'L'),
    ("GET /acp", 'S'),
    ("POST /mcp", '-'),
];

/// The operations that need no credential.
const OPEN: [&str; 6] = [
    "GET /api/health",
    "POST /api/join",
    "GET /api/openapi.json",
    "POST /api/v1/login",
    "GET /download/{machine}/c3po",
    "GET /join.sh",
];

/// A credential, and its rights; `None` if it is invalid.
struct Credential {
    name: &'static str,
    text: Option<String>,
    /// A letter of [`RIGHTS`] for each right.
    rights: Option<&'static str>,
}

fn valid(name: &'static str, text: String, rights: &'static str) -> Credential {
    Credential {
        name,
        text: Some(text),
        rights: Some(rights),
    }
}

fn invalid(name: &'static str, text: String) -> Credential {
    Credential {
        name,
        text: Some(text),
        rights: None,
    }
}

/// Replaces the secret of a key or login.
fn forged(real: &str) -> Result<String> {
    let (head, _) = real.rsplit_once('_').context("no secret")?;
    Ok(format!("{head}_{}", "A".repeat(43)))
}

/// Gives a login an earlier end.
async fn expire(gate: &Gate, token: &str) -> Result<()> {
    let logins = gate.served.store.logins().await?;
    let of = id(token)?;
    let login = logins.into_iter().find(|login| login.id == of);
    let login = login.context("no login")?;
    let ended = Login {
        expires_at: Timestamp::now(),
        revision: login.revision + 1,
        ..login
    };
    anyhow::ensure!(gate.served.store.put_login(&ended, None, None).await?);
    until_refused(gate, token).await
}

async fn until_refused(gate: &Gate, token: &str) -> Result<()> {
    eventually("it has ended", SOON, async || {
        let me = ask(gate, "GET", "/api/v1/me", Some(token), None, "").await;
        (me.ok()?.status == 401).then_some(())
    })
    .await
}

/// Returns a credential of every kind; `anybody` has the rights of clients without one.
async fn credentials(gate: &Gate, anybody: Option<&'static str>) -> Result<Vec<Credential>> {
    let (revoked, expired) = (gate.login("admin").await?, gate.login("admin").await?);
    gate.revoke_login(&revoked).await?;
    expire(gate, &expired).await?;
    let revoked_key = gate.key("admin", "*", &[]).await?;
    gate.revoke(&revoked_key).await?;
    let expired_key = gate.key("admin", "*", &["--expires", "1s"]).await?;
    until_refused(gate, &expired_key).await?;
    let (key, login) = (
        gate.key("admin", "*", &[]).await?,
        gate.login("admin").await?,
    );
    Ok(vec![
        Credential {
            name: "none",
            text: None,
            rights: anybody,
        },
        invalid("a wrong key", forged(&key)?),
        invalid("a wrong login", forged(&login)?),
        invalid("a login as a key", login.replace("c3po-login_", "c3po_")),
        invalid("a key as a login", key.replace("c3po_", "c3po-login_")),
        invalid("a revoked key", revoked_key),
        invalid("an expired key", expired_key),
        invalid("a revoked login", revoked),
        invalid("an expired login", expired),
        valid("agent key", gate.key("agent", "*", &[]).await?, "SLR"),
        valid("read key", gate.key("read", "*", &[]).await?, "L"),
        valid("operator key", gate.key("operator", "*", &[]).await?, "LO"),
        valid("admin key", key, "SLROA"),
        valid("answer login", gate.login("answer").await?, "SY"),
        valid("person login", gate.login("person").await?, "SLY"),
        valid("operator login", gate.login("operator").await?, "SLOY"),
        valid("admin login", login, RIGHTS),
    ])
}

/// Returns the operations that the coordinator describes.
async fn described(gate: &Gate) -> Result<BTreeSet<String>> {
    let answer = http::get(gate.address()?, "/api/openapi.json").await?;
    let document: Value = serde_json::from_str(&answer.body)?;
    let paths = document["paths"].as_object().context("no paths")?;
    let each = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().into_iter().flatten();
        methods.map(move |(method, _)| format!("{} {path}", method.to_uppercase()))
    });
    Ok(each.collect())
}

/// Returns the status of an operation, and the code of its refusal.
async fn tried(gate: &Gate, operation: &str, with: &Credential) -> Result<(u16, Option<String>)> {
    let (method, path) = operation.split_once(' ').context("a method")?;
    let has_message = ["questions", "messages", "threads"];
    let of = if has_message.iter().any(|part| path.contains(part)) {
        "human::web::0000000a"
    } else {
        "00000000"
    };
    let path = path.replace("{id}", of).replace("{machine}", "none");
    let key = with.text.as_deref();
    if path == "/acp" {
        return Ok(match Link::open_with(&gate.served.address, key).await {
            Ok(_) => (101, None),
            Err(error) => {
                let text = format!("{error:#}");
                let status = [401, 403]
                    .into_iter()
                    .find(|status| text.contains(&status.to_string()));
                (status.with_context(|| text.clone())?, None)
            }
        });
    }
    let agent = if with.name.contains("login") {
        "human"
    } else {
        "web"
    };
    let body = if method == "POST" { "{}" } else { "" };
    let answer = ask(gate, method, &path, key, Some(agent), body).await?;
    Ok((answer.status, code(&answer)))
}

async fn check(gate: &Gate, anybody: Option<&'static str>) -> Result<()> {
    let mut described = described(gate).await?;
    described.extend(["GET /acp".to_owned(), "POST /mcp".to_owned()]);
    let listed = OPERATIONS.iter().map(|(operation, _)| *operation);
    let listed: BTreeSet<String> = listed.chain(OPEN).map(str::to_owned).collect();
    assert_eq!(described, listed, "each operation has its right here");
    let mut all = credentials(gate, anybody).await?;
    if anybody.is_none() {
        all.push(valid("token", TOKEN.to_owned(), "SLROA"));
    }
    for with in all {
        for (operation, right) in OPERATIONS {
            let (status, refusal) = tried(gate, operation, &with).await?;
            let may = |rights: &str| right == '-' || rights.contains(right);
            let name = with.name;
            match with.rights {
                None => assert_eq!(status, 401, "{name}: {operation} {refusal:?}"),
                Some(rights) if may(rights) => assert!(
                    ![401, 403].contains(&status),
                    "{name}: {operation} {status} {refusal:?}"
                ),
                Some(_) => {
                    let expected = if with.text.is_some() { 403 } else { 401 };
                    assert_eq!(status, expected, "{name}: {operation} {refusal:?}");
                }
            }
        }
        for operation in OPEN {
            let (status, refusal) = tried(gate, operation, &with).await?;
            let name = with.name;
            assert!(
                ![401, 403].contains(&status),
                "{name}: {operation} {refusal:?}"
            );
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_credential_has_its_rights_on_every_path_of_a_closed_coordinator() -> Result<()> {
    let token = |config: &mut c3po_coordinator::config::Config| config.token = TOKEN.parse().ok();
    check(&Gate::start_with(token).await?, None).await
}

#[tokio::test]
async fn every_credential_has_its_rights_on_every_path_of_an_open_coordinator() -> Result<()> {
    let gate = Gate::start_with(|config| config.is_open = true).await?;
    check(&gate, Some("SLROY")).await
}

#[tokio::test]
async fn answers_may_need_a_login_on_an_open_coordinator_too() -> Result<()> {
    let strict = |config: &mut c3po_coordinator::config::Config| {
        config.is_open = true;
        config.answers_need_login = true;
    };
    check(&Gate::start_with(strict).await?, Some("SLRO")).await
}

#[tokio::test]
async fn a_question_can_be_answered_by_people_alone() -> Result<()> {
    let gate = Gate::start().await?;
    let path = "/api/v1/questions/human::web::0000000a/answer";
    let answered = async |key: &str| {
        let answer = ask(&gate, "POST", path, Some(key), None, "{}").await?;
        Ok::<_, anyhow::Error>((answer.status, code(&answer)))
    };
    let login = answered(&gate.login("answer").await?).await?;
    assert_eq!(login, (404, Some("MESSAGE_NOT_FOUND".to_owned())));
    let key = answered(&gate.key("admin", "*", &[]).await?).await?;
    assert_eq!(key, (403, Some("FORBIDDEN".to_owned())));
    Ok(())
}

#[tokio::test]
async fn a_login_is_accepted_only_as_a_bearer_token() -> Result<()> {
    let gate = Gate::start_with(|config| config.is_open = true).await?;
    let token = gate.login("admin").await?;
    let address = gate.address()?;
    let asked = async |header: &str| {
        let text = format!(
            "GET /api/v1/me HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\r\n\r\n"
        );
        Ok::<_, anyhow::Error>(http::request(address, &text).await?.status)
    };
    assert_eq!(asked(&format!("Authorization: Bearer {token}")).await?, 200);
    assert_eq!(asked(&format!("X-API-Key: {token}")).await?, 401);
    Ok(())
}

#[tokio::test]
async fn a_login_that_may_not_list_agents_may_not_by_a_tool() -> Result<()> {
    let gate = Gate::start().await?;
    for (scope, expected) in [("answer", Some("FORBIDDEN")), ("person", None)] {
        let token = gate.login(scope).await?;
        let mut link = Link::open_with(&gate.served.address, Some(&token)).await?;
        let welcome = link.hello(&Who::person("human")).await?;
        assert!(welcome.is_ok(), "{welcome:?}");
        let outcome = link.try_call("list_agents", json!({})).await?;
        let refused = outcome.err().map(|refusal| refusal["code"].clone());
        assert_eq!(refused, expected.map(Value::from), "{scope}");
    }
    Ok(())
}
