//! A coordinator that could not read the store for a while does not act by the keys from before.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures_util::future::join_all;
use harness::breaker::Breaker;
use harness::eventually::eventually;
use harness::link::Link;
use harness::redis::Redis;
use inside::gate::Gate;
use serde_json::json;

use super::ask;
use super::hosts::{SOON, invited, joined, session};

/// Makes the next machine of the name, with mail for an agent that no session holds. Returns the session of its other agent.
async fn next_machine(gate: &Gate) -> Result<Link> {
    let given = invited(gate, &["--host", "nas"]).await?;
    let (key, host) = joined(gate, &given, "nas", None).await?;
    ensure!(host == "nas", "{host}");
    let (mut bank, _) = session(gate, &key, "bank").await?;
    let (mut peer, _) = session(gate, &key, "peer").await?;
    let message = json!({"target": "bank", "message": "of the new machine"});
    peer.call("send_message", message).await?;
    bank.notify("goodbye", json!({})).await?;
    let _ = bank.hear_close().await;
    Ok(peer)
}

#[tokio::test]
async fn a_renamed_host_has_nothing_of_the_next_one_at_a_coordinator_that_was_cut_off() -> Result<()>
{
    let redis = Redis::start().await?;
    let breaker = Breaker::before(redis.address()).await?;
    let (near, far) = (redis.url(), format!("redis://{}", breaker.address()));
    let gate = Gate::start_with(|config| config.store = near.parse().expect("a store")).await?;
    let cut = Gate::start_with(|config| config.store = far.parse().expect("a store")).await?;
    let (old, _) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    eventually("the key is known at both", SOON, async || {
        let me = ask(&cut, "GET", "/api/v1/me", Some(&old), None, "").await;
        me.ok().filter(|me| me.status == 200)
    })
    .await?;

    breaker.hold();
    gate.ask(&["hosts", "rename", "nas", "attic"]).await?;
    let mut peer = next_machine(&gate).await?;
    let get = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "get_messages", "arguments": {}}});
    // Requests that wait for the store, and ones that come meanwhile.
    let asking = async |first: Duration| {
        tokio::time::sleep(first).await;
        let body = json!({"target": "peer", "message": "of the old one"}).to_string();
        let read = ask(&cut, "GET", "/api/pending", Some(&old), Some("bank"), "").await;
        let path = "/api/v1/messages";
        let sent = ask(&cut, "POST", path, Some(&old), Some("bank"), &body).await;
        let claim = ask(
            &cut,
            "POST",
            "/mcp",
            Some(&old),
            Some("bank"),
            &get.to_string(),
        )
        .await;
        (read, sent, claim)
    };
    let (begun, mut first) = (Instant::now(), Vec::new());
    for each in 0..40 {
        first.push(asking(Duration::from_millis(each * 25)));
    }
    let healing = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        breaker.heal();
    };
    let (answers, ()) = futures_util::join!(join_all(first), healing);
    for (read, sent, claim) in answers {
        let (read, sent) = (read?, sent?);
        ensure!(
            read.status != 200,
            "after {:?}: {}",
            begun.elapsed(),
            read.body
        );
        ensure!(sent.status >= 400, "{}", sent.body);
        // Under its new name it gets an agent of its own.
        let claim = claim?.body;
        ensure!(!claim.contains("of the new machine"), "{claim}");
    }
    let inbox = peer.call("get_messages", json!({})).await?.to_string();
    ensure!(!inbox.contains("of the old one"), "{inbox}");
    Ok(())
}

#[tokio::test]
async fn a_host_that_has_joined_is_accepted_by_every_coordinator_at_once() -> Result<()> {
    let redis = Redis::start().await?;
    let store = redis.url();
    let start = || Gate::start_with(|config| config.store = store.parse().expect("a store"));
    let (gate, other) = (start().await?, start().await?);
    for name in ["nas", "attic", "vm"] {
        let (key, _) = joined(&gate, &invited(&gate, &[]).await?, name, None).await?;
        let me = ask(&other, "GET", "/api/v1/me", Some(&key), None, "").await?;
        ensure!(me.status == 200, "{name}: {} {}", me.status, me.body);
    }
    Ok(())
}
