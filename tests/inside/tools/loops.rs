//! The guard against loops: two agents that answer each other endlessly are stopped at a limit, and a person can allow them
//! to continue.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use c3po_shared::limits::LOOP_MESSAGES;
use c3po_shared::vocabulary::State;
use harness::eventually::eventually;
use harness::http;
use harness::link::{Link, Who};
use harness::process::{command, program};
use harness::proxy::{prompt, session};
use inside::gate::Gate;
use inside::served::Served;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::id;

/// How long an audit entry may take to be written, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(10);
/// A limit that is reached soon.
const FEW: u32 = 4;

/// Starts a coordinator with that limit, and two agents, `a` and `b`. The gate is for the coordinator's own commands.
async fn limited(limit: Option<u32>) -> Result<(Gate, Link, Link)> {
    let served = Served::start_with(|config| config.loop_messages = limit).await?;
    let (a, b) = (served.join("a").await?, served.join("b").await?);
    Ok((Gate { served }, a, b))
}

/// Sends from the first to the second agent, then makes them answer each other until one answer is refused or `most` messages
/// are sent. Returns the number of messages, and the refusal.
async fn talk(
    first: &mut Link,
    to: &str,
    second: &mut Link,
    most: u32,
) -> Result<(u32, Option<Value>)> {
    let opening = json!({"target": to, "message": "what do you think?"});
    let mut last = match first.try_call("send_message", opening).await? {
        Ok(sent) => id(&sent),
        Err(refusal) => return Ok((0, Some(refusal))),
    };
    for sent in 1..most {
        let link = if sent % 2 == 1 {
            &mut *second
        } else {
            &mut *first
        };
        let answer = json!({"message_id": last, "response": "and you?", "requires_response": true});
        match link.try_call("reply", answer).await? {
            Ok(reply) => last = id(&reply),
            Err(refusal) => return Ok((sent, Some(refusal))),
        }
    }
    Ok((most, None))
}

/// Makes the agents send each other new messages in turn and acknowledge them, until one is refused or `most` messages are
/// sent. Returns the number of messages, and the refusal.
async fn exchange(a: &mut Link, b: &mut Link, most: u32) -> Result<(u32, Option<Value>)> {
    for sent in 0..most {
        let (from, to, target) = if sent % 2 == 0 {
            (&mut *a, &mut *b, "b")
        } else {
            (&mut *b, &mut *a, "a")
        };
        match from
            .try_call(
                "send_message",
                json!({"target": target, "message": "and you?"}),
            )
            .await?
        {
            Ok(message) => drop(
                to.call("ack_messages", json!({"message_ids": [id(&message)]}))
                    .await?,
            ),
            Err(refusal) => return Ok((sent, Some(refusal))),
        }
    }
    Ok((most, None))
}

fn code(refusal: Option<Value>) -> Option<String> {
    Some(refusal?["code"].as_str()?.to_owned())
}

async fn metric(gate: &Gate, name: &str) -> Result<u32> {
    let page = http::get(gate.address()?, "/metrics").await?.body;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .with_context(|| page.clone())?;
    Ok(line.trim().parse()?)
}

#[tokio::test]
async fn two_agents_that_answer_each_other_without_end_are_refused_and_others_are_not() -> Result<()>
{
    let (gate, mut a, mut b) = limited(Some(LOOP_MESSAGES)).await?;
    let (sent, refusal) = talk(&mut a, "b", &mut b, LOOP_MESSAGES + 1).await?;
    let refusal = refusal.context("the 61st message was not refused")?;
    assert_eq!((sent, &refusal["code"]), (60, &json!("LOOP_SUSPECTED")));
    assert_eq!(
        refusal["details"],
        json!({"agents": ["a", "b"], "count": 60, "limit": 60})
    );
    let suggestion = refusal["suggestion"].as_str().unwrap_or_default();
    for command in [
        "`c3po guard allow a b`",
        "`c3po-coordinator guard allow a b`",
    ] {
        assert!(suggestion.contains(command), "{suggestion}");
    }
    let (sent, refusal) = talk(&mut b, "a", &mut a, 2).await?;
    assert_eq!(
        (sent, code(refusal).as_deref()),
        (0, Some("LOOP_SUSPECTED")),
        "whichever of them begins"
    );

    let mut c = gate.served.join("c").await?;
    for (link, name) in [(&mut a, "a"), (&mut b, "b")] {
        assert_eq!(
            talk(&mut c, name, link, 10).await?,
            (10, None),
            "another pair"
        );
    }
    a.call("broadcast", json!({"message": "copies are not counted"}))
        .await?;
    assert_eq!(metric(&gate, "c3po_loops_suspected_total").await?, 2);
    eventually("it is in the audit", SOON, async || {
        let page = http::get(gate.address().ok()?, "/api/audit?limit=1000")
            .await
            .ok()?
            .body;
        let page: Value = serde_json::from_str(&page).ok()?;
        let entries = page["entries"].as_array()?;
        let refused: Vec<_> = entries
            .iter()
            .filter(|entry| entry["event"] == "loop_suspected")
            .collect();
        let verbs: Vec<_> = refused
            .iter()
            .map(|entry| (&entry["agent"], &entry["to"], &entry["verb"]))
            .collect();
        (verbs
            == [
                (&json!("a"), &json!("b"), &json!("reply")),
                (&json!("b"), &json!("a"), &json!("message")),
            ])
        .then_some(())
    })
    .await
}

