//! Keys: the end of one ends its sessions and requests, and the audit names the key of each action.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use c3po_shared::ids::CallId;
use c3po_shared::time::Timestamp;
use c3po_shared::wire::CLOSE_REVOKED;
use harness::eventually::eventually;
use harness::http;
use harness::link::{Link, Who};
use harness::redis::Redis;
use inside::gate::{Gate, id};
use inside::served::Served;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{ask, call, code};

/// How long an operation may take that should be quick, on a machine that builds at the same time.
pub(super) const SOON: Duration = Duration::from_secs(10);
/// The time within which the end of a key must end everything under it.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Opens a session with that key.
pub(crate) async fn linked(gate: &Gate, key: &str, name: &str) -> Result<Link> {
    let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
    link.hello(&Who::new(name))
        .await?
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(link)
}

#[tokio::test]
async fn a_revoked_key_ends_its_links_and_waits_within_a_second() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, other) = (
        gate.key("agent", "*", &[]).await?,
        gate.key("agent", "*", &[]).await?,
    );
    let mut link = linked(&gate, &key, "one").await?;
    let mut unharmed = linked(&gate, &other, "two").await?;
    link.begin(CallId::fresh(), "wait_for_message", json!({"timeout": 600}))
        .await?;
    let waiting = json!({"timeout": 600});
    let waits = call(&gate, Some(&key), "three", "wait_for_message", &waiting);
    let ends = async {
        // The wait over HTTP has begun when its agent is listed.
        eventually("three waits", Duration::from_secs(10), async || {
            let agents = ask(&gate, "GET", "/api/agents", Some(&other), None, "")
                .await
                .ok()?;
            agents.body.contains("\"three\"").then_some(())
        })
        .await?;
        let began = Instant::now();
        gate.revoke(&key).await?;
        assert_eq!(link.hear_close().await?, CLOSE_REVOKED);
        anyhow::Ok(began)
    };
    let (waited, began) = tokio::join!(waits, ends);
    let (status, refusal) = waited?;
    assert!(
        status == 401 || refusal.as_deref() == Some("UNAUTHORIZED"),
        "{status} {refusal:?}"
    );
    assert!(began?.elapsed() < AT_ONCE);
    unharmed.call("ping", json!({})).await?;
    assert!(
        Link::open_with(&gate.served.address, Some(&key))
            .await
            .is_err()
    );
    Ok(())
}

#[tokio::test]
async fn a_rotated_key_ends_the_links_that_used_its_old_text() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("agent", "*", &[]).await?;
    let mut link = linked(&gate, &key, "one").await?;
    let began = Instant::now();
    let said = gate.ask(&["keys", "rotate", id(&key)?]).await?;
    assert_eq!(link.hear_close().await?, CLOSE_REVOKED);
    assert!(began.elapsed() < AT_ONCE);
    let fresh = said.lines().next().context("the new text")?;
    assert!(fresh != key && id(fresh)? == id(&key)?);
    linked(&gate, fresh, "one").await?;
    assert!(
        Link::open_with(&gate.served.address, Some(&key))
            .await
            .is_err()
    );
    Ok(())
}

