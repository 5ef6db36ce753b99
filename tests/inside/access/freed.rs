//! A name that was freed: its next agent, of another host, gets nothing that the one before sent or received, and an agent keeps
//! what is its own.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::eventually::eventually;
use harness::http::Answer;
use harness::link::{Link, Who};
use harness::redis::Redis;
use inside::gate::Gate;
use serde_json::{Value, json};

use super::former::{nas_and_laptop, two_hosts};
use super::hosts::{SOON, session};
use super::{ask, code};

/// A coordinator with one of the stores.
struct Scene {
    gate: Gate,
    /// Kept until the test is over.
    _redis: Option<Redis>,
}

impl Scene {
    /// Returns one with each store.
    async fn each() -> Result<[Self; 2]> {
        let redis = Redis::start().await?;
        let store = redis.url().parse()?;
        Ok([
            Self {
                gate: Gate::start().await?,
                _redis: None,
            },
            Self {
                gate: Gate::start_with(|config| config.store = store).await?,
                _redis: Some(redis),
            },
        ])
    }
}

/// The ids of messages that concern an agent.
struct Known {
    /// Its question that a person answered, and the answer.
    answered: Value,
    answer: Value,
    /// Its question without an answer.
    open: Value,
    /// Its message to another agent, and the reply.
    sent: Value,
    reply: Value,
    /// The message of another agent to it.
    received: Value,
    broadcast: Value,
}

impl Known {
    /// Makes these messages, of that agent and the agent `peer`.
    async fn of(gate: &Gate, agent: &mut Link, name: &str, peer: &mut Link) -> Result<Self> {
        let asked = async |agent: &mut Link| -> Result<Value> {
            let question = json!({"question": "May I?", "options": ["Yes", "No"], "wait": false});
            Ok(agent.call("ask_user", question).await?["id"].take())
        };
        let (answered, open) = (asked(agent).await?, asked(agent).await?);
        answer(gate, &answered).await?;
        let thread = agent
            .call("get_thread", json!({"message_id": answered}))
            .await?;
        let mail = json!({"target": "peer", "message": "hello"});
        let sent = agent.call("send_message", mail).await?["id"].take();
        let reply = json!({"message_id": sent, "response": "hello yourself"});
        let reply = peer.call("reply", reply).await?["id"].take();
        let mail = json!({"target": name, "message": "for you"});
        let received = peer.call("send_message", mail).await?["id"].take();
        let all = json!({"message": "to all"});
        let broadcast = agent.call("broadcast", all).await?["id"].take();
        let known = Self {
            answer: thread["messages"][1]["id"].clone(),
            answered,
            open,
            sent,
            reply,
            received,
            broadcast,
        };
        ensure!(known.own().iter().all(Value::is_string), "{thread}");
        Ok(known)
    }

    /// Returns those that the agent sent and received.
    fn own(&self) -> [Value; 7] {
        [
            &self.answered,
            &self.answer,
            &self.open,
            &self.sent,
            &self.reply,
            &self.received,
            &self.broadcast,
        ]
        .map(Value::clone)
    }

    /// Returns the calls that read or change one of them as the own one.
    fn calls(&self) -> Vec<(&'static str, Value)> {
        let (answered, open) = (&self.answered, &self.open);
        let reads = self.own().into_iter().flat_map(|id| {
            let about = json!({"message_id": id});
            [("get_thread", about.clone()), ("message_status", about)]
        });
        let waits = [answered, &self.sent, &self.reply].map(|id| {
            let wait = json!({"message_id": id, "timeout": 1});
            ("wait_for_message", wait)
        });
        let others = [
            ("ask_user", json!({"question_id": answered, "timeout": 1})),
            (
                "wait_for_message",
                json!({"message_id": answered, "until": "answered", "timeout": 1}),
            ),
            (
                "escalate_to_human",
                json!({"question_id": open, "reason": "mine"}),
            ),
            (
                "reply",
                json!({"message_id": self.received, "response": "mine"}),
            ),
            (
                "conclude",
                json!({"message_id": open, "stage": "withdrawn", "via": "terminal"}),
            ),
            (
                "answer_in_dialog",
                json!({"message_id": open, "part": {"options": ["1"]}}),
            ),
        ];
        reads.chain(waits).chain(others).collect()
    }
}

