//! Names of deleted agents and of persons: no other host gets them, or the messages that are kept of them.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use c3po_coordinator::store::{Key, Quota};
use c3po_shared::ids::CallId;
use c3po_shared::limits::KEYS_MAX;
use c3po_shared::time::Timestamp;
use c3po_shared::wire::CLOSE_TAKEN_OVER;
use futures_util::future::join_all;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use inside::gate::Gate;
use serde_json::{Value, json};

use super::hosts::{SOON, invited, joined, session};
use super::{ask, call, code};

/// Returns a coordinator with the keys of two hosts.
pub(super) async fn two_hosts() -> Result<(Gate, String, String)> {
    let gate = Gate::start().await?;
    let (nas, laptop) = nas_and_laptop(&gate).await?;
    Ok((gate, nas, laptop))
}

/// Returns the keys of two hosts of the coordinator.
pub(super) async fn nas_and_laptop(gate: &Gate) -> Result<(String, String)> {
    let (nas, _) = joined(gate, &invited(gate, &[]).await?, "nas", None).await?;
    let (laptop, _) = joined(gate, &invited(gate, &[]).await?, "laptop", None).await?;
    Ok((nas, laptop))
}

/// Ends the session, and waits until its agent is forgotten.
async fn forgotten(gate: &Gate, link: &mut Link, key: &str, name: &str) -> Result<()> {
    link.notify("goodbye", json!({})).await?;
    let is_gone = async || {
        let agents = ask(gate, "GET", "/api/agents", Some(key), None, "")
            .await
            .ok()?;
        (!agents.body.contains(&format!("\"{name}\""))).then_some(())
    };
    eventually("the agent is forgotten", SOON, is_gone).await
}

#[tokio::test]
async fn another_host_gets_neither_the_name_of_a_forgotten_agent_nor_its_messages() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let (mut first, _) = session(&gate, &nas, "web").await?;
    let (mut second, welcome) = session(&gate, &nas, "web").await?;
    assert_eq!(welcome["agent_id"], "web-2");
    let question = json!({"target": "web", "title": "of the nas", "message": "of the nas alone"});
    let asked = second.call("send_message", question).await?["id"].clone();
    forgotten(&gate, &mut second, &nas, "web-2").await?;

    for path in ["/api/sent", "/api/pending"] {
        let answer = ask(&gate, "GET", path, Some(&laptop), Some("web-2"), "").await?;
        assert_eq!(
            (answer.status, code(&answer).as_deref()),
            (403, Some("FORBIDDEN")),
            "{path}: {}",
            answer.body
        );
        let head = ask(&gate, "HEAD", path, Some(&laptop), Some("web-2"), "").await?;
        assert_eq!(head.status, 403, "{path}");
    }
    let mut person = Link::open_with(&gate.served.address, Some(&laptop)).await?;
    let refused = person
        .hello(&Who::person("web-2"))
        .await?
        .expect_err("it is of the nas");
    assert_eq!(refused["data"]["code"], "FORBIDDEN", "{refused}");
    let (mut other, welcome) = session(&gate, &laptop, "web").await?;
    assert_eq!(welcome["agent_id"], "web-3");
    assert_eq!(
        other
            .refusal("get_thread", json!({"message_id": asked}))
            .await?,
        "MESSAGE_NOT_FOUND"
    );

    // The next session of the same host gets the name, and the answer.
    let (mut heir, welcome) = session(&gate, &nas, "web").await?;
    assert_eq!(welcome["agent_id"], "web-2");
    first
        .call(
            "reply",
            json!({"message_id": asked, "response": "for the nas"}),
        )
        .await?;
    let waited = heir
        .call("wait_for_message", json!({"timeout": 10}))
        .await?;
    assert_eq!(waited["response"], "for the nas", "{waited}");
    Ok(())
}