#[tokio::test]
async fn a_rotation_lists_what_the_holder_of_the_old_secret_may_have() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("admin", "*", &[]).await?;
    let make = async |path: &str, body: Value| -> Result<Value> {
        let answer = ask(&gate, "POST", path, Some(&key), None, &body.to_string()).await?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        Ok(serde_json::from_str(&answer.body)?)
    };
    // It may be made with a proof of the old secret, too.
    gate.key("agent", "*", &["--host", "somebody"]).await?;
    let made = make("/api/keys", json!({"name": "mallory", "scope": "admin"})).await?;
    make("/api/invites", json!({"scope": "admin"})).await?;
    let rotated = make(&format!("/api/keys/{}/rotate", id(&key)?), json!({})).await?;
    let (same_host, listed) = (&rotated["same_host"], &rotated["made"]);
    assert_eq!(rotated["is_whole"], true, "{rotated}");
    assert_eq!(same_host.as_array().map(Vec::len), Some(1), "{rotated}");
    // The invite has ended with the old secret.
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{rotated}");
    assert_eq!(listed[0]["id"], made["id"], "{rotated}");
    let said = gate.ask(&["keys", "rotate", id(&key)?]).await?;
    let revocations = [&same_host[0]["id"], &made["id"]].map(|id| id.as_str().unwrap_or("none"));
    assert!(
        said.contains("Note: if another program had the old secret"),
        "{said}"
    );
    for id in revocations {
        assert!(said.contains(&format!(" keys revoke {id} ")), "{said}");
    }
    assert_eq!(
        said.matches(" revoke ").count(),
        revocations.len(),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn open_invites_for_the_host_of_an_ended_key_are_named() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("agent", "*", &["--host", "nas"]).await?;
    let invite_for = async |host: &str| -> Result<String> {
        let said = gate.ask(&["invite", "--host", host]).await?;
        let (_, rest) = said.split_once("This is the invite ").context("an id")?;
        Ok(rest.split(';').next().unwrap_or_default().to_owned())
    };
    let (of_host, of_other) = (invite_for("nas").await?, invite_for("web").await?);
    let list = gate.ask(&["invites", "list"]).await?;
    for row in [
        format!("{of_host}  agent  nas "),
        format!("{of_other}  agent  web "),
    ] {
        assert!(list.contains(&row), "{row}: {list}");
    }
    for verb in ["rotate", "revoke"] {
        let said = gate.ask(&["keys", verb, id(&key)?]).await?;
        assert!(
            said.contains(&format!(" invites revoke {of_host} ")),
            "{said}"
        );
        assert!(!said.contains(&of_other), "{said}");
    }
    gate.ask(&["invites", "revoke", &of_host]).await?;
    let said = gate.ask(&["keys", "revoke", id(&key)?]).await?;
    assert!(!said.contains(" invites revoke "), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_key_that_expires_ends_its_links() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("agent", "*", &["--expires", "2s"]).await?;
    let began = Instant::now();
    let mut link = linked(&gate, &key, "one").await?;
    assert_eq!(link.hear_close().await?, CLOSE_REVOKED);
    assert!(
        began.elapsed() < Duration::from_secs(2) + AT_ONCE,
        "{:?}",
        began.elapsed()
    );
    Ok(())
}

#[tokio::test]
async fn a_key_cannot_take_over_the_processes_of_another() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, other) = (
        gate.key("agent", "*", &[]).await?,
        gate.key("agent", "*", &[]).await?,
    );
    let who = Who::new("one");
    let mut link = Link::open_with(&gate.served.address, Some(&key)).await?;
    link.hello(&who).await?.expect("a free name");
    for forged in [
        Who {
            more: json!({"succeeds": [who.instance]}),
            ..Who::new("one")
        },
        Who {
            instance: who.instance,
            ..Who::new("one")
        },
    ] {
        let mut thief = Link::open_with(&gate.served.address, Some(&other)).await?;
        let welcome = thief.hello(&forged).await?.expect("another name");
        assert_ne!(welcome["agent_id"], "one", "{forged:?}");
        thief.notify("goodbye", json!({})).await?;
    }
    let person = Who {
        more: json!({"person": true, "succeeds": [who.instance]}),
        ..Who::new("one")
    };
    let mut thief = Link::open_with(&gate.served.address, Some(&other)).await?;
    assert_eq!(
        thief.hello(&person).await?.expect_err("another host")["data"]["code"],
        "FORBIDDEN"
    );
    link.call("ping", json!({})).await?;
    Ok(())
}

/// Returns the audit entries about keys as `verb key why`, when there are at least `count`.
pub(super) async fn changes(gate: &Gate, key: &str, count: usize) -> Result<Vec<String>> {
    noted(gate, key, "key_changed", count).await
}

/// Returns the audit entries of that event as `verb key why`, when there are at least `count`.
async fn noted(gate: &Gate, key: &str, event: &str, count: usize) -> Result<Vec<String>> {
    eventually("the audit says so", SOON, async || {
        let page = ask(gate, "GET", "/api/audit?limit=1000", Some(key), None, "")
            .await
            .ok()?;
        let page: Value = serde_json::from_str(&page.body).ok()?;
        let entries = page["entries"]
            .as_array()?
            .iter()
            .filter(|entry| entry["event"] == event);
        let said = |entry: &Value| {
            ["verb", "key", "why"].map(|name| entry[name].as_str().unwrap_or("-").to_owned())
        };
        let lines: Vec<String> = entries.map(|entry| said(entry).join(" ")).collect();
        (lines.len() >= count).then_some(lines)
    })
    .await
}

