//! A host is identified by its key: it has only its own agents, and keeps its name only with a proof.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::ids::CallId;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use harness::process::join_code;
use inside::gate::Gate;
use inside::served::Served;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::proofs::proof;
use super::{ask, code};

pub(super) const SOON: Duration = Duration::from_secs(20);

/// Opens a session with that key and a false host name.
pub(super) async fn session(gate: &Gate, key: &str, name: &str) -> Result<(Link, Value)> {
    let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
    let who = Who {
        more: json!({"host": "whatever"}),
        ..Who::new(name)
    };
    let welcome = link
        .hello(&who)
        .await?
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok((link, welcome))
}

/// Makes an invite. Returns its join code.
pub(super) async fn invited(gate: &Gate, more: &[&str]) -> Result<String> {
    let line = gate.ask(&[&["invite"], more].concat()).await?;
    let line = line
        .lines()
        .find(|line| line.contains("c3po join"))
        .context("a line")?;
    Ok(join_code(line)?.to_owned())
}

/// Joins, and returns the key and the name of its host.
pub(super) async fn joined(
    gate: &Gate,
    code: &str,
    host: &str,
    proof: Option<&str>,
) -> Result<(String, String)> {
    let body = json!({"code": code, "host": host, "proof": proof});
    let body = if proof.is_some() {
        body
    } else {
        json!({"code": code, "host": host})
    };
    let answer = ask(gate, "POST", "/api/join", None, None, &body.to_string()).await?;
    let reply: Value = serde_json::from_str(&answer.body)?;
    let text = |name: &str| {
        reply[name]
            .as_str()
            .map(str::to_owned)
            .with_context(|| answer.body.clone())
    };
    Ok((text("key")?, text("host")?))
}

async fn post(gate: &Gate, path: &str, key: &str, body: Value) -> Result<(u16, Value)> {
    let answer = ask(gate, "POST", path, Some(key), None, &body.to_string()).await?;
    Ok((answer.status, serde_json::from_str(&answer.body)?))
}

/// Sends a message. Returns its receipt.
async fn send(link: &mut Link, target: &str, text: &str) -> Result<Value> {
    let arguments = json!({"target": target, "message": text});
    link.call("send_message", arguments).await
}

async fn rename_host(gate: &Gate, key: &str, from: &str, to: &str) -> Result<(u16, Value)> {
    let body = json!({"from": from, "to": to});
    post(gate, "/api/hosts/rename", key, body).await
}

#[tokio::test]
async fn a_host_is_identified_by_its_key_and_not_by_its_reported_name() -> Result<()> {
    let gate = Gate::start().await?;
    let (nas, host) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (other, other_host) = joined(&gate, &invited(&gate, &[]).await?, "NAS", None).await?;
    assert_eq!((host.as_str(), other_host.as_str()), ("nas", "NAS-2"));
    let (mut web, welcome) = session(&gate, &nas, "web").await?;
    assert_eq!(
        (&welcome["agent_id"], &welcome["host"]),
        (&json!("web"), &json!("nas"))
    );
    let sent = send(&mut web, "web", "to myself").await?;
    assert_eq!(sent["from_host"], "nas");
    web.notify("goodbye", json!({})).await?;
    let _ = web.hear_close().await;

    // The name is not held any more, but it still belongs to the first host.
    for _ in 0..2 {
        let (mut link, welcome) = session(&gate, &other, "web").await?;
        assert_eq!(
            (&welcome["agent_id"], &welcome["pending"]),
            (&json!("web-2"), &json!(0))
        );
        link.notify("goodbye", json!({})).await?;
    }
    let mut link = Link::open_with(&gate.served.address, Some(&other)).await?;
    let refused = link
        .hello(&Who::person("web"))
        .await?
        .expect_err("it is of nas");
    assert_eq!(refused["data"]["code"], "FORBIDDEN");
    assert_eq!(
        refused["data"]["error"],
        "web belongs to the host nas, and this is NAS-2"
    );
    for (method, path) in [("GET", "/api/pending"), ("POST", "/api/unregister")] {
        let answer = ask(&gate, method, path, Some(&other), Some("web"), "").await?;
        assert_eq!(
            (answer.status, code(&answer).as_deref()),
            (403, Some("FORBIDDEN")),
            "{path}"
        );
    }
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ping", "arguments": {}}});
    let answer = ask(
        &gate,
        "POST",
        "/mcp",
        Some(&other),
        Some("web"),
        &ping.to_string(),
    )
    .await?;
    let pong: Value = serde_json::from_str(&answer.body)?;
    assert_eq!(pong["result"]["structuredContent"]["agent_id"], "web-2");
    let (mut back, welcome) = session(&gate, &nas, "web").await?;
    assert_eq!(
        (&welcome["agent_id"], &welcome["pending"]),
        (&json!("web"), &json!(1))
    );
    assert_eq!(back.call("get_messages", json!({})).await?["count"], 1);
    Ok(())
}