#[tokio::test]
async fn a_command_that_still_runs_gets_nothing_of_the_next_owner_of_its_name() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let mut links = Vec::new();
    let follows = json!({"person": true, "reach": ["terminal"]});
    for more in [json!({"person": true}), json!({"person": true}), follows] {
        let mut link = Link::open_with(&gate.served.address, Some(&nas)).await?;
        let who = Who {
            more,
            ..Who::new("cron")
        };
        link.hello(&who)
            .await?
            .map_err(|refused| anyhow!("{refused}"))?;
        links.push(link);
    }
    let [mut asks, mut waits, mut follows] = links.try_into().map_err(|_| anyhow!("three"))?;
    let wait = waits
        .begin(CallId::fresh(), "wait_for_message", json!({}))
        .await?;
    gate.ask(&["agents", "rm", "cron"]).await?;
    assert_eq!(asks.refusal("get_messages", json!({})).await?, "CONFLICT");
    let (mut next, welcome) = session(&gate, &laptop, "cron").await?;
    assert_eq!(welcome["agent_id"], "cron");
    next.notify("goodbye", json!({})).await?;
    let (mut sender, _) = session(&gate, &laptop, "web").await?;
    let secret = json!({"target": "cron", "message": "for the laptop"});
    sender.call("send_message", secret).await?;

    assert_eq!(follows.hear_close().await?, CLOSE_TAKEN_OVER);
    assert!(follows.heard.is_empty(), "{:?}", follows.heard);
    let waited = waits.end(wait).await?.expect_err("it is of the laptop");
    assert_eq!(waited["data"]["code"], "FORBIDDEN", "{waited}");
    assert_eq!(asks.refusal("get_messages", json!({})).await?, "FORBIDDEN");
    Ok(())
}

#[tokio::test]
async fn a_wait_over_mcp_gets_nothing_of_the_next_owner_of_its_name() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let arguments = json!({"timeout": 30});
    let waits = call(&gate, Some(&nas), "cron", "wait_for_message", &arguments);
    let is_taken = async {
        let key = Some(nas.as_str());
        let is_there = async || {
            let agents = ask(&gate, "GET", "/api/agents", key, None, "").await.ok()?;
            agents.body.contains("\"cron\"").then_some(())
        };
        eventually("the wait has begun", SOON, is_there).await?;
        let left = ask(&gate, "POST", "/api/unregister", key, Some("cron"), "").await?;
        ensure!(left.status == 200, "{}", left.body);
        gate.ask(&["agents", "rm", "cron"]).await?;
        let (_next, welcome) = session(&gate, &laptop, "cron").await?;
        ensure!(welcome["agent_id"] == "cron", "{welcome}");
        let (mut sender, _) = session(&gate, &laptop, "web").await?;
        let secret = json!({"target": "cron", "message": "for the laptop"});
        sender.call("send_message", secret).await
    };
    let (waited, taken) = tokio::join!(waits, is_taken);
    taken?;
    assert_eq!(waited?, (200, Some("CONFLICT".to_owned())));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_as_a_name_see_nothing_of_a_host_that_begins_to_use_it() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let (mut peer, _) = session(&gate, &laptop, "peer").await?;
    let agents = ask(&gate, "GET", "/api/agents", Some(&nas), Some("peer"), "").await?;
    assert_eq!(agents.status, 200, "it reads nothing as that agent");
    for round in 0..4 {
        let name = format!("job{round}");
        let is_over = AtomicBool::new(false);
        let reads = (0..40).map(async |number| -> Result<bool> {
            let path = ["/api/sent", "/api/v1/messages"][number % 2];
            let mut has_read = false;
            while !is_over.load(Ordering::Relaxed) {
                let read = ask(&gate, "GET", path, Some(&nas), Some(&name), "").await?;
                has_read |= read.body.contains("SECRET");
            }
            Ok(has_read)
        });
        let uses = async {
            let body = json!({"target": "peer", "title": "SECRET", "message": "SECRET"});
            let (path, key) = ("/api/v1/messages", Some(laptop.as_str()));
            let sent = ask(&gate, "POST", path, key, Some(&name), &body.to_string()).await?;
            ensure!(sent.status == 201, "{}", sent.body);
            let mail = json!({"target": name, "message": "SECRET"});
            peer.call("send_message", mail).await?;
            is_over.store(true, Ordering::Relaxed);
            Ok::<_, anyhow::Error>(())
        };
        let (reads, used) = tokio::join!(join_all(reads), uses);
        used?;
        let reads = reads.into_iter().collect::<Result<Vec<_>>>()?;
        assert!(!reads.contains(&true), "round {round}: {reads:?}");
    }
    Ok(())
}

