//! A key of a new host counts only once the host has its final name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use c3po_shared::limits::AUDIT_PAGE_MAX;
use futures_util::future::try_join_all;
use harness::breaker::Breaker;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use harness::redis::Redis;
use inside::gate::Gate;
use serde_json::{Value, json};

use super::ask;
use super::hosts::{SOON, invited, joined, session};

/// Returns the hosts that a coordinator takes the key for once it knows the key, until it has looked at the keys again.
async fn hosts_at(gate: &Gate, key: &str) -> Result<Vec<String>> {
    let me = async || ask(gate, "GET", "/api/v1/me", Some(key), None, "").await;
    let known = eventually("the key is known", SOON, async || {
        me().await.ok().filter(|me| me.status == 200)
    });
    let mut hosts = vec![host_of_me(&known.await?.body)?];
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(120)).await;
        hosts.push(host_of_me(&me().await?.body)?);
    }
    Ok(hosts)
}

fn host_of_me(body: &str) -> Result<String> {
    let me: Value = serde_json::from_str(body)?;
    let host = me["data"]["host"].as_str().context(body.to_owned())?;
    Ok(host.to_owned())
}

/// Returns the ids of the keys that joined, one for each entry in the audit.
async fn joins(gate: &Gate) -> Result<Vec<String>> {
    let (mut keys, mut after) = (Vec::new(), 0);
    loop {
        let page = gate.served.store.audit(after, AUDIT_PAGE_MAX).await?;
        let Some(last) = page.last() else {
            keys.sort();
            return Ok(keys);
        };
        after = last.position;
        let joined = page
            .into_iter()
            .filter(|entry| entry.verb.as_deref() == Some("joined"));
        keys.extend(joined.filter_map(|entry| entry.key));
    }
}

fn id_of(key: &str) -> String {
    key["c3po_".len()..][..8].to_owned()
}

/// Lets two machines join under one name, one at each coordinator: the one at the slower coordinator finds the name free before
/// the other has it. Returns their keys, each of which acts as one host alone.
async fn both_join(one: &Gate, other: &Gate, name: &str, begin: Duration) -> Result<[String; 2]> {
    let (first, second) = (invited(one, &[]).await?, invited(one, &[]).await?);
    let at_other = async {
        tokio::time::sleep(begin).await;
        let (key, host) = joined(other, &first, name, None).await?;
        anyhow::Ok((hosts_at(one, &key).await?, key, host))
    };
    let at_one = async {
        tokio::time::sleep(begin + Duration::from_millis(60)).await;
        let (key, host) = joined(one, &second, name, None).await?;
        anyhow::Ok((hosts_at(other, &key).await?, key, host))
    };
    let (at_other, at_one) = futures_util::join!(at_other, at_one);
    let (at_other, at_one) = (at_other?, at_one?);
    ensure!(at_other.2 != at_one.2, "both are {}", at_one.2);
    for (hosts, _, host) in [&at_other, &at_one] {
        ensure!(hosts.iter().all(|one| one == host), "{host} is {hosts:?}");
    }
    Ok([at_other.1, at_one.1])
}

#[tokio::test]
async fn a_key_acts_as_the_host_of_its_reply_alone_at_every_coordinator() -> Result<()> {
    let redis = Redis::start().await?;
    let breaker = Breaker::before(redis.address()).await?;
    let (near, far) = (redis.url(), format!("redis://{}", breaker.address()));
    let one = Gate::start_with(|config| config.store = near.parse().expect("a store")).await?;
    let other = Gate::start_with(|config| config.store = far.parse().expect("a store")).await?;
    breaker.delay(Duration::from_millis(3));
    let mut ids = Vec::new();
    for batch in 0..5 {
        let pairs = (0..4).map(async |pair| {
            let name = format!("n{batch}x{pair}");
            both_join(&one, &other, &name, Duration::from_millis(pair * 100)).await
        });
        for keys in try_join_all(pairs).await? {
            ids.extend(keys.iter().map(|key| id_of(key)));
        }
    }
    ids.sort();
    assert_eq!(joins(&one).await?, ids);
    Ok(())
}

#[tokio::test]
async fn machines_that_join_one_coordinator_at_once_have_names_of_their_own() -> Result<()> {
    let gate = Gate::start().await?;
    let mut ids = Vec::new();
    for round in 0..5 {
        let name = format!("n{round}");
        let (first, second) = (invited(&gate, &[]).await?, invited(&gate, &[]).await?);
        let (one, other) = futures_util::join!(
            joined(&gate, &first, &name, None),
            joined(&gate, &second, &name, None)
        );
        let (one, other) = (one?, other?);
        ensure!(one.1 != other.1, "both are {}", one.1);
        for (key, host) in [one, other] {
            let hosts = hosts_at(&gate, &key).await?;
            ensure!(hosts.iter().all(|one| *one == host), "{host} is {hosts:?}");
            ids.push(id_of(&key));
        }
    }
    ids.sort();
    assert_eq!(joins(&gate).await?, ids);
    let listed: Value = serde_json::from_str(&gate.ask(&["keys", "list", "--json"]).await?)?;
    let keys = listed["keys"].as_array().context("keys")?;
    ensure!(keys.iter().all(|key| key["state"] == "valid"), "{listed}");
    Ok(())
}