/// Answers a question with its first option, as a person who has logged in.
async fn answer(gate: &Gate, question: &Value) -> Result<()> {
    let login = gate.login("person").await?;
    let path = format!(
        "/api/v1/questions/{}/answer",
        question.as_str().context("an id")?
    );
    let body = json!({"parts": [{"options": ["1"]}]}).to_string();
    let answered = ask(gate, "POST", &path, Some(&login), None, &body).await?;
    ensure!(answered.status == 201, "{}", answered.body);
    Ok(())
}

/// Reads as that agent.
async fn read(gate: &Gate, key: &str, name: &str, path: &str) -> Result<Answer> {
    ask(gate, "GET", path, Some(key), Some(name), "").await
}

/// Returns the ids of the messages that the agent sent.
async fn sent(gate: &Gate, key: &str, name: &str) -> Result<Vec<Value>> {
    let answer = read(gate, key, name, "/api/sent").await?;
    let sent: Value = serde_json::from_str(&answer.body)?;
    let messages = sent["messages"].as_array().context(answer.body)?;
    Ok(messages
        .iter()
        .map(|one| one["message_id"].clone())
        .collect())
}

/// Ends the session, and removes its agent with that key. With an admin key, the name becomes free for all hosts.
async fn removed(gate: &Gate, mut link: Link, key: &str, name: &str) -> Result<()> {
    link.notify("goodbye", json!({})).await?;
    let body = json!({"agent_id": name}).to_string();
    let removed = async || {
        let path = "/api/agents/remove";
        let answer = ask(gate, "POST", path, Some(key), None, &body).await.ok()?;
        (answer.status == 200).then_some(())
    };
    eventually("the agent is removed", SOON, removed).await?;
    // An agent of the same millisecond may have sent its messages.
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(())
}

/// Checks that the key reads none of these messages in the events of the name.
async fn check_events(gate: &Gate, key: &str, known: &Known) -> Result<()> {
    let path = "/api/v1/events?after=0&limit=100&agent=deploy";
    let events = ask(gate, "GET", path, Some(key), None, "").await?;
    assert_eq!(events.status, 200, "{}", events.body);
    for id in known.own() {
        let id = id.as_str().unwrap_or_default();
        ensure!(!events.body.contains(id), "{id}: {}", events.body);
    }
    Ok(())
}

#[tokio::test]
async fn the_next_agent_of_a_freed_name_gets_nothing_that_the_one_before_had() -> Result<()> {
    for Scene { gate, _redis } in Scene::each().await? {
        let (nas, laptop) = nas_and_laptop(&gate).await?;
        let admin = gate.key("admin", "*", &[]).await?;
        let (mut peer, _) = session(&gate, &nas, "peer").await?;
        let (mut before, _) = session(&gate, &nas, "deploy").await?;
        let known = Known::of(&gate, &mut before, "deploy", &mut peer).await?;
        removed(&gate, before, &admin, "deploy").await?;

        // No agent has the name.
        let thread = |id: &Value| format!("/api/v1/threads/{}", id.as_str().unwrap_or_default());
        for id in [&known.answered, &known.received] {
            let early = read(&gate, &laptop, "deploy", &thread(id)).await?;
            assert_eq!(early.status, 404, "{}", early.body);
        }
        assert_eq!(sent(&gate, &laptop, "deploy").await?, Vec::<Value>::new());
        check_events(&gate, &laptop, &known).await?;

        let (mut next, welcome) = session(&gate, &laptop, "deploy").await?;
        ensure!(welcome["agent_id"] == "deploy", "{welcome}");
        check_events(&gate, &laptop, &known).await?;
        let settled = json!({"message_ids": [known.received]});
        let settled = next.call("ack_messages", settled).await?;
        ensure!(settled["acked"] == json!([]), "{settled}");
        let mut leaks = Vec::new();
        for (tool, arguments) in known.calls() {
            let outcome = next.try_call(tool, arguments.clone()).await?;
            let refused = outcome.as_ref().err().map(|refused| &refused["code"]);
            if refused != Some(&json!("MESSAGE_NOT_FOUND")) {
                leaks.push(format!("{tool} {arguments}: {outcome:?}"));
            }
        }
        for id in known.own() {
            let receipt = format!(
                "/api/v1/messages/{}/receipt",
                id.as_str().unwrap_or_default()
            );
            for path in [thread(&id), receipt] {
                let read = read(&gate, &laptop, "deploy", &path).await?;
                if code(&read).as_deref() != Some("MESSAGE_NOT_FOUND") {
                    leaks.push(format!("{path}: {}", read.body));
                }
            }
        }
        assert!(leaks.is_empty(), "{}", leaks.join("\n"));
        let own = json!({"target": "peer", "message": "of the laptop"});
        let own = next.call("send_message", own).await?["id"].take();
        assert_eq!(sent(&gate, &laptop, "deploy").await?, [own]);
    }
    Ok(())
}