#[tokio::test]
async fn no_session_gets_the_name_of_a_hosts_person() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let hello = async |key: &str, who: Who| -> Result<Result<Value, Value>> {
        let mut link = Link::open_with(&gate.served.address, Some(key)).await?;
        Ok(link
            .hello(&who)
            .await?
            .map(|welcome| welcome["agent_id"].clone()))
    };
    let person = |name: &str| Who {
        more: json!({"person": true}),
        ..Who::new(name)
    };
    for key in [&nas, &laptop] {
        for (name, expected) in [
            ("nas-cli", "nas-cli-2"),
            ("NAS-CLI", "NAS-CLI-2"),
            ("my-cli", "my-cli-2"),
        ] {
            let (mut link, welcome) = session(&gate, key, name).await?;
            assert_eq!(welcome["agent_id"], expected);
            link.notify("goodbye", json!({})).await?;
            let removed = eventually("the session is over", SOON, async || {
                gate.ask(&["agents", "rm", expected]).await.ok()
            });
            removed.await?;
        }
    }
    let refused = hello(&laptop, person("nas-cli"))
        .await?
        .err()
        .context("it is of the nas")?;
    assert_eq!(
        refused["data"]["error"],
        "nas-cli belongs to the host nas, and this is laptop"
    );
    assert_eq!(hello(&nas, person("human")).await?, Ok(json!("nas-cli")));

    // Nor the name of the person of a host that joins later.
    let refused = hello(&laptop, person("desk-cli")).await?;
    let refused = refused.err().context("it is for a host")?;
    assert_eq!(refused["data"]["code"], "FORBIDDEN");
    let (desk, host) = joined(&gate, &invited(&gate, &[]).await?, "desk", None).await?;
    assert_eq!(
        (host.as_str(), hello(&desk, person("human")).await?),
        ("desk", Ok(json!("desk-cli")))
    );
    Ok(())
}

/// Makes an agent of the laptop with the name of a host's person, as an earlier build did.
async fn made_earlier(gate: &Gate, name: &str) -> Result<()> {
    let store = &gate.served.store;
    let quota = Quota::default();
    store
        .introduce(&name.parse()?, Some("laptop"), &quota)
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_name_that_stays_reserved_takes_no_host_that_joins_later_its_person() -> Result<()> {
    let (gate, _, laptop) = two_hosts().await?;
    for name in ["desk-cli", "SHED-CLI", "BARN-CLI", "loft-cli."] {
        made_earlier(&gate, name).await?;
        if ["BARN-CLI", "loft-cli."].contains(&name) {
            continue;
        }
        let body = json!({"agent_id": name}).to_string();
        let path = "/api/agents/remove";
        let removed = ask(&gate, "POST", path, Some(&laptop), None, &body).await?;
        assert_eq!(removed.status, 200, "{}", removed.body);
    }
    for name in ["desk", "shed", "barn", "loft"] {
        let (key, host) = joined(&gate, &invited(&gate, &[]).await?, name, None).await?;
        assert_eq!(host, format!("{name}-2"));
        let mut person = Link::open_with(&gate.served.address, Some(&key)).await?;
        let welcome = person.hello(&Who::person("human")).await?;
        let welcome = welcome.map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
        assert_eq!(welcome["agent_id"], format!("{name}-2-cli"));
    }
    Ok(())
}

#[tokio::test]
async fn the_name_of_a_persons_agent_stays_reserved_and_so_does_every_spelling() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let mut person = Link::open_with(&gate.served.address, Some(&nas)).await?;
    person
        .hello(&Who::person("desk"))
        .await?
        .ok()
        .context("a person may act as an agent of its host")?;
    let question = json!({"target": "desk", "message": "of the nas alone"});
    let asked = person.call("send_message", question).await?["id"].clone();
    person.notify("goodbye", json!({})).await?;
    let body = json!({"agent_id": "desk"}).to_string();
    let removed = async || {
        let answer = ask(&gate, "POST", "/api/agents/remove", Some(&nas), None, &body)
            .await
            .ok()?;
        (answer.status == 200).then_some(())
    };
    eventually("the host removes its agent", SOON, removed).await?;

    let sent = ask(&gate, "GET", "/api/sent", Some(&laptop), Some("desk"), "").await?;
    assert_eq!(
        (sent.status, code(&sent).as_deref()),
        (403, Some("FORBIDDEN")),
        "{}",
        sent.body
    );
    for (name, expected) in [("desk", "desk-2"), ("DESK", "DESK-3")] {
        let (mut other, welcome) = session(&gate, &laptop, name).await?;
        assert_eq!(welcome["agent_id"], expected);
        assert_eq!(
            other
                .refusal("get_thread", json!({"message_id": asked}))
                .await?,
            "MESSAGE_NOT_FOUND"
        );
    }
    let (_own, welcome) = session(&gate, &nas, "desk").await?;
    assert_eq!(welcome["agent_id"], "desk");
    Ok(())
}

