//! Waits: for any message, for an answer, for a stage; ended by time, by cancellation, or by the end of the session.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use c3po_shared::ids::{CallId, MessageId};
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use inside::served::Served;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{ask, id, two_agents};

/// How long a wait may take to end after the send that ends it, on a machine that builds at the same time.
pub(super) const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_wait_that_runs_out_of_time_is_no_error() -> Result<()> {
    let (_served, mut homeassistant, _meshtastic) = two_agents().await?;
    let timed_out = homeassistant
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    assert_eq!(
        timed_out,
        json!({
            "status": "timeout", "code": "TIMEOUT", "timeout": true, "waited_seconds": 1,
            "message": "No message received within 1 seconds",
            "suggestion": "No messages are pending. You can continue with other work.",
        })
    );
    let question = ask(&mut homeassistant, "hello?").await?;
    let timed_out = homeassistant
        .call(
            "wait_for_message",
            json!({"message_id": question, "timeout": 1}),
        )
        .await?;
    assert_eq!(
        (
            timed_out["timeout"].as_bool(),
            timed_out["message_id"].as_str()
        ),
        (Some(true), Some(question.as_str()))
    );
    Ok(())
}

#[tokio::test]
async fn a_timeout_of_a_wait_does_not_deny_pending_messages() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "shown before").await?;
    let shown = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(shown["id"], question.as_str());
    meshtastic
        .receipt(&[&question], "in_session", "wait_for_message")
        .await?;
    let timed_out = meshtastic
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    let suggestion = timed_out["suggestion"].as_str().unwrap_or_default();
    assert!(
        suggestion.contains("get_messages") && !suggestion.contains("No messages"),
        "{timed_out}"
    );
    Ok(())
}

#[tokio::test]
async fn a_wait_returns_each_message_to_its_session_once() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let ids = [
        ask(&mut homeassistant, "one").await?,
        ask(&mut homeassistant, "two").await?,
    ];
    for expected in &ids {
        let received = meshtastic
            .call("wait_for_message", json!({"timeout": 20}))
            .await?;
        assert_eq!(id(&received), *expected);
        meshtastic
            .receipt(&[expected], "in_session", "wait_for_message")
            .await?;
    }
    // Both are still unacknowledged, but neither is returned again.
    let nothing = meshtastic
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    assert_eq!(nothing["timeout"], true);
    assert_eq!(
        meshtastic.call("get_messages", json!({})).await?["count"],
        2
    );
    Ok(())
}

#[tokio::test]
async fn a_wait_that_would_close_a_cycle_names_the_message_to_answer_first() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let first = ask(&mut homeassistant, "which port?").await?;
    let answer_to = |id: &str, timeout: u64| json!({"message_id": id, "timeout": timeout});
    let waiting = homeassistant
        .begin(CallId::fresh(), "wait_for_message", answer_to(&first, 60))
        .await?;
    let back = json!({"target": "homeassistant", "message": "which host?"});
    let second = id(&meshtastic.call("send_message", back).await?);
    let closing: MessageId = second.parse()?;
    eventually("the first wait is known", SOON, async || {
        // A lease of zero counts for nobody, so this look never refuses the first wait.
        let looked = served
            .store
            .await_answer(&closing, None, Duration::ZERO)
            .await
            .ok()?;
        (!looked.cycle.is_empty()).then_some(())
    })
    .await?;
    let refused = meshtastic
        .try_call("wait_for_message", answer_to(&second, 60))
        .await?;
    let refusal = refused.err().context("it was not refused")?;
    assert_eq!(refusal["code"], "WOULD_DEADLOCK");
    assert_eq!(
        refusal["error"],
        "waiting for homeassistant would be a deadlock: homeassistant waits for meshtastic"
    );
    assert_eq!(refusal["details"]["message_id"], first.as_str());
    assert_eq!(
        refusal["details"]["cycle"],
        json!(["homeassistant", "meshtastic", "homeassistant"])
    );
    // A wait for any message returns the question; after its answer each agent may wait for the other.
    assert_eq!(
        meshtastic
            .call("wait_for_message", json!({"timeout": 20}))
            .await?["id"],
        first.as_str()
    );
    meshtastic
        .call(
            "reply",
            json!({"message_id": first, "response": "8123; which host?"}),
        )
        .await?;
    let answer = homeassistant
        .end(waiting)
        .await?
        .map_err(anyhow::Error::msg)?;
    assert_eq!(answer["response"], "8123; which host?");
    let timed_out = meshtastic
        .call("wait_for_message", answer_to(&second, 1))
        .await?;
    assert_eq!(timed_out["timeout"], true);
    Ok(())
}

