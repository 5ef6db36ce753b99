//! The audit log: all events in order, with actors and reasons, and without any text of a message.

mod commands;

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::Result;
use c3po_coordinator::store::Selection;
use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::time::Timestamp;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::redis::Redis;
use inside::served::Served;
use serde_json::{Value, json};

/// How long an entry may take to be written, on a machine that builds at the same time.
const WRITTEN: Duration = Duration::from_secs(10);
/// A text that no entry may contain: it is in every text of the scenario.
const SECRET: &str = "hunter2";

/// Returns an entry in short form: event, actor, target and the distinguishing fields.
fn short(entry: &Value) -> String {
    let words = ["event", "agent", "to", "verb", "stage", "via", "why"];
    let words = words.iter().filter_map(|word| entry[word].as_str());
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the audit over REST without changes of states, which come at their own time, when it has at least that many entries.
async fn lines(served: &Served, query: &str, count: usize) -> Result<(Vec<Value>, String)> {
    let address = served.address.parse()?;
    let mut last = String::new();
    let found = eventually("everything is written", WRITTEN, async || {
        let answer = http::get(address, &format!("/api/audit?limit=1000{query}"))
            .await
            .ok()?;
        let page: Value = serde_json::from_str(&answer.body).ok()?;
        last.clone_from(&answer.body);
        let mut entries = page["entries"].as_array()?.clone();
        entries.retain(|entry| entry["event"] != "status_changed");
        (entries.len() >= count).then_some(entries)
    });
    let found = found.await;
    Ok((found.map_err(|error| error.context(last.clone()))?, last))
}

/// Asks, reads, answers, is denied, renames itself and leaves. Returns the link of the asker, which stays open.
async fn scenario(served: &Served) -> Result<Link> {
    let mut a = served.join("a").await?;
    // Messages to `a` are never confirmed by its host, so that nothing depends on the time of the confirmation.
    a.accepts = false;
    let mut b = served.join("b").await?;
    let text = format!("the password is {SECRET}");
    let asked = a
        .call(
            "send_message",
            json!({"target": "b", "message": text, "title": text, "context": text}),
        )
        .await?;
    let id = asked["id"].as_str().unwrap_or_default();
    b.hear(|frame| frame["method"] == "deliver").await?;
    let on_host =
        async |link: &mut Link| link.call("message_status", json!({"message_id": id})).await;
    eventually("it is on the host", WRITTEN, async || {
        on_host(&mut a)
            .await
            .ok()
            .filter(|status| status["stage"] == "on_host")
    })
    .await?;
    b.receipt(&[id], "in_session", "hook").await?;
    b.receipt(&[id], "in_session", "hook").await?;
    b.receipt(&["b::a::00000001", id], "seen", "hook").await?;
    b.call("reply", json!({"message_id": id, "response": text}))
        .await?;
    let denied = json!({"target": "vault", "message": text});
    assert_eq!(
        a.refusal("send_message", denied).await?,
        "FORBIDDEN_BY_POLICY"
    );
    b.call("register_agent", json!({"name": "c", "description": text}))
        .await?;
    b.notify("goodbye", json!({})).await?;
    Ok(a)
}

const RULES: &str = r#"
[[rule]]
from = "*"
to = "vault"
verb = "message"
effect = "deny"
reason = "it is a vault"
"#;

async fn served(store: Option<&Redis>) -> Result<Served> {
    let place = tempfile::TempDir::new()?.keep();
    fs::write(place.join("policy.toml"), RULES)?;
    let address = store.map(|redis| redis.url().parse()).transpose()?;
    Served::start_with(|config| {
        config.policy = Some(place.join("policy.toml"));
        config.store = address.unwrap_or_else(|| config.store.clone());
    })
    .await
}

async fn check(served: &Served) -> Result<()> {
    let _a = scenario(served).await?;
    let (mut found, text) = lines(served, "", 11).await?;
    let expected = [
        "session_begun a session",
        "session_begun b session",
        "accepted a b message",
        "receipt b a on_host deliver",
        "receipt b a in_session hook",
        "receipt b a seen hook",
        "answered b a reply",
        "session_begun c session",
        "renamed b c",
        "session_ended c goodbye",
    ];
    let positions: Vec<_> = found
        .iter()
        .filter_map(|entry| entry["position"].as_u64())
        .collect();
    assert!(positions.is_sorted_by(|one, next| one < next), "{text}");
    // A denial changes nothing, and is written a little later.
    let denied = found.extract_if(.., |entry| entry["event"] == "denied");
    assert_eq!(
        denied.map(|entry| short(&entry)).collect::<Vec<_>>(),
        [
            "denied a vault message rule 1 of the policy denies message from a to vault: it is a vault"
        ]
    );
    assert_eq!(found.iter().map(short).collect::<Vec<_>>(), expected);
    assert_eq!(found[2]["message_id"], found[4]["message_id"]);
    let answered = found
        .iter()
        .find(|entry| entry["event"] == "answered")
        .cloned()
        .unwrap_or_default();
    assert_eq!(
        (
            &answered["about"],
            answered["message_id"] != answered["about"]
        ),
        (&found[2]["message_id"], true)
    );
    assert!(!text.contains(SECRET), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_scenario_leaves_exactly_its_lines_in_order_with_sqlite() -> Result<()> {
    check(&served(None).await?).await
}

#[tokio::test]
async fn a_scenario_leaves_exactly_its_lines_in_order_with_redis() -> Result<()> {
    let redis = Redis::start().await?;
    check(&served(Some(&redis)).await?).await
}

#[tokio::test]
async fn a_receipt_of_two_stages_leaves_a_line_for_each_that_is_recorded() -> Result<()> {
    let served = served(None).await?;
    let (mut a, mut b) = (served.join("a").await?, served.join("b").await?);
    b.accepts = false;
    let sent = a
        .call("send_message", json!({"target": "b", "message": "hi"}))
        .await?;
    let receipt = json!({
        "message_ids": [sent["id"]], "stage": "in_session", "via": "inbox_socket", "seen_via": "hook",
    });
    for _ in 0..2 {
        assert_eq!(b.request("receipt", receipt.clone()).await?, Ok(json!({})));
    }
    let status = a
        .call("message_status", json!({"message_id": sent["id"]}))
        .await?;
    let history: Vec<_> = status["history"]
        .as_array()
        .into_iter()
        .flatten()
        .map(short)
        .collect();
    assert_eq!(
        history,
        [
            "stored",
            "on_host inbox_socket",
            "in_session inbox_socket",
            "seen hook"
        ]
    );
    let (found, _) = lines(&served, "", 5).await?;
    let expected = [
        "receipt b a in_session inbox_socket",
        "receipt b a seen hook",
    ];
    assert_eq!(found[3..].iter().map(short).collect::<Vec<_>>(), expected);
    Ok(())
}

#[tokio::test]
async fn a_part_of_it_is_read_by_agent_by_time_and_page_by_page() -> Result<()> {
    let served = served(None).await?;
    let _a = scenario(&served).await?;
    let (all, _) = lines(&served, "", 11).await?;
    let (of_c, _) = lines(&served, "&agent=c", 3).await?;
    assert_eq!(
        of_c.iter().map(short).collect::<Vec<_>>(),
        [
            "session_begun c session",
            "renamed b c",
            "session_ended c goodbye"
        ]
    );
    let address = served.address.parse()?;
    let ask = async |query: &str| -> Result<(u16, Value)> {
        let answer = http::get(address, &format!("/api/audit?{query}")).await?;
        Ok((answer.status, serde_json::from_str(&answer.body)?))
    };
    let (mut after, mut paged) = (0, Vec::new());
    loop {
        let (_, page) = ask(&format!("limit=3&after={after}")).await?;
        paged.extend(page["entries"].as_array().cloned().unwrap_or_default());
        after = page["next"].as_u64().unwrap_or_default();
        if page["complete"] == true {
            break;
        }
    }
    paged.retain(|entry| entry["event"] != "status_changed");
    assert_eq!(paged, all);
    assert_eq!(
        ask("after=1000000").await?.1,
        json!({"entries": [], "next": 0, "complete": false}),
        "a reader from before a restore begins again"
    );
    assert_eq!(
        ask("since=2999-01-01T00:00:00Z").await?.1["entries"],
        json!([])
    );
    assert_eq!(
        ask("since=2001-01-01T00:00:00Z&limit=2").await?.1["entries"],
        json!(all[..2])
    );
    for wrong in [
        "limit=0",
        "limit=1001",
        "since=yesterday",
        "agent=-",
        "after=-1",
        "colour=red",
    ] {
        let (status, refusal) = ask(wrong).await?;
        assert_eq!(
            (status, &refusal["code"]),
            (400, &json!("INVALID_REQUEST")),
            "{wrong}: {refusal}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_coordinator_without_an_audit_reports_that() -> Result<()> {
    let without = Served::start_with(|config| config.audit_entries = None).await?;
    let answer = http::get(without.address.parse()?, "/api/audit").await?;
    assert_eq!(
        serde_json::from_str::<Value>(&answer.body)?["code"],
        "NOT_SUPPORTED"
    );
    Ok(())
}

#[tokio::test]
async fn rate_limited_sends_are_audited_and_shutdown_flushes_the_audit() -> Result<()> {
    let served = Served::start_with(|config| config.rate_limit = Some(2)).await?;
    let mut a = served.join("a").await?;
    served.join("b").await?;
    for _ in 0..2 {
        a.call("send_message", json!({"target": "b", "message": SECRET}))
            .await?;
    }
    assert_eq!(
        a.refusal("send_message", json!({"target": "b", "message": SECRET}))
            .await?,
        "RATE_LIMITED"
    );
    let folder = served.stop().await?;
    let address = c3po_coordinator::config::StoreAddress::Sqlite(folder.path().join("c3po.db"));
    let store =
        c3po_coordinator::store::open(&address, &c3po_coordinator::config::Fleet::default())
            .await?;
    let entries: Vec<_> = store
        .audit(0, 100)
        .await?
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<Vec<_>, _>>()?;
    let of_a: Vec<_> = entries
        .iter()
        .filter(|entry| entry["agent"] == "a" && entry["event"] != "status_changed")
        .map(short)
        .collect();
    assert_eq!(of_a.len(), 4, "{of_a:?}");
    assert!(
        of_a[3].starts_with("denied a message rate limit: 2 sends in the last 60 seconds"),
        "{of_a:?}"
    );
    Ok(())
}

#[tokio::test]
async fn sends_without_a_wait_are_in_the_audit() -> Result<()> {
    let redis = Redis::start().await?;
    let served = served(Some(&redis)).await?;
    served.join("b").await?;
    let text = || json!({"target": "b", "message": SECRET});
    // One call is cancelled, another is in flight when its link ends: every stored message has an entry.
    let mut a = served.join("a").await?;
    let call = CallId::fresh();
    a.begin(call, "send_message", text()).await?;
    a.notify("cancel", json!({"call_id": call})).await?;
    a.call("ping", json!({})).await?;
    a.begin(CallId::fresh(), "send_message", text()).await?;
    drop(a);
    let once = async |last: &str| {
        eventually("it stands there", WRITTEN, async || {
            let (found, _) = lines(&served, "&agent=a", 1).await.ok()?;
            (found.last()?["event"] == last).then_some(found)
        })
        .await
    };
    let found = once("session_ended").await?;
    let told = |found: &[Value]| -> Vec<String> {
        let sent = found
            .iter()
            .filter(|entry| entry["event"] == "accepted" || entry["event"] == "unknown");
        let ids = sent.filter_map(|entry| entry["message_id"].as_str().map(str::to_owned));
        // A message of unknown outcome that was stored has both entries.
        ids.collect::<BTreeSet<_>>().into_iter().collect()
    };
    let b: AgentId = "b".parse()?;
    let stored = served
        .store
        .inbox(
            &b,
            Selection {
                limit: 10,
                bytes: 1 << 20,
                ..Selection::default()
            },
        )
        .await?;
    let stored: Vec<_> = stored
        .iter()
        .map(|placed| placed.message.id.to_string())
        .collect();
    assert_eq!(
        told(&found),
        stored
            .iter()
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
    // The store hangs, so the outcome is unknown.
    let mut a = served.join("a").await?;
    redis.pause()?;
    let refused = a.refusal("send_message", text()).await;
    redis.resume()?;
    assert_eq!(refused?, "STORE_UNAVAILABLE");
    assert_eq!(told(&once("unknown").await?).len(), stored.len() + 1);
    Ok(())
}

#[tokio::test]
async fn a_session_that_renames_itself_and_goes_is_gone_under_the_new_name() -> Result<()> {
    let redis = Redis::start().await?;
    let served = served(Some(&redis)).await?;
    let mut a = served.join("a").await?;
    // The store hangs until the session has sent its goodbye.
    redis.pause()?;
    a.begin(CallId::fresh(), "register_agent", json!({"name": "b"}))
        .await?;
    a.notify("goodbye", json!({})).await?;
    // The arrival of the goodbye cannot be observed. Half the time limit of a call is long enough for it.
    tokio::time::sleep(Duration::from_millis(900)).await;
    redis.resume()?;
    let (found, _) = lines(&served, "", 4).await?;
    assert_eq!(
        found[1..].iter().map(short).collect::<Vec<_>>(),
        [
            "session_begun b session",
            "renamed a b",
            "session_ended b goodbye"
        ]
    );
    let b: AgentId = "b".parse()?;
    eventually("nobody holds the name", WRITTEN, async || {
        let known = served.store.agent(&b).await.ok()?;
        known
            .is_none_or(|known| !known.is_online(Timestamp::now()))
            .then_some(())
    })
    .await
}

#[tokio::test]
async fn an_entry_that_the_store_refuses_for_good_leaves_a_gap() -> Result<()> {
    let redis = Redis::start().await?;
    let address = redis.url().parse()?;
    let served = Served::start_with(|config| {
        config.store = address;
        config.rate_limit = Some(1);
    })
    .await?;
    let mut a = served.join("a").await?;
    redis.tell(&["DEL", "{c3po}:audit"]).await?;
    redis
        .tell(&["SET", "{c3po}:audit", "no list of entries"])
        .await?;
    // The change itself does not suffer from a log that cannot be written.
    let text = || json!({"target": "a", "message": SECRET});
    a.call("send_message", text()).await?;
    for _ in 0..2 {
        assert_eq!(a.refusal("send_message", text()).await?, "RATE_LIMITED");
    }
    let metrics =
        async || Ok::<_, anyhow::Error>(http::get(served.address.parse()?, "/metrics").await?.body);
    eventually("both are given up", WRITTEN, async || {
        metrics()
            .await
            .ok()?
            .lines()
            .any(|line| line == "c3po_audit_lost_total 2")
            .then_some(())
    })
    .await?;
    redis.tell(&["DEL", "{c3po}:audit"]).await?;
    assert_eq!(a.refusal("send_message", text()).await?, "RATE_LIMITED");
    let (found, text) = lines(&served, "", 2).await?;
    let gap = found.iter().find(|entry| entry["event"] == "gap");
    assert_eq!(gap.map(|gap| &gap["count"]), Some(&json!(2)), "{text}");
    Ok(())
}