#[tokio::test]
async fn an_invite_lets_in_no_human_but_a_person_of_each_host() -> Result<()> {
    let gate = Gate::start().await?;
    let (nas, _) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (laptop, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let (desk, _) = joined(&gate, &invited(&gate, &[]).await?, "desk", None).await?;
    let admin = gate.key("admin", "*", &[]).await?;
    let person = async |key: &str, name: &str| -> Result<Result<(Link, Value), Value>> {
        let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
        let who = Who {
            more: json!({"person": true}),
            ..Who::new(name)
        };
        Ok(link
            .hello(&who)
            .await?
            .map(|welcome| (link, welcome["agent_id"].clone())))
    };
    let (mut at_desk, name) = person(&desk, "human").await?.expect("the person of desk");
    assert_eq!(name, "desk-cli");
    let (mut at_nas, name) = person(&nas, "human").await?.expect("the person of nas");
    assert_eq!(name, "nas-cli");
    let sent = send(&mut at_nas, "human", "from the nas").await?;
    assert_eq!(sent["from_agent"], "nas-cli");
    send(&mut at_desk, "nas-cli", "for the nas alone").await?;
    // It can use neither that name nor that of another host's person.
    let refused = person(&laptop, "nas-cli")
        .await?
        .err()
        .context("it is of nas")?;
    assert_eq!(refused["data"]["code"], "FORBIDDEN", "{refused}");
    for name in ["human", "nas-cli"] {
        let answer = ask(&gate, "GET", "/api/pending", Some(&laptop), Some(name), "").await?;
        assert_eq!(answer.status, 403, "{name}: {}", answer.body);
    }
    let noted = ask(
        &gate,
        "GET",
        "/api/audit?limit=1000",
        Some(&admin),
        None,
        "",
    )
    .await?
    .body;
    assert!(
        noted.matches("belongs to the host").count() <= 1,
        "a request that only reads leaves no entry: {noted}"
    );
    assert_eq!(at_nas.call("get_messages", json!({})).await?["count"], 1);
    Ok(())
}

#[tokio::test]
async fn a_host_that_joins_again_keeps_its_name_only_by_its_key_or_by_the_invite() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let again = invited(&gate, &[]).await?;
    let wrong = proof(&key, "another code");
    let (_, stranger) = joined(&gate, &again, "laptop", Some(&wrong)).await?;
    assert_eq!(stranger, "laptop-2");
    let code = invited(&gate, &[]).await?;
    let (_, host) = joined(&gate, &code, "new name", Some(&proof(&key, &code))).await?;
    assert_eq!(host, "laptop");
    let (_, host) = joined(
        &gate,
        &invited(&gate, &["--host", "laptop"]).await?,
        "laptop.local",
        None,
    )
    .await?;
    assert_eq!(host, "laptop");
    let (_, welcome) = session(&gate, &key, "web").await?;
    assert_eq!(welcome["host"], "laptop", "no key was revoked");
    // After a rotation the old key may be known to others, so it proves nothing. The new one does.
    let id = key.split('_').nth(1).context("its id")?;
    let rotated = gate.ask(&["keys", "rotate", id]).await?;
    assert!(rotated.contains(" invite --host laptop "), "{rotated}");
    let (before, key) = (
        key,
        rotated.lines().next().context("the new text")?.to_owned(),
    );
    for (text, expected) in [(&before, "laptop-3"), (&key, "laptop")] {
        let code = invited(&gate, &[]).await?;
        let (_, host) = joined(&gate, &code, "laptop", Some(&proof(text, &code))).await?;
        assert_eq!(host, expected);
    }
    // The name of a revoked key cannot be inherited either.
    gate.revoke(&key).await?;
    let code = invited(&gate, &[]).await?;
    let (_, host) = joined(&gate, &code, "laptop", Some(&proof(&key, &code))).await?;
    assert_eq!(host, "laptop-4");
    let refused = gate
        .ask(&["invite", "--host", "nas", "--uses", "2"])
        .await
        .expect_err("two hosts of one name");
    assert!(refused.to_string().contains("one use"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_host_with_another_key_has_the_same_agents() -> Result<()> {
    let gate = Gate::start().await?;
    let (laptop, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let (_web, _) = session(&gate, &laptop, "web").await?;
    let (nas, _) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (before, welcome) = session(&gate, &nas, "web").await?;
    assert_eq!(
        (&welcome["agent_id"], &welcome["wished"]),
        (&json!("web-2"), &json!("web"))
    );
    let code = invited(&gate, &[]).await?;
    let (newer, _) = joined(&gate, &code, "nas", Some(&proof(&nas, &code))).await?;
    drop(before);
    let again = async || {
        let (mut link, welcome) = session(&gate, &newer, "web").await.ok()?;
        link.notify("goodbye", json!({})).await.ok()?;
        (welcome["agent_id"] == "web-2").then_some(())
    };
    eventually("the link of the older key is over", SOON, again).await
}

#[tokio::test]
async fn hosts_of_one_name_that_join_at_once_get_different_names() -> Result<()> {
    const HOSTS: usize = 12;
    let gate = Arc::new(Gate::start().await?);
    let code = invited(&gate, &["--uses", &HOSTS.to_string()]).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..HOSTS {
        let (gate, code) = (Arc::clone(&gate), code.clone());
        tasks.spawn(async move { joined(&gate, &code, "nas", None).await });
    }
    let mut hosts = BTreeSet::new();
    for joined in tasks.join_all().await {
        hosts.insert(joined?.1);
    }
    assert_eq!(hosts.len(), HOSTS, "{hosts:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_is_forgotten_by_its_own_host_or_by_an_administrator() -> Result<()> {
    let gate = Gate::start().await?;
    let (nas, _) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (laptop, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let (desk, _) = joined(&gate, &invited(&gate, &[]).await?, "desk", None).await?;
    let admin = gate.key("admin", "*", &[]).await?;
    let remove = async |key: &str, name: &str| {
        post(&gate, "/api/agents/remove", key, json!({"agent_id": name})).await
    };
    let (mut web, _) = session(&gate, &nas, "web").await?;
    send(&mut web, "web", "to myself").await?;
    assert_eq!(remove(&nas, "web").await?.1["code"], "CONFLICT");
    web.notify("goodbye", json!({})).await?;
    assert_eq!(remove(&laptop, "web").await?.1["code"], "FORBIDDEN");
    let (_, removed) = eventually("the session is over", SOON, async || {
        let answer = remove(&nas, "web").await.ok()?;
        (answer.0 == 200).then_some(answer)
    })
    .await?;
    assert_eq!(
        removed,
        json!({"agent_id": "web", "host": "nas", "expired": 1})
    );
    assert_eq!(remove(&nas, "web").await?.1["code"], "AGENT_NOT_FOUND");
    assert_eq!(remove(&admin, "human").await?.0, 404);
    let (mut api, welcome) = session(&gate, &laptop, "web").await?;
    assert_eq!(welcome["agent_id"], "web-2", "the name stays with its host");
    api.notify("goodbye", json!({})).await?;
    let said = gate.ask(&["agents", "rm", "web"]).await?;
    assert_eq!(
        said,
        "web is deleted; 0 messages in its inbox have expired."
    );
    let (mut new, welcome) = session(&gate, &desk, "web").await?;
    assert_eq!(
        welcome["agent_id"], "web",
        "an administrator frees it for every host"
    );
    new.notify("goodbye", json!({})).await?;
    let said = eventually("the session is over", SOON, async || {
        gate.ask(&["agents", "rm", "web"]).await.ok()
    })
    .await?;
    assert_eq!(
        said,
        "web is deleted; 0 messages in its inbox have expired."
    );
    Ok(())
}

#[tokio::test]
async fn a_renamed_host_keeps_its_agents_its_mail_and_its_sessions() -> Result<()> {
    let gate = Gate::start().await?;
    let (old, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let (nas, _) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (mut web, _) = session(&gate, &old, "web").await?;
    send(&mut web, "web", "to myself").await?;
    let (status, _) = rename_host(&gate, &nas, "laptop", "nas").await?;
    assert_eq!(status, 403);
    let said = gate
        .ask(&["hosts", "rename", "laptop", "macbook", "--json"])
        .await?;
    let renamed: Value = serde_json::from_str(&said)?;
    assert_eq!(
        renamed,
        json!({"from": "laptop", "to": "macbook", "agents": 1, "keys": 1})
    );
    eventually("the session is told to come back", SOON, async || {
        web.call("ping", json!({})).await.err()
    })
    .await?;
    let (_link, welcome) = eventually("the key counts", SOON, async || {
        session(&gate, &old, "web").await.ok()
    })
    .await?;
    assert_eq!(welcome["host"], "macbook");
    let agents: Value = serde_json::from_str(
        &ask(&gate, "GET", "/api/agents", Some(&nas), None, "")
            .await?
            .body,
    )?;
    let hosts: Vec<_> = agents
        .as_array()
        .context("agents")?
        .iter()
        .map(|agent| &agent["host"])
        .collect();
    assert_eq!(hosts.first(), Some(&&json!("macbook")), "{agents}");
    let refused = gate
        .ask(&["hosts", "rename", "laptop", "desk"])
        .await
        .expect_err("it is gone");
    assert!(
        refused
            .to_string()
            .contains("no agent and no key belongs to the host laptop"),
        "{refused}"
    );
    let admin = gate.key("admin", "*", &[]).await?;
    for (from, to, expected) in [("nobody", "desk", 404), ("nas", "nas", 409)] {
        let (status, said) = rename_host(&gate, &admin, from, to).await?;
        assert_eq!(status, expected, "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn agents_made_while_their_host_is_renamed_follow_and_no_other_host_gets_them() -> Result<()>
{
    let gate = Gate::start().await?;
    let admin = gate.key("admin", "*", &[]).await?;
    joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    invited(&gate, &["--host", "macbook"]).await?;
    let (status, refused) = rename_host(&gate, &admin, "laptop", "macbook").await?;
    assert!(status == 409 && refused["error"].to_string().contains("has an open invite"));
    let another = invited(&gate, &[]).await?;
    // As at another coordinator, which does not know of the renamed keys yet.
    let meanwhile = async {
        sleep(Duration::from_millis(300)).await;
        let (_, host) = joined(&gate, &another, "laptop", None).await?;
        let same = invited(&gate, &["--host", "laptop"]).await?;
        let (key, _) = joined(&gate, &same, "laptop", None).await?;
        anyhow::Ok((host, session(&gate, &key, "late").await?))
    };
    let renaming = rename_host(&gate, &admin, "laptop", "desk");
    let ((_, renamed), (host, _late)) = tokio::try_join!(renaming, meanwhile)?;
    assert_eq!((host.as_str(), &renamed["agents"]), ("laptop-2", &json!(1)));
    Ok(())
}

#[tokio::test]
async fn a_body_may_write_an_integer_with_a_fraction() -> Result<()> {
    let gate = Gate::start().await?;
    let admin = gate.key("admin", "*", &[]).await?;
    let made = async |life: Value| {
        post(
            &gate,
            "/api/keys",
            &admin,
            json!({"name": "new", "expires_in": life}),
        )
        .await
    };
    assert_eq!(made(json!(3600)).await?.0, made(json!(3600.0)).await?.0);
    assert_eq!(made(json!(3600.5)).await?.0, 400);
    Ok(())
}

#[tokio::test]
async fn agents_of_a_container_without_a_name_are_forgotten_when_they_leave_nothing() -> Result<()>
{
    let served = Served::start().await?;
    let there = async |name: &str| {
        let (mut link, _) = Link::join(&served.address, "looks").await?;
        let known = link
            .try_call("get_agent_status", json!({"agent_id": name}))
            .await?
            .is_ok();
        anyhow::Ok(known)
    };
    for (host, stays) in [("9b0c5f6a1e2d", false), ("media", true)] {
        let name = format!("web-of-{host}");
        let who = Who {
            more: json!({"host": host}),
            ..Who::new(&name)
        };
        let (mut link, _) = Link::join_as(&served.address, &who).await?;
        link.notify("goodbye", json!({})).await?;
        if stays {
            assert!(there(&name).await?);
        } else {
            eventually("it is forgotten", SOON, async || {
                (!there(&name).await.ok()?).then_some(())
            })
            .await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_call_is_repeated_by_its_own_host_alone() -> Result<()> {
    let gate = Gate::start().await?;
    let call = CallId::fresh();
    let mut hosts = Vec::new();
    for host in ["laptop", "nas"] {
        let code = invited(&gate, &["--agents", "*"]).await?;
        hosts.push(joined(&gate, &code, host, None).await?.0);
    }
    let (mut one, _) = session(&gate, &hosts[0], "one").await?;
    session(&gate, &hosts[1], "two").await?;
    let (mut other, _) = session(&gate, &hosts[1], "other").await?;
    let secret = json!({"target": "two", "message": "a guess"});
    let id = one.begin(call, "send_message", secret.clone()).await?;
    let sent = one.end(id).await?.expect("it is accepted");
    let id = other.begin(call, "send_message", secret.clone()).await?;
    let refused = other.end(id).await?.expect_err("it is another host's call");
    assert_eq!(refused["data"]["code"], "CONFLICT");
    assert!(!refused.to_string().contains("one::"), "{refused}");
    // A session of the same host repeats it under another name.
    let (mut renamed, _) = session(&gate, &hosts[0], "renamed").await?;
    let id = renamed.begin(call, "send_message", secret).await?;
    let repeated = renamed.end(id).await?.expect("it is the same");
    assert_eq!(repeated["id"], sent["id"]);
    Ok(())
}