#[tokio::test]
async fn a_message_that_a_cancelled_wait_did_not_show_is_not_lost() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let call = CallId::fresh();
    let waiting = meshtastic
        .begin(call, "wait_for_message", json!({"timeout": 600}))
        .await?;
    meshtastic
        .notify("cancel", json!({"call_id": call}))
        .await?;
    meshtastic.call("ping", json!({})).await?;
    let question = ask(&mut homeassistant, "still there?").await?;
    assert_eq!(
        meshtastic
            .end_within(waiting, Duration::from_millis(300))
            .await?,
        None,
        "a cancelled call has no answer"
    );
    let received = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(id(&received), question);
    // The session that received it ends without reporting it as shown, so the next session gets it.
    drop(meshtastic);
    let agent = "meshtastic".parse()?;
    eventually("meshtastic is offline", SOON, async || {
        let agent = served.store.agent(&agent).await.ok()??;
        (!agent.is_online(c3po_shared::time::Timestamp::now())).then_some(())
    })
    .await?;
    let mut meshtastic = served.join("meshtastic").await?;
    let received = meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    assert_eq!(id(&received), question);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_crosses_a_cancellation_goes_to_the_next_wait() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let call = CallId::fresh();
    let waiting = meshtastic
        .begin(call, "wait_for_message", json!({"timeout": 20}))
        .await?;
    let question = ask(&mut homeassistant, "crossing").await?;
    meshtastic.end(waiting).await?.map_err(anyhow::Error::msg)?;
    meshtastic
        .notify("cancel", json!({"call_id": call}))
        .await?;
    let received = meshtastic
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    assert_eq!(id(&received), question);
    Ok(())
}

#[tokio::test]
async fn a_wait_through_a_proxy_lasts_as_long_as_it_was_asked_to() -> Result<()> {
    let work = tempfile::tempdir()?;
    let coordinator = harness::coordinator::Coordinator::start(work.path()).await?;
    let session = harness::proxy::session(work.path(), "meshtastic", &coordinator.url()).await?;
    let waited = session
        .reply("wait_for_message", json!({"timeout": 2}))
        .await?;
    assert_eq!(
        (&waited["code"], &waited["waited_seconds"]),
        (&json!("TIMEOUT"), &json!(2))
    );
    Ok(())
}

#[tokio::test]
async fn a_message_that_a_wait_gave_back_is_pushed() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let call = CallId::fresh();
    let waiting = meshtastic
        .begin(call, "wait_for_message", json!({"timeout": 20}))
        .await?;
    let question = ask(&mut homeassistant, "crossing").await?;
    meshtastic.end(waiting).await?.map_err(anyhow::Error::msg)?;
    // Long enough for the push to skip the message, because the wait has it.
    let nothing = meshtastic
        .end_within(waiting, Duration::from_millis(300))
        .await?;
    assert_eq!(nothing, None);
    assert!(
        !meshtastic
            .heard
            .iter()
            .any(|frame| frame["method"] == "deliver"),
        "{:?}",
        meshtastic.heard
    );
    meshtastic
        .notify("cancel", json!({"call_id": call}))
        .await?;
    let pushed = meshtastic
        .hear(|frame| frame["method"] == "deliver")
        .await?;
    assert_eq!(pushed["params"]["messages"][0]["id"], question);
    Ok(())
}

