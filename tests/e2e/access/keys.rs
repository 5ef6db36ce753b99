//! What becomes of what goes on under a key when the key ends, and how a host gets one.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use c3po_shared::ids::CallId;
use c3po_shared::join::JoinCode;
use c3po_shared::wire::CLOSE_REVOKED;
use harness::eventually::eventually;
use harness::gate::{Gate, id};
use harness::link::{Link, Who};
use serde_json::{Value, json};

use super::{ask, call, code};

/// How long something may take that should happen soon, on a machine that builds meanwhile.
const SOON: Duration = Duration::from_secs(10);
/// In what time a key that ends has to end everything under it.
const AT_ONCE: Duration = Duration::from_secs(1);

async fn linked(gate: &Gate, key: &str, name: &str) -> Result<Link> {
    let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
    link.hello(&Who::new(name)).await?.map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(link)
}

#[tokio::test]
async fn a_revoked_key_ends_its_links_and_waits_within_a_second() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, other) = (gate.key("agent", "*", &[]).await?, gate.key("agent", "*", &[]).await?);
    let mut link = linked(&gate, &key, "one").await?;
    let mut unharmed = linked(&gate, &other, "two").await?;
    link.begin(CallId::fresh(), "wait_for_message", json!({"timeout": 600})).await?;
    let waiting = json!({"timeout": 600});
    let waits = call(&gate, Some(&key), "three", "wait_for_message", &waiting);
    let ends = async {
        // The wait over HTTP is under way once its agent is there.
        eventually("three waits", Duration::from_secs(10), async || {
            let agents = ask(&gate, "GET", "/api/agents", Some(&other), None, "").await.ok()?;
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
    assert!(status == 401 || refusal.as_deref() == Some("UNAUTHORIZED"), "{status} {refusal:?}");
    assert!(began?.elapsed() < AT_ONCE);
    unharmed.call("ping", json!({})).await?;
    assert!(Link::open_with(&gate.served.address, Some(&key)).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_rotated_key_ends_what_went_on_under_the_text_before() -> Result<()> {
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
    assert!(Link::open_with(&gate.served.address, Some(&key)).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_key_that_expires_ends_its_links() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("agent", "*", &["--expires", "2s"]).await?;
    let began = Instant::now();
    let mut link = linked(&gate, &key, "one").await?;
    assert_eq!(link.hear_close().await?, CLOSE_REVOKED);
    assert!(began.elapsed() < Duration::from_secs(2) + AT_ONCE, "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn one_key_says_nothing_of_the_processes_of_another() -> Result<()> {
    let gate = Gate::start().await?;
    let (key, other) = (gate.key("agent", "*", &[]).await?, gate.key("agent", "*", &[]).await?);
    let who = Who::new("one");
    let mut link = Link::open_with(&gate.served.address, Some(&key)).await?;
    link.hello(&who).await?.expect("a free name");
    for forged in [
        Who { more: json!({"succeeds": [who.instance]}), ..Who::new("one") },
        Who { instance: who.instance, ..Who::new("one") },
    ] {
        let mut thief = Link::open_with(&gate.served.address, Some(&other)).await?;
        let welcome = thief.hello(&forged).await?.expect("another name");
        assert_ne!(welcome["agent_id"], "one", "{forged:?}");
        thief.notify("goodbye", json!({})).await?;
    }
    let person = Who { more: json!({"person": true, "succeeds": [who.instance]}), ..Who::new("one") };
    let mut thief = Link::open_with(&gate.served.address, Some(&other)).await?;
    assert_eq!(thief.hello(&person).await?.expect_err("it lives")["data"]["code"], "CONFLICT");
    link.call("ping", json!({})).await?;
    Ok(())
}

/// Makes an invite. Returns its code.
async fn invited(gate: &Gate, more: &[&str]) -> Result<JoinCode> {
    let said = gate.ask(&[&["invite"], more].concat()).await?;
    let line = said.lines().find(|line| line.contains("c3po join ")).with_context(|| said.clone())?;
    Ok(line.split_whitespace().last().context("the code")?.parse()?)
}

async fn join(gate: &Gate, code: &JoinCode, host: &str) -> Result<harness::http::Answer> {
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
    assert_eq!((stolen.status, code(&stolen).as_deref()), (401, Some("UNAUTHORIZED")));
    let listed = gate.ask(&["keys", "list"]).await?;
    assert!(listed.contains("laptop") && !listed.contains("thief"), "{listed}");
    Ok(())
}

#[tokio::test]
async fn of_50_who_race_for_a_join_code_as_many_get_in_as_it_says() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = invited(&gate, &["--uses", "3"]).await?;
    let answers = futures_util::future::join_all((0..25).map(|_| join(&gate, &code_of, "racer"))).await;
    let statuses: Vec<u16> =
        answers.into_iter().map(|answer| answer.map(|answer| answer.status)).collect::<Result<_>>()?;
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 3, "{statuses:?}");
    assert!(statuses.iter().all(|status| [200, 401].contains(status)), "{statuses:?}");
    Ok(())
}

#[tokio::test]
async fn whoever_guesses_join_codes_is_slowed_down() -> Result<()> {
    let gate = Gate::start().await?;
    let mut statuses = Vec::new();
    for number in 0..40_u8 {
        statuses.push(join(&gate, &JoinCode::new([number; 16], None), "guesser").await?.status);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 401).count(), 30, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 429).count(), 10, "{statuses:?}");
    Ok(())
}

#[tokio::test]
async fn an_expired_invite_lets_nobody_in() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = invited(&gate, &["--expires", "1s"]).await?;
    let end = Instant::now() + Duration::from_secs(1);
    eventually("its time is over", SOON, async || (Instant::now() > end).then_some(())).await?;
    assert_eq!(join(&gate, &code_of, "late").await?.status, 401);
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
    let unknown = ask(&gate, "DELETE", "/api/keys/ffffffff", Some(&admin), None, "").await?;
    assert_eq!(unknown.status, 404, "{}", unknown.body);
    Ok(())
}
