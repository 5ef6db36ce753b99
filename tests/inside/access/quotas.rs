//! The quota of a key: it applies to every tool, and does not affect other keys.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_coordinator::store::Quota;
use c3po_shared::limits::{AGENTS_PER_KEY, TEXT_MAX};
use futures_util::future::try_join_all;
use harness::link::{Link, Who};
use inside::gate::{Gate, id};
use serde_json::{Value, json};

use super::call;
use crate::triage::{inbox, offer};

const LIMIT: u64 = 60_000;

async fn linked(gate: &Gate, key: &str, name: &str) -> Result<Link> {
    let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
    link.hello(&Who::new(name))
        .await?
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(link)
}

/// Sends texts of 1,000 characters until one is refused. Returns the refusal.
async fn fill(link: &mut Link, to: &str) -> Result<Value> {
    for _ in 0..100 {
        if let Err(refusal) = link
            .try_call(
                "send_message",
                json!({"target": to, "message": "x".repeat(1_000)}),
            )
            .await?
        {
            return Ok(refusal);
        }
    }
    anyhow::bail!("a hundred messages were stored")
}

/// Checks that the refusal names the key with its numbers, and the time at which there is room again.
fn check_refusal(refusal: &Value, key: &str) -> Result<()> {
    assert_eq!(
        (&refusal["code"], &refusal["details"]["limit"]),
        (&json!("QUOTA_EXCEEDED"), &json!(LIMIT))
    );
    let said = refusal["error"].as_str().context("a sentence")?;
    assert!(
        said.contains(key) && said.contains("of 0.0 MB were used") && !said.contains("  "),
        "{said}"
    );
    let (count, left) = (
        refusal["details"]["count"].as_u64(),
        refusal["details"]["left"].as_u64(),
    );
    assert!(
        count
            .zip(left)
            .is_some_and(|(count, left)| count + left == LIMIT),
        "{refusal}"
    );
    let until = refusal["details"]["until"].as_str().context("until when")?;
    assert!(
        refusal["suggestion"]
            .as_str()
            .is_some_and(|said| said.contains(until)),
        "{refusal}"
    );
    Ok(())
}

#[tokio::test]
async fn a_key_stores_no_more_than_its_quota_by_any_tool_and_others_go_on() -> Result<()> {
    let gate = Gate::start_with(|config| config.store_quota = Some(LIMIT)).await?;
    let (greedy, other) = (
        gate.key("agent", "web", &[]).await?,
        gate.key("agent", "*", &[]).await?,
    );
    let (mut web, mut api) = (
        linked(&gate, &greedy, "web").await?,
        linked(&gate, &other, "api").await?,
    );
    let asked = api
        .call("send_message", json!({"target": "web", "message": "?"}))
        .await?;
    let more = api
        .call("send_message", json!({"target": "web", "message": "and?"}))
        .await?;

    let refusal = fill(&mut web, "api").await?;
    check_refusal(&refusal, id(&greedy)?)?;

    // To itself, by broadcast, over HTTP, under a numbered name: the key is the same.
    let long = "x".repeat(3_000);
    assert_eq!(
        web.refusal("send_message", json!({"target": "web", "message": long}))
            .await?,
        "QUOTA_EXCEEDED"
    );
    let copies = web.call("broadcast", json!({"message": long})).await?;
    assert_eq!(
        copies["receipts"][0]["refusal"]["code"], "QUOTA_EXCEEDED",
        "{copies}"
    );
    let sending = json!({"target": "api", "message": long});
    let over_http = call(&gate, Some(&greedy), "web", "send_message", &sending).await?;
    assert_eq!(over_http.1.as_deref(), Some("QUOTA_EXCEEDED"));

    // A reply may exceed the quota a little, but is limited too. The question of a refused reply stays open.
    web.call(
        "reply",
        json!({"message_id": asked["id"], "response": "x".repeat(1_000)}),
    )
    .await?;
    let longer = json!({"message_id": more["id"], "response": "x".repeat(20_000)});
    assert_eq!(web.refusal("reply", longer).await?, "QUOTA_EXCEEDED");
    assert_eq!(
        web.call("get_messages", json!({})).await?["messages"][0]["id"],
        more["id"]
    );
    web.call("ack_messages", json!({"message_ids": [more["id"]]}))
        .await?;
    web.call("set_status", json!({"status": "busy"})).await?;

    api.call("send_message", json!({"target": "web", "message": long}))
        .await?;
    let answered = api
        .call("message_status", json!({"message_id": asked["id"]}))
        .await?;
    assert_eq!(answered["stage"], "answered", "{answered}");
    Ok(())
}