#[tokio::test]
async fn another_spelling_of_a_name_by_another_host_leads_to_a_number() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let (_first, welcome) = session(&gate, &laptop, "WEB").await?;
    assert_eq!(welcome["agent_id"], "WEB");
    let (_second, welcome) = session(&gate, &nas, "web").await?;
    assert_eq!(welcome["agent_id"], "web-2");
    let mut own = Link::open_with(&gate.served.address, Some(&laptop)).await?;
    let refused = own
        .hello(&Who::new("Web"))
        .await?
        .err()
        .context("a typing error of the same host")?;
    assert_eq!(refused["data"]["code"], "CONFLICT", "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_host_that_takes_the_former_name_of_another_inherits_none_of_its_reservations()
-> Result<()> {
    let (gate, nas, _) = two_hosts().await?;
    let (_first, _) = session(&gate, &nas, "web").await?;
    let (mut second, _) = session(&gate, &nas, "web").await?;
    second
        .call(
            "send_message",
            json!({"target": "web", "message": "of the nas alone"}),
        )
        .await?;
    forgotten(&gate, &mut second, &nas, "web-2").await?;
    let open = invited(&gate, &["--host", "nas"]).await?;
    gate.ask(&["hosts", "rename", "nas", "attic"]).await?;
    // Only an administrator gives the name away, and not by an invite from before.
    ensure!(joined(&gate, &open, "nas", None).await.is_err());
    let (_, host) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    assert_eq!(host, "nas-2");
    let given = invited(&gate, &["--host", "nas"]).await?;
    let (other, host) = joined(&gate, &given, "nas", None).await?;
    assert_eq!(host, "nas");
    let sent = ask(&gate, "GET", "/api/sent", Some(&other), Some("web-2"), "").await?;
    assert_eq!(
        (sent.status, code(&sent).as_deref()),
        (403, Some("FORBIDDEN")),
        "{}",
        sent.body
    );
    let (_one, welcome) = session(&gate, &nas, "web").await?;
    assert_eq!(welcome["agent_id"], "web");
    let (_two, welcome) = session(&gate, &nas, "web").await?;
    assert_eq!(welcome["agent_id"], "web-2");
    Ok(())
}

#[tokio::test]
async fn a_host_is_merged_into_one_with_keys_only_on_purpose() -> Result<()> {
    let (gate, nas, laptop) = two_hosts().await?;
    let (_web, _) = session(&gate, &nas, "web").await?;
    let refused = gate.ask(&["hosts", "rename", "nas", "laptop"]).await;
    let refused = refused.expect_err("the laptop has a key").to_string();
    let id = &laptop["c3po_".len()..][..8];
    ensure!(
        refused.contains(id) && refused.contains("--merge"),
        "{refused}"
    );
    let said = gate
        .ask(&["hosts", "rename", "nas", "laptop", "--merge"])
        .await?;
    ensure!(said.contains("1 agents and 1 keys"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_host_whose_names_all_have_persons_elsewhere_is_refused_at_once() -> Result<()> {
    let (gate, _, _) = two_hosts().await?;
    for number in 1..=40 {
        let host = if number == 1 {
            "desk".to_owned()
        } else {
            format!("desk-{number}")
        };
        made_earlier(&gate, &format!("{host}-cli")).await?;
    }
    let code = invited(&gate, &[]).await?;
    let body = json!({"code": code, "host": "desk"}).to_string();
    let answer = ask(&gate, "POST", "/api/join", None, None, &body).await?;
    assert_eq!(answer.status, 409, "{}", answer.body);
    let admin = gate.key("admin", "*", &[]).await?;
    // The agents with such names are its own.
    for (from, to, status) in [
        ("laptop", "desk", 200),
        ("nas", "desk-7", 409),
        ("nas", "Desk", 409),
    ] {
        let body = json!({"from": from, "to": to}).to_string();
        let path = "/api/hosts/rename";
        let renamed = ask(&gate, "POST", path, Some(&admin), None, &body).await?;
        assert_eq!(renamed.status, status, "{to}: {}", renamed.body);
    }
    Ok(())
}

#[tokio::test]
async fn a_key_that_has_ended_changes_no_host_no_agent_and_no_pair() -> Result<()> {
    let (gate, nas, _laptop) = two_hosts().await?;
    let (mut web, _) = session(&gate, &nas, "web").await?;
    web.notify("goodbye", json!({})).await?;
    let admin = gate.key("admin", "*", &[]).await?;
    // It ends at another coordinator, and this one has not noticed that.
    let store = &gate.served.store;
    let mut keys = store.keys().await?.into_iter();
    let key = keys.find(|key| admin.contains(&key.id));
    let key = key.context("its record")?;
    let ended = Key {
        revoked_at: Some(Timestamp::now()),
        revision: key.revision + 1,
        ..key
    };
    ensure!(store.put_key(&ended, None, KEYS_MAX, None).await?);
    for (path, body) in [
        ("/api/hosts/rename", json!({"from": "nas", "to": "attic"})),
        ("/api/agents/remove", json!({"agent_id": "web"})),
        ("/api/guard/stop", json!({"agents": ["web", "api"]})),
    ] {
        let refused = ask(&gate, "POST", path, Some(&admin), None, &body.to_string()).await?;
        assert_eq!(refused.status, 401, "{path}: {}", refused.body);
    }
    let agent = store.agent(&"web".parse()?).await?.context("it stays")?;
    assert_eq!(agent.host.as_deref(), Some("nas"));
    Ok(())
}

#[tokio::test]
async fn names_from_before_the_keys_move_with_their_host() -> Result<()> {
    let gate = Gate::start_with(|config| config.is_open = true).await?;
    let mut before = Link::open_with(&gate.served.address, None).await?;
    let who = Who {
        more: json!({"host": "nas"}),
        ..Who::new("deploy")
    };
    ensure!(before.hello(&who).await?.is_ok());
    before.notify("goodbye", json!({})).await?;
    let _ = before.hear_close().await;
    let (nas, host) = joined(&gate, &invited(&gate, &[]).await?, "nas", None).await?;
    ensure!(host == "nas", "{host}");
    let body = json!({"agent_id": "deploy"}).to_string();
    eventually("the agent is removed", SOON, async || {
        let path = "/api/agents/remove";
        let answer = ask(&gate, "POST", path, Some(&nas), None, &body).await;
        answer.ok().filter(|answer| answer.status == 200)
    })
    .await?;

    gate.ask(&["hosts", "rename", "nas", "attic"]).await?;
    let given = invited(&gate, &["--host", "nas"]).await?;
    let (next, host) = joined(&gate, &given, "nas", None).await?;
    ensure!(host == "nas", "{host}");
    let (_of_next, welcome) = session(&gate, &next, "deploy").await?;
    ensure!(welcome["agent_id"] == "deploy-2", "{welcome}");
    let (_of_nas, welcome) = session(&gate, &nas, "deploy").await?;
    ensure!(welcome["agent_id"] == "deploy", "{welcome}");
    Ok(())
}