#[tokio::test]
async fn a_host_is_renamed_to_one_with_agents_only_on_purpose() -> Result<()> {
    let gate = Gate::start().await?;
    let (nas, _) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (old, _) = joined(&gate, &invited(&gate, &[]).await?, "old", None).await?;
    for name in ["web", "api"] {
        let (mut link, _) = session(&gate, &old, name).await?;
        link.notify("goodbye", json!({})).await?;
        let _ = link.hear_close().await;
    }
    let (_db, _) = session(&gate, &nas, "db").await?;
    gate.ask(&["keys", "revoke", &id_of(&old)]).await?;
    let refused = async |told: &str| {
        let refused = gate.ask(&["hosts", "rename", "nas", "old"]).await;
        let refused = refused.expect_err("its machine is another").to_string();
        ensure!(
            refused.contains(told) && refused.contains("--merge"),
            "{refused}"
        );
        Ok(())
    };
    refused("the host old has 2 agents already").await?;
    let store = &gate.served.store;
    for (name, told) in [
        ("web", "the host old has 1 agent already"),
        ("api", "the host old has names of deleted agents already"),
    ] {
        store.remove(&name.parse()?, None, false, None).await?;
        refused(told).await?;
    }
    let merged = gate.ask(&["hosts", "rename", "nas", "old", "--merge"]);
    let said = merged.await?;
    ensure!(said.contains("1 agents and 1 keys"), "{said}");
    let me = ask(&gate, "GET", "/api/v1/me", Some(&nas), None, "").await?;
    assert_eq!(host_of_me(&me.body)?, "old");
    Ok(())
}

#[tokio::test]
async fn a_host_gets_the_name_of_one_whose_keys_have_ended_only_by_a_merge() -> Result<()> {
    let gate = Gate::start().await?;
    joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (lost, host) = joined(&gate, &invited(&gate, &[]).await?, "lost", None).await?;
    ensure!(host == "lost", "{host}");
    gate.ask(&["keys", "revoke", &id_of(&lost)]).await?;
    let refused = gate.ask(&["hosts", "rename", "nas", "lost"]).await;
    let refused = refused.expect_err("it was another host's").to_string();
    ensure!(
        refused.contains("messages that were sent as the host lost"),
        "{refused}"
    );
    gate.ask(&["hosts", "rename", "nas", "lost", "--merge"])
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_rename_of_no_host_changes_nothing_and_a_former_name_does_not_keep_others_like_it()
-> Result<()> {
    let gate = Gate::start().await?;
    joined(&gate, &invited(&gate, &[]).await?, "MacBook", None).await?;
    let open = invited(&gate, &["--host", "attic"]).await?;
    let refused = gate.ask(&["hosts", "rename", "attic", "cellar"]).await;
    let refused = refused.expect_err("it has not joined").to_string();
    ensure!(refused.contains("belongs to the host attic"), "{refused}");
    let (_, host) = joined(&gate, &open, "attic", None).await?;
    ensure!(host == "attic", "{host}");
    for (from, to) in [("MacBook", "macbook"), ("macbook", "work")] {
        gate.ask(&["hosts", "rename", from, to]).await?;
    }
    gate.ask(&["hosts", "rename", "work", "macbook", "--merge"])
        .await?;
    Ok(())
}

/// The proxy repeats a call whose answer was lost with the link. It was refused with "nothing was sent".
#[tokio::test]
async fn a_call_that_is_repeated_after_its_host_was_renamed_is_the_same_call() -> Result<()> {
    let gate = Gate::start().await?;
    let (nas, _) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (_db, _) = session(&gate, &nas, "db").await?;
    let (who, call) = (Who::new("web"), CallId::fresh());
    let send = async || {
        let mut web = Link::open_with(&gate.served.address, Some(&nas)).await?;
        web.hello(&who).await?.map_err(anyhow::Error::msg)?;
        let arguments = json!({"target": "db", "message": "once"});
        let sent = web.begin(call, "send_message", arguments).await?;
        web.end(sent).await?.map_err(anyhow::Error::msg)
    };
    let first = send().await?;
    assert_eq!(first["from_host"], "nas");
    gate.ask(&["hosts", "rename", "nas", "attic"]).await?;
    let again = send().await?;
    assert_eq!(
        (&again["id"], &again["from_host"]),
        (&first["id"], &json!("nas"))
    );
    Ok(())
}

/// It was refused with `AGENT_NOT_FOUND`, so that a model sent its message once more.
#[tokio::test]
async fn a_call_that_is_repeated_after_its_target_has_changed_is_the_same_call() -> Result<()> {
    let gate = Gate::start().await?;
    let (nas, _) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    let (laptop, _) = joined(&gate, &invited(&gate, &[]).await?, "laptop", None).await?;
    let ((mut db, _), (mut web, _)) = (
        session(&gate, &nas, "db").await?,
        session(&gate, &laptop, "web").await?,
    );
    let call = async |link: &mut Link, id, tool, arguments| {
        let begun = link.begin(id, tool, arguments).await?;
        let ended = link.end(begun).await?;
        ended.map_err(anyhow::Error::msg)
    };
    let (to_role, to_host) = (CallId::fresh(), CallId::fresh());
    let send = async |web: &mut Link, id, target| {
        let message = json!({"target": target, "message": "once"});
        call(web, id, "send_message", message).await
    };
    let mut register = async |role| {
        let role = json!({"role": role});
        call(&mut db, CallId::fresh(), "register_agent", role).await
    };
    register("keeper").await?;
    let copies = send(&mut web, to_role, "@keeper").await?;
    register("guest").await?;
    let again = send(&mut web, to_role, "@keeper").await?;
    let message = "/receipts/0/message_id";
    assert_eq!(again.pointer(message), copies.pointer(message));

    let sent = send(&mut web, to_host, "db@nas").await?;
    gate.ask(&["hosts", "rename", "nas", "attic"]).await?;
    let again = send(&mut web, to_host, "db@nas").await?;
    assert_eq!(again["id"], sent["id"]);
    Ok(())
}