#[tokio::test]
async fn two_waits_of_one_session_do_not_get_the_same_message() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let first = meshtastic
        .begin(CallId::fresh(), "wait_for_message", json!({"timeout": 20}))
        .await?;
    let second = meshtastic
        .begin(CallId::fresh(), "wait_for_message", json!({"timeout": 20}))
        .await?;
    let one = ask(&mut homeassistant, "one").await?;
    let two = ask(&mut homeassistant, "two").await?;
    let mut got = Vec::new();
    for waiting in [first, second] {
        got.push(id(&meshtastic
            .end(waiting)
            .await?
            .map_err(anyhow::Error::msg)?));
    }
    got.sort();
    let mut sent = [one, two];
    sent.sort();
    assert_eq!(got, sent);
    Ok(())
}

#[tokio::test]
async fn a_wait_can_be_for_one_kind() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "question").await?;
    let waiting = homeassistant
        .begin(
            CallId::fresh(),
            "wait_for_message",
            json!({"kind": "reply", "timeout": 20}),
        )
        .await?;
    meshtastic
        .call(
            "send_message",
            json!({"target": "homeassistant", "message": "no reply"}),
        )
        .await?;
    assert!(
        homeassistant
            .end_within(waiting, Duration::from_millis(300))
            .await?
            .is_none()
    );
    let reply = meshtastic
        .call(
            "reply",
            json!({"message_id": question, "response": "a reply"}),
        )
        .await?;
    let received = homeassistant
        .end(waiting)
        .await?
        .map_err(anyhow::Error::msg)?;
    assert_eq!(received["id"], reply["id"]);
    Ok(())
}

#[tokio::test]
async fn a_wait_can_be_for_a_stage() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, "seen yet?").await?;
    let arguments = json!({"message_id": question, "until": "seen", "timeout": 20});
    let waiting = homeassistant
        .begin(CallId::fresh(), "wait_for_message", arguments)
        .await?;
    meshtastic
        .call("wait_for_message", json!({"timeout": 20}))
        .await?;
    meshtastic
        .receipt(&[&question], "in_session", "wait_for_message")
        .await?;
    assert!(
        homeassistant
            .end_within(waiting, Duration::from_millis(200))
            .await?
            .is_none(),
        "not seen yet"
    );
    meshtastic.receipt(&[&question], "seen", "hook").await?;
    let tracked = homeassistant
        .end(waiting)
        .await?
        .map_err(anyhow::Error::msg)?;
    assert_eq!(
        (tracked["message_id"].as_str(), tracked["stage"].as_str()),
        (Some(question.as_str()), Some("seen"))
    );
    Ok(())
}

#[tokio::test]
async fn waits_hold_up_nothing_else() -> Result<()> {
    let (_served, _homeassistant, mut meshtastic) = two_agents().await?;
    for _ in 0..100 {
        meshtastic
            .begin(CallId::fresh(), "wait_for_message", json!({"timeout": 600}))
            .await?;
    }
    let began = Instant::now();
    assert_eq!(meshtastic.call("ping", json!({})).await?["pong"], true);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_client_without_a_proxy_that_goes_ends_its_wait() -> Result<()> {
    let served = Served::start().await?;
    let arguments = json!({"name": "wait_for_message", "arguments": {"timeout": 3600}});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments}).to_string();
    let mut waiting = TcpStream::connect(&served.address).await?;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX-Agent-ID: a\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    waiting
        .write_all(format!("{head}{body}").as_bytes())
        .await?;
    let address = served.address.parse()?;
    let listeners = async |wanted: &str| {
        let metrics = http::get(address, "/metrics").await.ok()?.body;
        metrics
            .lines()
            .any(|line| line.strip_prefix("c3po_listeners ") == Some(wanted))
            .then_some(())
    };
    eventually("it waits", SOON, async || listeners("1").await).await?;
    drop(waiting);
    eventually("nobody waits any more", SOON, async || listeners("0").await).await
}

#[tokio::test]
async fn a_silent_link_does_not_delay_the_shutdown() -> Result<()> {
    let served = Served::start().await?;
    let _silent = Link::open(&served.address).await?;
    let began = Instant::now();
    served.stop().await?;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    Ok(())
}
