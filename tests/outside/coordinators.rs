//! Several coordinators on one Redis: each may stop at any time without an effect on callers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::session;
use harness::redis::Redis;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The time limit of any operation, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

/// The limit of messages between two agents at each coordinator.
const LIMIT: (&str, &str) = ("C3PO_LOOP_MESSAGES", "60");
/// The token that gives full access, in tests that require one.
const TOKEN: &str = "a-token-of-a-test";

/// Starts two coordinators on one Redis, each with its own folder.
async fn two(work: &TempDir, redis: &Redis) -> Result<[Coordinator; 2]> {
    two_with(work, redis, &[]).await
}

/// Does the same, with these environment variables.
async fn two_with(
    work: &TempDir,
    redis: &Redis,
    variables: &[(&'static str, &str)],
) -> Result<[Coordinator; 2]> {
    let mut both = Vec::new();
    for name in ["one", "other"] {
        let folder = work.path().join(name);
        std::fs::create_dir(&folder)?;
        let coordinator = Coordinator::absent(&folder, &redis.url())?.unlimited();
        let with = |coordinator: Coordinator, (name, value): &(&'static str, &str)| {
            coordinator.with(name, Path::new(value))
        };
        let mut coordinator = variables.iter().fold(coordinator, with);
        coordinator.restart().await?;
        both.push(coordinator);
    }
    both.try_into().ok().context("two coordinators")
}

/// The progress of the load.
#[derive(Default)]
struct Load {
    sent: AtomicUsize,
    /// No more messages are to be sent.
    done: AtomicBool,
    /// No more messages are being sent.
    ended: AtomicBool,
}

/// Sends messages one after another until the load is done. Returns the duration of the slowest send.
async fn send_until_done(load: &Load, sender: &McpClient) -> Result<Duration> {
    let mut slowest = Duration::ZERO;
    while !load.done.load(Ordering::Relaxed) {
        let began = Instant::now();
        let text = load.sent.load(Ordering::Relaxed).to_string();
        let arguments = json!({"target": "receiver", "message": text, "requires_response": false});
        let answer = sender.reply("send_message", arguments).await?;
        ensure!(answer["receipt"]["stage"] == "stored", "{answer}");
        load.sent.fetch_add(1, Ordering::Relaxed);
        slowest = slowest.max(began.elapsed());
    }
    load.ended.store(true, Ordering::Relaxed);
    Ok(slowest)
}

/// Receives messages one after another until there are no more, with waits that survive the restarts.
async fn receive_all(load: &Load, receiver: &McpClient) -> Result<usize> {
    let mut received = 0;
    while !load.ended.load(Ordering::Relaxed) || received < load.sent.load(Ordering::Relaxed) {
        let next = receiver
            .reply("wait_for_message", json!({"timeout": 3}))
            .await?;
        if next["timeout"] != true {
            ensure!(
                next["message"] == *received.to_string(),
                "not the {received}th: {next}"
            );
            received += 1;
        }
    }
    Ok(received)
}

#[tokio::test]
async fn a_rolling_restart_under_load_is_not_noticed() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let [mut one, mut other] = two(&work, &redis).await?;
    let sender = session(
        work.path(),
        "sender",
        &format!("{},{}", one.url(), other.url()),
    )
    .await?;
    let receiver = session(
        work.path(),
        "receiver",
        &format!("{},{}", other.url(), one.url()),
    )
    .await?;
    let bystander = session(
        work.path(),
        "bystander",
        &format!("{},{}", one.url(), other.url()),
    )
    .await?;
    for agent in [&sender, &receiver, &bystander] {
        agent.reply("ping", json!({})).await?;
    }
    let waiting = bystander
        .begin_call("wait_for_message", json!({"timeout": 120}))
        .await?;
    let load = Load::default();
    let sent = || load.sent.load(Ordering::Relaxed);
    let rolling = async {
        for coordinator in [&mut one, &mut other] {
            let before = sent();
            eventually("some are sent", SOON, async || {
                (sent() > before + 50).then_some(())
            })
            .await?;
            ensure!(coordinator.stop().await?.success(), "it drains");
            coordinator.restart().await?;
        }
        load.done.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let sending = send_until_done(&load, &sender);
    let (slowest, received, ()) =
        tokio::try_join!(sending, receive_all(&load, &receiver), rolling)?;
    assert_eq!(received, sent());
    // A coordinator gives calls in flight 3 s to finish.
    assert!(slowest < Duration::from_secs(5), "a send took {slowest:?}");
    assert!(!bystander.has_answered(waiting), "a wait goes on elsewhere");
    sender
        .reply(
            "send_message",
            json!({"target": "bystander", "message": "at last"}),
        )
        .await?;
    assert_eq!(
        bystander.call_result(waiting, SOON).await?.json()?["message"],
        "at last"
    );
    Ok(())
}

#[tokio::test]
async fn a_session_of_a_killed_coordinator_is_at_the_other_one_within_a_second() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let [mut one, other] = two(&work, &redis).await?;
    let here = session(
        work.path(),
        "here",
        &format!("{},{}", one.url(), other.url()),
    )
    .await?;
    let there = session(work.path(), "there", &other.url()).await?;
    here.reply("ping", json!({})).await?;
    there.reply("ping", json!({})).await?;
    let waiting = here
        .begin_call("wait_for_message", json!({"timeout": 120}))
        .await?;
    // A link counts as stable after 10 s, which resets the back-off. An earlier break could delay the reconnect.
    let began = Instant::now();
    eventually("a stable link", SOON, async || {
        (began.elapsed() > Duration::from_secs(11)).then_some(())
    })
    .await?;
    one.kill().await?;
    let killed = Instant::now();
    there
        .reply(
            "send_message",
            json!({"target": "here", "message": "still there?"}),
        )
        .await?;
    let received = here.call_result(waiting, SOON).await?.json()?;
    assert_eq!(received["message"], "still there?");
    assert!(
        killed.elapsed() < Duration::from_secs(1),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(here.reply("ping", json!({})).await?["agent_id"], "here");
    Ok(())
}

#[tokio::test]
async fn a_command_does_not_wait_for_a_coordinator_that_hangs() -> Result<()> {
    let work = TempDir::new()?;
    let redis = Redis::start().await?;
    let [mut hanging, other] = two(&work, &redis).await?;
    hanging.process()?.signal("STOP").await?;
    let mut status = command(program("c3po")?, work.path());
    status.arg("status").env(
        "C3PO_COORDINATOR_URL",
        format!("{},{}", hanging.url(), other.url()),
    );
    let said = status.output().await?;
    hanging.process()?.signal("CONT").await?;
    ensure!(
        said.status.success() && String::from_utf8_lossy(&said.stdout).contains(&other.url()),
        "{said:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_coordinator_that_hangs_holds_up_a_call_for_seconds_where_there_is_another() -> Result<()>
{
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let [mut one, other] = two(&work, &redis).await?;
    let session = session(
        work.path(),
        "homeassistant",
        &format!("{},{}", one.url(), other.url()),
    )
    .await?;
    session.reply("ping", json!({})).await?;
    let hanging = one.process()?;
    hanging.signal("STOP").await?;
    let began = Instant::now();
    let pong = session.reply("ping", json!({})).await?;
    assert_eq!(pong["pong"], true, "{pong}");
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    hanging.signal("CONT").await
}

/// Makes the two agents answer each other until an answer is refused or `most` messages are sent. Returns the number of
/// messages.
async fn talk(one: &mut Link, other: &mut Link, most: usize) -> Result<usize> {
    let mut last = Value::Null;
    for sent in 0..most {
        let link = if sent % 2 == 0 {
            &mut *one
        } else {
            &mut *other
        };
        let answered = match last["id"].as_str() {
            None => {
                link.try_call(
                    "send_message",
                    json!({"target": "b", "message": "what do you think?"}),
                )
                .await?
            }
            Some(id) => {
                let answer =
                    json!({"message_id": id, "response": "and you?", "requires_response": true});
                link.try_call("reply", answer).await?
            }
        };
        match answered {
            Ok(message) => last = message,
            Err(refusal) if refusal["code"] == "LOOP_SUSPECTED" => return Ok(sent),
            Err(refusal) => anyhow::bail!("message {sent}: {refusal}"),
        }
    }
    Ok(most)
}

#[tokio::test]
async fn two_agents_at_two_coordinators_are_stopped_after_twice_as_many_messages() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let [here, there] = two_with(&work, &redis, &[LIMIT]).await?;
    let (mut a, _) = Link::join(&here.address().to_string(), "a").await?;
    let (mut b, _) = Link::join(&there.address().to_string(), "b").await?;
    assert_eq!(
        talk(&mut a, &mut b, 200).await?,
        120,
        "each coordinator counts what its own agents send"
    );
    assert_eq!(talk(&mut a, &mut b, 1).await?, 0);

    // A prompt that was reported to one coordinator counts at the other one too.
    b.notify("session", json!({"prompted": true})).await?;
    b.call("ping", json!({})).await?;
    assert_eq!(talk(&mut a, &mut b, 100).await?, 100);

    let mut stop = command(program("c3po-coordinator")?, &work.path().join("one"));
    stop.args([
        "guard",
        "stop",
        "a",
        "b",
        "--listen",
        &here.address().to_string(),
    ]);
    let stopped = stop.output().await?;
    ensure!(stopped.status.success(), "{stopped:?}");
    assert_eq!(
        a.refusal("send_message", json!({"target": "b", "message": "hi"}))
            .await?,
        "LOOP_SUSPECTED"
    );
    until_stopped(&mut b, "a").await
}

/// Waits until the coordinator of that agent refuses messages because a person stopped the pair.
async fn until_stopped(link: &mut Link, target: &str) -> Result<()> {
    let message = json!({"target": target, "message": "hi"});
    eventually("it is stopped at the other one", SOON, async || {
        let refused = link.try_call("send_message", message.clone()).await;
        let refusal = refused.ok()?.err()?;
        let reason = refusal["error"].as_str()?;
        reason.starts_with("a person stopped").then_some(())
    })
    .await
}

/// Waits until the store has the wait of that agent.
async fn until_waiting(redis: &Redis, agent: &str) -> Result<()> {
    let key = format!("{{c3po}}:waits:{agent}");
    eventually("the wait is known", SOON, async || {
        let found = redis.tell(&["EXISTS", &key]).await.ok()?;
        found.starts_with(":1").then_some(())
    })
    .await
}

#[tokio::test]
async fn three_agents_at_two_coordinators_do_not_wait_for_each_other_in_a_cycle() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let [here, there] = two(&work, &redis).await?;
    let mut links = Vec::new();
    for (coordinator, name) in [(&here, "a"), (&there, "b"), (&here, "c")] {
        links.push(
            Link::join(&coordinator.address().to_string(), name)
                .await?
                .0,
        );
    }
    let [mut a, mut b, mut c]: [Link; 3] = links.try_into().ok().context("three")?;
    let mut asked = Vec::new();
    for (link, from, to) in [(&mut a, "a", "b"), (&mut b, "b", "c")] {
        let question = link
            .call("send_message", json!({"target": to, "message": "ready?"}))
            .await?["id"]
            .clone();
        link.begin(
            CallId::fresh(),
            "wait_for_message",
            json!({"message_id": question, "timeout": 60}),
        )
        .await?;
        until_waiting(&redis, from).await?;
        asked.push(question);
    }
    let last = c
        .call("send_message", json!({"target": "a", "message": "ready?"}))
        .await?;
    let refused = c
        .try_call(
            "wait_for_message",
            json!({"message_id": last["id"], "timeout": 60}),
        )
        .await?;
    let refusal = refused.err().context("it was not refused")?;
    assert_eq!(refusal["code"], "WOULD_DEADLOCK");
    assert_eq!(
        refusal["details"],
        json!({"cycle": ["a", "b", "c", "a"], "message_id": asked[1]})
    );
    // It answers with its question, and all agents can continue.
    c.call(
        "reply",
        json!({"message_id": asked[1], "response": "when a is"}),
    )
    .await?;
    let waited = c
        .call(
            "wait_for_message",
            json!({"message_id": last["id"], "timeout": 1}),
        )
        .await?;
    assert_eq!(waited["timeout"], true);
    Ok(())
}

/// Sends a message to `target` that gets no reply. Returns whether it was accepted.
async fn sends(link: &mut Link, target: &str) -> Result<bool> {
    match link
        .try_call(
            "send_message",
            json!({"target": target, "message": "and you?"}),
        )
        .await?
    {
        Ok(_) => Ok(true),
        Err(refusal) if refusal["code"] == "LOOP_SUSPECTED" => Ok(false),
        Err(refusal) => anyhow::bail!("{refusal}"),
    }
}

/// Makes `a` and `b` send each other messages until both are refused or `most` messages are sent. Returns the number of
/// messages.
async fn exchange(a: &mut Link, b: &mut Link, most: usize) -> Result<usize> {
    let mut sent = 0;
    while sent < most {
        let accepted = usize::from(sends(a, "b").await?) + usize::from(sends(b, "a").await?);
        if accepted == 0 {
            break;
        }
        sent += accepted;
    }
    Ok(sent)
}

#[tokio::test]
async fn a_person_rules_at_one_coordinator_about_a_loop_of_messages_over_two() -> Result<()> {
    let (work, redis) = (TempDir::new()?, Redis::start().await?);
    let [here, there] = two_with(&work, &redis, &[LIMIT, ("C3PO_TOKEN", TOKEN)]).await?;
    let join = async |coordinator: &Coordinator, name: &str| -> Result<Link> {
        let mut link = Link::open_with(&coordinator.address().to_string(), Some(TOKEN)).await?;
        link.hello(&Who::new(name))
            .await?
            .map_err(anyhow::Error::msg)?;
        Ok(link)
    };
    let (mut a, mut b, mut c) = (
        join(&here, "a").await?,
        join(&there, "b").await?,
        join(&there, "c").await?,
    );
    let rule = async |verb: &str| -> Result<()> {
        let mut guard = command(program("c3po")?, work.path());
        guard
            .args(["guard", verb, "a", "b"])
            .env("C3PO_COORDINATOR_URL", there.url())
            .env("C3PO_TOKEN", TOKEN);
        let ruled = guard.output().await?;
        ensure!(ruled.status.success(), "{ruled:?}");
        Ok(())
    };
    assert_eq!(
        exchange(&mut a, &mut b, 400).await?,
        120,
        "each coordinator counts what its own agents send"
    );
    for _ in 0..20 {
        ensure!(
            sends(&mut c, "a").await? && sends(&mut a, "c").await?,
            "another pair"
        );
    }
    rule("allow").await?;
    eventually("it is allowed at the other one", SOON, async || {
        sends(&mut a, "b").await.ok()?.then_some(())
    })
    .await?;
    let more = exchange(&mut a, &mut b, 400).await?;
    assert!(
        (100..120).contains(&more),
        "{more} messages after it was allowed"
    );
    rule("stop").await?;
    until_stopped(&mut a, "b").await?;
    assert_eq!(exchange(&mut a, &mut b, 2).await?, 0);
    ensure!(sends(&mut c, "b").await?, "another pair");
    Ok(())
}