#[tokio::test]
async fn messages_that_are_acknowledged_and_not_replied_to_are_a_loop_as_well() -> Result<()> {
    let (gate, mut a, mut b) = limited(Some(LOOP_MESSAGES)).await?;
    let (sent, refusal) = exchange(&mut a, &mut b, 2 * LOOP_MESSAGES).await?;
    assert_eq!(
        (sent, code(refusal).as_deref()),
        (60, Some("LOOP_SUSPECTED"))
    );
    let mut c = gate.served.join("c").await?;
    for (link, name) in [(&mut a, "a"), (&mut b, "b")] {
        assert_eq!(
            talk(&mut c, name, link, 10).await?,
            (10, None),
            "another pair"
        );
    }
    gate.ask(&["guard", "allow", "a", "b"]).await?;
    assert_eq!(exchange(&mut a, &mut b, 2 * LOOP_MESSAGES).await?.0, 60);
    a.notify("session", json!({"prompted": true})).await?;
    a.call("ping", json!({})).await?;
    // A message in the same millisecond may still count.
    assert!(exchange(&mut a, &mut b, 2 * LOOP_MESSAGES).await?.0 >= 59);
    gate.ask(&["guard", "stop", "a", "b"]).await?;
    assert_eq!(exchange(&mut a, &mut b, 1).await?.0, 0);
    Ok(())
}

#[tokio::test]
async fn a_person_lets_a_pair_go_on_or_stops_it() -> Result<()> {
    let (gate, mut a, mut b) = limited(Some(FEW)).await?;
    assert_eq!(
        gate.ask(&["guard", "list"]).await?,
        "No pair of agents is stopped or near the limit."
    );
    let (sent, refusal) = talk(&mut a, "b", &mut b, FEW + 1).await?;
    assert_eq!(
        (sent, code(refusal).as_deref()),
        (FEW, Some("LOOP_SUSPECTED"))
    );
    let listed =
        json!({"limit": 4, "pairs": [{"agents": ["a", "b"], "standing": "suspected", "count": 4}]});
    assert_eq!(
        gate.ask(&["guard", "list", "--json"])
            .await?
            .parse::<Value>()?,
        listed
    );

    let said = gate.ask(&["guard", "allow", "b", "a"]).await?;
    assert_eq!(said, "b and a may continue; their count starts again.");
    let (sent, refusal) = talk(&mut a, "b", &mut b, FEW + 1).await?;
    assert_eq!(
        (sent, code(refusal).as_deref()),
        (FEW, Some("LOOP_SUSPECTED"))
    );

    gate.ask(&["guard", "allow", "a", "b"]).await?;
    gate.ask(&["guard", "stop", "a", "b"]).await?;
    let (sent, refusal) = talk(&mut b, "a", &mut a, 1).await?;
    let refusal = refusal.context("a stopped pair sends")?;
    assert_eq!((sent, &refusal["code"]), (0, &json!("LOOP_SUSPECTED")));
    assert_eq!(
        refusal["error"],
        "a person stopped messages between a and b; nothing was sent"
    );
    let list: Value = gate.ask(&["guard", "list", "--json"]).await?.parse()?;
    assert_eq!(
        (
            &list["pairs"][0]["standing"],
            list["pairs"].as_array().map(Vec::len)
        ),
        (&json!("stopped"), Some(1))
    );
    let mut c = gate.served.join("c").await?;
    assert_eq!(
        talk(&mut c, "a", &mut a, FEW).await?,
        (FEW, None),
        "another pair"
    );
    gate.ask(&["guard", "allow", "a", "b"]).await?;
    assert_eq!(talk(&mut a, "b", &mut b, FEW).await?, (FEW, None));
    Ok(())
}