#[tokio::test]
async fn the_audit_names_the_key_of_each_action_and_denial() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, admin) = (
        gate.key("agent", "*", &[]).await?,
        gate.key("admin", "*", &[]).await?,
    );
    assert_eq!(
        ask(&gate, "POST", "/api/keys", Some(&key), None, "")
            .await?
            .status,
        403
    );
    assert_eq!(
        ask(&gate, "GET", "/api/keys", Some(&key), None, "")
            .await?
            .status,
        403
    );
    call(&gate, Some(&key), "three", "ping", &json!({})).await?;
    assert_eq!(
        ask(
            &gate,
            "POST",
            "/api/unregister",
            Some(&key),
            Some("three"),
            ""
        )
        .await?
        .status,
        200
    );
    let (own, denied) = (id(&key)?, noted(&gate, &admin, "denied", 1).await?);
    assert!(
        denied.len() == 1 && denied[0].starts_with(&format!("administer {own} the key {own}")),
        "{denied:?}"
    );
    let ended = noted(&gate, &admin, "session_ended", 1).await?;
    assert_eq!(ended, [format!("unregistered {own} -")]);
    Ok(())
}

#[tokio::test]
async fn a_key_that_has_ended_is_not_ended_again() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, admin) = (
        gate.key("agent", "*", &[]).await?,
        gate.key("admin", "*", &[]).await?,
    );
    let path = format!("/api/keys/{}", id(&key)?);
    let revoke = async || ask(&gate, "DELETE", &path, Some(&admin), None, "").await;
    let (first, second) = (revoke().await?, revoke().await?);
    assert_eq!((first.status, &first.body), (200, &second.body));
    gate.key("agent", "*", &[]).await?;
    let said = changes(&gate, &admin, 5).await?;
    assert_eq!(
        said.iter()
            .filter(|line| line.starts_with("revoked"))
            .count(),
        1,
        "{said:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_key_that_ends_makes_no_key_by_a_request_that_it_began_before() -> Result<()> {
    let gate = Gate::start().await?;
    let admin = gate.key("admin", "*", &[]).await?;
    let body = json!({"name": "thief", "scope": "admin"}).to_string();
    let (begin, rest) = body.split_at(5);
    let mut making = TcpStream::connect(gate.address()?).await?;
    let head = format!(
        "POST /api/keys HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {admin}\r\nContent-Length: {}\r\n\r\n{begin}",
        body.len()
    );
    making.write_all(head.as_bytes()).await?;
    // The request has begun when a later one is answered.
    assert_eq!(
        ask(&gate, "GET", "/metrics", Some(&admin), None, "")
            .await?
            .status,
        200
    );
    gate.revoke(&admin).await?;
    // The connection may have ended already, or the rest is not read.
    let _ = making.write_all(rest.as_bytes()).await;
    let mut answer = String::new();
    timeout(SOON, making.read_to_string(&mut answer)).await??;
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(!gate.ask(&["keys", "list"]).await?.contains("thief"));
    Ok(())
}

#[tokio::test]
async fn a_key_that_rotates_itself_gets_its_new_text() -> Result<()> {
    let gate = Gate::start().await?;
    let mut key = gate.key("admin", "*", &[]).await?;
    for _ in 0..20 {
        let path = format!("/api/keys/{}/rotate", id(&key)?);
        let answer = ask(&gate, "POST", &path, Some(&key), None, "").await?;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let rotated: Value = serde_json::from_str(&answer.body)?;
        key = rotated["key"].as_str().context("the new text")?.to_owned();
    }
    let path = format!("/api/keys/{}", id(&key)?);
    let ended = ask(&gate, "DELETE", &path, Some(&key), None, "").await?;
    assert!(
        ended.status == 200 && ended.body.contains("revoked"),
        "{ended:?}"
    );
    Ok(())
}