#[tokio::test]
async fn the_name_of_a_hosts_person_stays_that_hosts_without_an_agent() -> Result<()> {
    let gate = Gate::start().await?;
    let (nas, laptop) = nas_and_laptop(&gate).await?;
    for (key, status) in [(&nas, 200), (&laptop, 403)] {
        let read = read(&gate, key, "nas-cli", "/api/pending").await?;
        assert_eq!(read.status, status, "{}", read.body);
    }
    Ok(())
}

/// Checks that the agent reads its question to people and its message to another agent, with their answers.
async fn check_reads(link: &mut Link, known: &Known) -> Result<()> {
    let wait = json!({"question_id": known.answered, "timeout": 1});
    let outcome = link.call("ask_user", wait).await?;
    ensure!(outcome["answered_by"] == "ann", "{outcome}");
    let wait = json!({"message_id": known.sent, "timeout": 1});
    let reply = link.call("wait_for_message", wait).await?;
    ensure!(reply["id"] == known.reply, "{reply}");
    for (one, other) in [
        (&known.answered, &known.answer),
        (&known.sent, &known.reply),
    ] {
        for id in [one, other] {
            let about = json!({"message_id": id});
            let thread = link.call("get_thread", about.clone()).await?;
            let ids = [&thread["messages"][0]["id"], &thread["messages"][1]["id"]];
            ensure!(ids == [one, other], "{thread}");
            link.call("message_status", about).await?;
        }
    }
    for id in [&known.broadcast, &known.received] {
        let about = json!({"message_id": id});
        link.call("message_status", about.clone()).await?;
        link.call("get_thread", about).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_next_agent_of_the_same_host_and_name_reads_what_its_host_sent() -> Result<()> {
    for Scene { gate, _redis } in Scene::each().await? {
        let (nas, _) = nas_and_laptop(&gate).await?;
        let (mut peer, _) = session(&gate, &nas, "peer").await?;
        let (mut before, _) = session(&gate, &nas, "deploy").await?;
        let known = Known::of(&gate, &mut before, "deploy", &mut peer).await?;
        removed(&gate, before, &nas, "deploy").await?;
        let (mut heir, welcome) = session(&gate, &nas, "deploy").await?;
        ensure!(welcome["agent_id"] == "deploy", "{welcome}");
        check_reads(&mut heir, &known).await?;
        let sent = sent(&gate, &nas, "deploy").await?;
        ensure!(
            sent.contains(&known.answered) && sent.contains(&known.sent),
            "{sent:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_reads_its_own_messages_after_its_host_was_renamed() -> Result<()> {
    let (gate, nas, _) = two_hosts().await?;
    let (mut peer, _) = session(&gate, &nas, "peer").await?;
    let who = Who::new("deploy");
    let mut before = Link::open_with(&gate.served.address, Some(&nas)).await?;
    ensure!(before.hello(&who).await?.is_ok());
    let known = Known::of(&gate, &mut before, "deploy", &mut peer).await?;
    gate.ask(&["hosts", "rename", "nas", "attic"]).await?;
    let mut after = eventually("the key counts", SOON, async || {
        let mut link = Link::open_with(&gate.served.address, Some(&nas))
            .await
            .ok()?;
        let welcome = link.hello(&who).await.ok()?.ok()?;
        (welcome["host"] == "attic").then_some(link)
    })
    .await?;
    check_reads(&mut after, &known).await?;
    let sent = sent(&gate, &nas, "deploy").await?;
    ensure!(sent.contains(&known.answered), "{sent:?}");
    Ok(())
}