#[tokio::test]
async fn a_ruling_about_unknown_agents_is_refused() -> Result<()> {
    let (gate, ..) = limited(Some(FEW)).await?;
    let refused = gate
        .ask(&["guard", "stop", "a", "nobody"])
        .await
        .expect_err("there is no such agent");
    assert!(
        refused.to_string().contains("no agent named nobody"),
        "{refused}"
    );
    gate.ask(&["guard", "allow", "a", "nobody"])
        .await
        .context("it may be forgotten by now")?;
    for (one, other) in [("a", "a"), ("a", "human")] {
        let refused = gate
            .ask(&["guard", "stop", one, other])
            .await
            .expect_err("that is not a pair of agents");
        assert!(
            refused.to_string().contains("are not two agents"),
            "{refused}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_prompt_that_a_person_typed_in_either_session_starts_the_count_anew() -> Result<()> {
    let (_gate, mut a, mut b) = limited(Some(FEW)).await?;
    for prompted in ["a", "b"] {
        let (_, refusal) = talk(&mut a, "b", &mut b, FEW + 1).await?;
        assert_eq!(code(refusal).as_deref(), Some("LOOP_SUSPECTED"));
        b.notify("session", json!({"state": "busy"})).await?;
        b.call("ping", json!({})).await?;
        assert_eq!(
            talk(&mut a, "b", &mut b, 1).await?.0,
            0,
            "another change is not a prompt"
        );
        let link = if prompted == "a" { &mut a } else { &mut b };
        link.notify("session", json!({"prompted": true})).await?;
        // Changes are recorded before the next call is handled.
        link.call("ping", json!({})).await?;
        // A message in the same millisecond may still count.
        assert_eq!(
            talk(&mut a, "b", &mut b, FEW - 1).await?,
            (FEW - 1, None),
            "{prompted}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_prompt_typed_beside_a_real_proxy_is_noted_and_a_notification_is_not() -> Result<()> {
    let (served, work) = (Served::start().await?, TempDir::new()?);
    let _session = session(work.path(), "a", &format!("http://{}", served.address)).await?;
    let agent = async || served.store.agent(&"a".parse().ok()?).await.ok()?;
    let notified = eventually("its turn is known", SOON, async || {
        prompt(work.path(), "<task-notification>\n<result>slept</result>")
            .await
            .ok()?;
        agent().await.filter(|agent| agent.state == State::Busy)
    });
    assert_eq!(notified.await?.prompted_at, None);
    prompt(work.path(), "go on, both of you").await?;
    eventually("the prompt is known", SOON, async || {
        agent().await?.prompted_at
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn messages_of_a_person_are_exempt_and_so_is_a_thread_with_one() -> Result<()> {
    let (gate, mut a, mut b) = limited(Some(FEW)).await?;
    let (mut person, _) = Link::join_as(&gate.served.address, &Who::person("human")).await?;
    assert_eq!(
        talk(&mut person, "a", &mut a, 3 * FEW).await?,
        (3 * FEW, None)
    );

    let copies = a.call("broadcast", json!({"message": "shall we?"})).await?;
    let copy_of = |name: &str| -> Result<String> {
        let copies = copies["receipts"].as_array().context("copies")?;
        let copy = copies
            .iter()
            .find(|copy| copy["agent_id"] == name)
            .context("a copy")?;
        Ok(copy["message_id"].as_str().context("its id")?.to_owned())
    };
    person
        .call(
            "reply",
            json!({"message_id": copy_of("human")?, "response": "yes, both of you"}),
        )
        .await?;
    let mut last = copy_of("b")?;
    for sent in 0..3 * FEW {
        let link = if sent % 2 == 0 { &mut b } else { &mut a };
        let answer = json!({"message_id": last, "response": "and you?", "requires_response": true});
        last = id(&link
            .call("reply", answer)
            .await
            .with_context(|| format!("reply {sent}"))?);
    }
    let (sent, refusal) = talk(&mut a, "b", &mut b, 1).await?;
    assert_eq!(
        (sent, code(refusal).as_deref()),
        (0, Some("LOOP_SUSPECTED")),
        "a thread without a person"
    );
    Ok(())
}

#[tokio::test]
async fn the_guard_counts_neither_refused_nor_repeated_sends() -> Result<()> {
    let (gate, mut a, mut b) = limited(Some(FEW)).await?;
    for _ in 0..2 * FEW {
        assert_eq!(
            a.refusal("send_message", json!({"target": "c", "message": "there?"}))
                .await?,
            "AGENT_NOT_FOUND"
        );
    }
    let mut c = gate.served.join("c").await?;
    assert_eq!(talk(&mut a, "c", &mut c, FEW).await?, (FEW, None));

    let call = CallId::fresh();
    for _ in 0..2 * FEW {
        let begun = a
            .begin(
                call,
                "send_message",
                json!({"target": "b", "message": "once"}),
            )
            .await?;
        a.end(begun).await?.map_err(anyhow::Error::msg)?;
    }
    assert_eq!(talk(&mut a, "b", &mut b, FEW - 1).await?, (FEW - 1, None));
    gate.ask(&["guard", "stop", "a", "b"]).await?;
    let begun = a
        .begin(
            call,
            "send_message",
            json!({"target": "b", "message": "once"}),
        )
        .await?;
    ensure!(
        a.end(begun).await?.is_ok(),
        "a call sent again gets the answer that it got before"
    );
    Ok(())
}

#[tokio::test]
async fn without_a_limit_nothing_is_counted_and_a_stop_holds() -> Result<()> {
    let (gate, mut a, mut b) = limited(None).await?;
    assert_eq!(
        talk(&mut a, "b", &mut b, 3 * LOOP_MESSAGES).await?,
        (3 * LOOP_MESSAGES, None)
    );
    assert_eq!(
        gate.ask(&["guard", "list"]).await?,
        "No pair of agents is stopped or near the limit."
    );
    gate.ask(&["guard", "stop", "a", "b"]).await?;
    assert_eq!(
        a.refusal("send_message", json!({"target": "b", "message": "hi"}))
            .await?,
        "LOOP_SUSPECTED"
    );
    Ok(())
}

/// Runs `c3po guard` with that key.
async fn c3po_guard(gate: &Gate, home: &Path, key: &str, words: &[&str]) -> Result<Output> {
    let mut c3po = command(program("c3po")?, home);
    c3po.arg("guard").args(words).env(
        "C3PO_COORDINATOR_URL",
        format!("http://{}", gate.served.address),
    );
    Ok(c3po.env("C3PO_TOKEN", key).output().await?)
}

#[tokio::test]
async fn a_person_with_an_admin_key_rules_from_any_host() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let (admin, operator) = (
        gate.key("admin", "*", &[]).await?,
        gate.key("operator", "*", &[]).await?,
    );
    for name in ["a", "b"] {
        let mut link = Link::open_with(&gate.served.address, Some(&admin)).await?;
        link.hello(&Who::new(name))
            .await?
            .map_err(anyhow::Error::msg)?;
    }
    let stopped = c3po_guard(&gate, home.path(), &admin, &["stop", "b", "a"]).await?;
    let said = String::from_utf8(stopped.stdout)?;
    assert_eq!(
        said, "Messages between a and b are refused until you allow them.\n",
        "{:?}",
        stopped.stderr
    );
    let listed = c3po_guard(&gate, home.path(), &admin, &["list"]).await?;
    let said = String::from_utf8(listed.stdout)?;
    assert!(said.starts_with("a  b  0 of -  stopped  since "), "{said}");
    let allowed = c3po_guard(&gate, home.path(), &admin, &["allow", "a", "b", "--json"]).await?;
    let pair: Value = serde_json::from_slice(&allowed.stdout)?;
    assert_eq!(
        pair,
        json!({"agents": ["a", "b"], "standing": "open", "count": 0})
    );
    for words in [&["list"][..], &["stop", "a", "b"]] {
        let refused = c3po_guard(&gate, home.path(), &operator, words).await?;
        let said = String::from_utf8(refused.stderr)?;
        assert!(
            refused.status.code() == Some(1) && said.contains("(FORBIDDEN)"),
            "{words:?}: {said}"
        );
    }
    Ok(())
}