/// Returns the bytes that count for a key, according to the refusal of a message beyond its quota.
async fn used(link: &mut Link) -> Result<u64> {
    let huge = json!({"target": "web", "message": "x".repeat(TEXT_MAX)});
    let refused = link.try_call("send_message", huge).await?;
    let refusal = refused.err().context("a message beyond the quota")?;
    refusal["details"]["count"].as_u64().context("a count")
}

#[tokio::test]
async fn an_offer_of_a_question_counts_for_the_key_of_its_asker() -> Result<()> {
    const TEXT: usize = 6_000;
    let gate = Gate::start_with(|config| {
        config.store_quota = Some(LIMIT);
        let policy = "[triage]\nagents = [\"first@nas\"]\n";
        std::fs::write(config.data_dir.join("policy.toml"), policy).expect("a policy");
    })
    .await?;
    let asking = |length| json!({"question": "x".repeat(length), "wait": false});
    let (of_web, of_api) = (
        gate.key("agent", "web", &[]).await?,
        gate.key("agent", "api", &[]).await?,
    );
    let (mut web, mut api) = (
        linked(&gate, &of_web, "web").await?,
        linked(&gate, &of_api, "api").await?,
    );
    api.call("ask_user", asking(TEXT)).await?;
    let without = used(&mut api).await?;
    let of_first = gate.key("agent", "*", &["--host", "nas"]).await?;
    let mut first = linked(&gate, &of_first, "first").await?;
    let asked = web.call("ask_user", asking(TEXT)).await?;
    let asked = asked["id"].as_str().context("an id")?;
    offer(&mut first, asked).await?;
    let with = used(&mut web).await?;
    let size = u64::try_from(TEXT)?;
    assert!(with > without + size, "{with} and {without} bytes");

    // The next question has room, and its offer has none: people get it at once.
    let length = (LIMIT - with) * 4 / 5 * size / without;
    let asked = web
        .call("ask_user", asking(usize::try_from(length)?))
        .await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let offered = inbox(&mut first).await?;
    assert!(offered.iter().all(|offer| offer["reply_to"] != asked["id"]));
    Ok(())
}

#[tokio::test]
async fn clients_without_a_key_share_one_quota() -> Result<()> {
    let gate = Gate::start_with(|config| {
        config.is_open = true;
        config.store_quota = Some(LIMIT);
    })
    .await?;
    let (mut a, mut b) = (gate.served.join("a").await?, gate.served.join("b").await?);
    let refusal = fill(&mut a, "b").await?;
    assert!(
        refusal["error"]
            .as_str()
            .is_some_and(|said| said.contains("clients without a key")),
        "{refusal}"
    );
    let long = json!({"target": "a", "message": "x".repeat(2_000)});
    assert_eq!(
        b.refusal("send_message", long.clone()).await?,
        "QUOTA_EXCEEDED"
    );
    let key = gate.key("agent", "c", &[]).await?;
    linked(&gate, &key, "c")
        .await?
        .call("send_message", long)
        .await?;
    Ok(())
}

#[tokio::test]
async fn one_agent_too_many_of_a_key_is_refused_at_hello_with_the_command_that_makes_room()
-> Result<()> {
    let gate = Gate::start().await?;
    let (key, other) = (
        gate.key("agent", "*", &[]).await?,
        gate.key("agent", "*", &[]).await?,
    );
    let quota = Quota {
        is_of_key: true,
        key: id(&key)?.to_owned(),
        bytes: None,
        agents: Some(AGENTS_PER_KEY),
    };
    let store = &gate.served.store;
    let names = (0..AGENTS_PER_KEY)
        .map(|number| format!("a{number}").parse())
        .collect::<Result<Vec<_>, _>>()?;
    for some in names.chunks(100) {
        try_join_all(
            some.iter()
                .map(|name| store.introduce(name, Some("somebody"), &quota)),
        )
        .await?;
    }
    let mut link = Link::open_with(&gate.served.address, Some(&key)).await?;
    let refusal = link
        .hello(&Who::new("web"))
        .await?
        .expect_err("it is one too many")["data"]
        .clone();
    let expected = (json!("QUOTA_EXCEEDED"), json!(AGENTS_PER_KEY));
    assert_eq!(
        (refusal["code"].clone(), refusal["details"]["limit"].clone()),
        expected
    );
    let suggestion = refusal["suggestion"].as_str().context("a suggestion")?;
    assert!(suggestion.contains("`c3po agents rm NAME`"), "{refusal}");
    linked(&gate, &key, "a7").await?;
    linked(&gate, &other, "web").await?;
    gate.ask(&["agents", "rm", "a9"]).await?;
    linked(&gate, &key, "api").await?;
    Ok(())
}