#[tokio::test]
async fn the_list_of_keys_has_when_each_was_used_last() -> Result<()> {
    let gate = Gate::start().await?;
    let (admin, unused) = (
        gate.key("admin", "*", &[]).await?,
        gate.key("agent", "*", &[]).await?,
    );
    let listed: Value = serde_json::from_str(
        &ask(&gate, "GET", "/api/keys", Some(&admin), None, "")
            .await?
            .body,
    )?;
    let used = |key: &str| -> Result<bool> {
        let id = id(key)?;
        let shown = listed["keys"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|shown| shown["id"] == id);
        Ok(shown.context("it is listed")?["last_used_at"].is_string())
    };
    assert_eq!((used(&admin)?, used(&unused)?), (true, false));
    Ok(())
}

/// Starts a coordinator that requires keys, on a Redis that can be paused.
async fn on_redis() -> Result<(Gate, Redis)> {
    let redis = Redis::start().await?;
    let store = redis.url().parse()?;
    let started = Served::start_with(|config| (config.is_open, config.store) = (false, store));
    let gate = Gate {
        served: started.await?,
    };
    let address = gate.address()?;
    eventually("it answers", SOON, async || {
        http::get(address, "/api/health").await.ok()
    })
    .await?;
    Ok((gate, redis))
}

#[tokio::test]
async fn a_key_expires_in_time_while_the_store_is_away() -> Result<()> {
    let (gate, redis) = on_redis().await?;
    let key = gate.key("admin", "*", &["--expires", "2s"]).await?;
    let listed: Value = serde_json::from_str(&gate.ask(&["keys", "list", "--json"]).await?)?;
    let end: Timestamp = listed["keys"][0]["expires_at"]
        .as_str()
        .context("its end")?
        .parse()?;
    let near = end.millis() - 400;
    eventually("its end is near", SOON, async || {
        (Timestamp::now().millis() > near).then_some(())
    })
    .await?;
    redis.pause()?;
    // The requests wait for the store longer than the key is valid.
    let paths = ["/api/agents", "/api/keys", "/api/invites"];
    let asked = paths.map(|path| ask(&gate, "GET", path, Some(&key), None, ""));
    for cut in futures_util::future::try_join_all(asked).await? {
        assert_eq!(
            (cut.status, code(&cut).as_deref()),
            (401, Some("UNAUTHORIZED"))
        );
    }
    redis.resume()
}

#[tokio::test]
async fn a_key_is_revoked_although_the_client_has_disconnected() -> Result<()> {
    let (gate, redis) = on_redis().await?;
    let (key, admin) = (
        gate.key("agent", "*", &[]).await?,
        gate.key("admin", "*", &[]).await?,
    );
    redis.pause()?;
    let mut asking = TcpStream::connect(gate.address()?).await?;
    let path = format!("/api/keys/{}", id(&key)?);
    let request = format!(
        "DELETE {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {admin}\r\n\r\n"
    );
    asking.write_all(request.as_bytes()).await?;
    // A later request that needs no store is answered after this one has begun, or its end was noticed.
    let later = async || ask(&gate, "GET", "/metrics", Some(&admin), None, "").await;
    assert_eq!(later().await?.status, 200);
    drop(asking);
    assert_eq!(later().await?.status, 200);
    redis.resume()?;
    let said = changes(&gate, &admin, 4).await?;
    assert!(
        said[3].starts_with(&format!("revoked {}", id(&key)?)),
        "{said:?}"
    );
    Ok(())
}

#[tokio::test]
async fn malformed_requests_for_keys_are_refused_with_a_reason() -> Result<()> {
    let gate = Gate::start().await?;
    let admin = gate.key("admin", "*", &[]).await?;
    for body in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"name":""}"#,
        r#"{"name":"x","scope":"root"}"#,
        r#"{"name":"x","agents":[]}"#,
        r#"{"name":"x","agents":["a b"]}"#,
        r#"{"name":"x","expires_in":0}"#,
        r#"{"name":"x","more":1}"#,
    ] {
        let answer = ask(&gate, "POST", "/api/keys", Some(&admin), None, body).await?;
        assert_eq!(
            (answer.status, code(&answer).as_deref()),
            (400, Some("INVALID_REQUEST")),
            "{body}: {}",
            answer.body
        );
    }
    let unknown = ask(
        &gate,
        "DELETE",
        "/api/keys/ffffffff",
        Some(&admin),
        None,
        "",
    )
    .await?;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    Ok(())
}
