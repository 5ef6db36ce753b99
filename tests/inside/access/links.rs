//! The permissions of one link with a key, and its effect on other links: every tool, and every other frame that a host can
//! send.

use anyhow::{Context, Result, ensure};
use c3po_shared::catalogue::Tool;
use c3po_shared::ids::CallId;
use c3po_shared::wire::CLOSE_REVOKED;
use harness::link::{Link, Who};
use inside::gate::Gate;
use serde_json::{Value, json};

use super::arguments;
use super::matrix::Kind;

/// A part of every text that `third` must not learn.
const SECRET: &str = "between-the-two";
/// The id of a message that does not exist.
const NOWHERE: &str = "others::mine::00000000";

/// Two agents that write to each other, and a third one, each with a key for itself alone.
struct Scene {
    gate: Gate,
    mine: Link,
    /// The process of `mine`.
    who: Who,
    welcome: Value,
    others: Link,
    third: Link,
    third_key: String,
    /// The ids of the messages from `others` to `mine`: they are on that host, and have not been read.
    sent: [String; 2],
}

impl Scene {
    async fn set() -> Result<Self> {
        let gate = Gate::start().await?;
        let who = Who::new("mine");
        let (mut mine, welcome, _) = linked(&gate, "mine", &who).await?;
        let (mut others, ..) = linked(&gate, "others", &Who::new("others")).await?;
        let (third, _, third_key) = linked(&gate, "third", &Who::new("third")).await?;
        let mut sent = [String::new(), String::new()];
        for id in &mut sent {
            let message = json!({"target": "mine", "message": SECRET});
            *id = others.call("send_message", message).await?["id"]
                .as_str()
                .context("an id")?
                .to_owned();
            mine.hear(|frame| {
                frame["method"] == "deliver" && frame.to_string().contains(id.as_str())
            })
            .await?;
            let on_host = json!({"message_id": id, "until": "on_host", "timeout": 20});
            ensure!(
                others.call("wait_for_message", on_host).await?["stage"] == "on_host",
                "it does not arrive"
            );
        }
        Ok(Self {
            gate,
            mine,
            who,
            welcome,
            others,
            third,
            third_key,
            sent,
        })
    }

    /// Returns the histories of both messages, as their sender receives them.
    async fn receipts(&mut self) -> Result<Vec<Value>> {
        let mut receipts = Vec::new();
        for id in &self.sent {
            receipts.push(
                self.others
                    .call("message_status", json!({"message_id": id}))
                    .await?["history"]
                    .clone(),
            );
        }
        Ok(receipts)
    }

    /// Asserts that the two messages have not changed.
    async fn is_untouched(&mut self, before: &[Value]) -> Result<()> {
        ensure!(
            self.receipts().await? == before,
            "a receipt was moved: {:?}",
            self.receipts().await?
        );
        ensure!(
            self.mine.call("get_messages", json!({})).await?["count"] == 2,
            "a message is gone"
        );
        Ok(())
    }
}

/// Returns a link with a key for that name alone, with its welcome and the key.
async fn linked(gate: &Gate, name: &str, who: &Who) -> Result<(Link, Value, String)> {
    let key = gate.key("agent", name, &[]).await?;
    let mut link = Link::open_with(&gate.served.address, Some(&key)).await?;
    let welcome = link
        .hello(who)
        .await?
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok((link, welcome, key))
}

fn tools() -> Vec<&'static str> {
    // Only questions of the caller can be concluded and answered, and no message here is one.
    let of_askers = [Tool::Conclude, Tool::AnswerInDialog];
    let tools = Tool::ALL.iter().filter(|tool| !of_askers.contains(tool));
    tools.map(|tool| tool.name()).collect()
}

/// Returns arguments for a valid call by `mine`, about these two messages.
fn example(tool: &str, sent: &[String; 2]) -> Value {
    let tool = Tool::ALL
        .iter()
        .find(|listed| listed.name() == tool)
        .expect("a listed tool");
    arguments(*tool, SECRET, [&sent[0], &sent[1]])
}

/// Returns a call as a frame that can be sent on any link.
fn frame(number: i64, tool: &str, arguments: &Value) -> String {
    let params = json!({"call_id": CallId::fresh(), "tool": tool, "arguments": arguments});
    json!({"jsonrpc": "2.0", "id": number, "method": "call", "params": params}).to_string()
}

/// Makes a call on a link whose key has ended: there is no answer, and the link is closed with the code for that.
async fn is_cut(link: &mut Link, tool: &str, arguments: Value) -> Result<()> {
    if let Ok(answer) = link.try_call(tool, arguments).await {
        anyhow::bail!("{tool} was answered: {answer:?}");
    }
    ensure!(link.hear_close().await? == CLOSE_REVOKED, "{tool}");
    Ok(())
}

#[tokio::test]
async fn every_tool_is_called_by_the_right_key_alone() -> Result<()> {
    let mut scene = Scene::set().await?;
    for kind in [Kind::None, Kind::Wrong, Kind::Read, Kind::Operator] {
        let key = kind.key(&scene.gate).await?;
        ensure!(
            Link::open_with(&scene.gate.served.address, key.as_deref())
                .await
                .is_err(),
            "{kind:?}"
        );
    }
    let (address, before) = (scene.gate.served.address.clone(), scene.receipts().await?);
    let right = scene.gate.key("agent", "mine", &[]).await?;
    for tool in tools() {
        for key in [&scene.third_key, &right] {
            // A link has no agent before `hello`.
            let mut link = Link::open_with(&address, Some(key)).await?;
            assert_eq!(
                link.refusal(tool, example(tool, &scene.sent)).await?,
                "INVALID_REQUEST",
                "{tool}"
            );
        }
        for who in [Who::new("mine"), Who::person("mine")] {
            let mut link = Link::open_with(&address, Some(&scene.third_key)).await?;
            assert_eq!(
                link.hello(&who).await?.expect_err("not covered")["data"]["code"],
                "FORBIDDEN",
                "{who:?}"
            );
            ensure!(
                link.try_call(tool, example(tool, &scene.sent))
                    .await
                    .is_err(),
                "{tool} after a refused hello"
            );
        }
    }
    scene.is_untouched(&before).await?;
    for tool in tools() {
        let answer = scene
            .mine
            .try_call(tool, example(tool, &scene.sent))
            .await?;
        ensure!(answer.is_ok(), "{tool} with the right key: {answer:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_key_that_ends_midway_ends_every_tool() -> Result<()> {
    let mut scene = Scene::set().await?;
    let (address, before) = (scene.gate.served.address.clone(), scene.receipts().await?);
    for ends in [&[][..], &["--expires", "5s"]] {
        let key = scene.gate.key("agent", "mine-*", ends).await?;
        let mut links = Vec::new();
        for tool in tools() {
            let mut link = Link::open_with(&address, Some(&key)).await?;
            link.hello(&Who::new(&format!("mine-{tool}")))
                .await?
                .expect("it is covered");
            link.call("ping", json!({})).await?;
            links.push((tool, link));
        }
        if ends.is_empty() {
            scene.gate.revoke(&key).await?;
        } else {
            links[0].1.hear_close().await?;
        }
        for (tool, link) in &mut links {
            is_cut(link, tool, example(tool, &scene.sent)).await?;
        }
        ensure!(
            Link::open_with(&address, Some(&key)).await.is_err(),
            "nor is there another link"
        );
    }
    assert_eq!(
        scene.others.call("get_messages", json!({})).await?["count"],
        0,
        "nothing was sent"
    );
    scene.is_untouched(&before).await
}

#[tokio::test]
async fn a_foreign_message_is_refused_as_an_unknown_one() -> Result<()> {
    let mut scene = Scene::set().await?;
    let before = scene.receipts().await?;
    let asked = |id: &str| {
        [
            ("reply", json!({"message_id": id, "response": "mine now"})),
            ("ack_messages", json!({"message_ids": [id]})),
            ("get_thread", json!({"message_id": id})),
            ("message_status", json!({"message_id": id})),
            ("get_messages", json!({"thread_id": id})),
            ("wait_for_message", json!({"message_id": id, "timeout": 1})),
            (
                "wait_for_message",
                json!({"message_id": id, "until": "seen", "timeout": 1}),
            ),
        ]
    };
    for ((tool, of_others), (_, of_none)) in asked(&scene.sent[0]).into_iter().zip(asked(NOWHERE)) {
        let told = scene.third.try_call(tool, of_others).await?;
        let told = format!("{told:?}").replace(&scene.sent[0], "ID");
        let of_none =
            format!("{:?}", scene.third.try_call(tool, of_none).await?).replace(NOWHERE, "ID");
        assert_eq!(told, of_none, "{tool}");
        assert!(!told.contains(SECRET), "{tool}: {told}");
    }
    scene.is_untouched(&before).await
}

#[tokio::test]
async fn a_frame_of_one_link_is_worth_nothing_on_another() -> Result<()> {
    let mut scene = Scene::set().await?;
    for (number, tool) in (1_000..).zip(tools()) {
        let text = frame(number, tool, &example(tool, &scene.sent));
        scene.mine.send_text(&text).await?;
        let first = scene.mine.end(number).await?;
        ensure!(first.is_ok(), "{tool}: {first:?}");
        scene.third.send_text(&text).await?;
        let replayed = scene.third.end(number).await?;
        match tool {
            "send_message" => {
                assert_eq!(replayed.expect_err("another's")["data"]["code"], "CONFLICT")
            }
            "reply" | "get_thread" | "message_status" => {
                assert_eq!(
                    replayed.expect_err("another's")["data"]["code"],
                    "MESSAGE_NOT_FOUND",
                    "{tool}"
                );
            }
            "ack_messages" => assert_eq!(replayed.expect("none of its own")["acked"], json!([])),
            // The other tools may return information about `third` itself.
            _ => assert!(
                !format!("{replayed:?}").contains("others::mine"),
                "{tool}: {replayed:?}"
            ),
        }
    }
    let inbox = scene.others.call("get_messages", json!({})).await?;
    let senders: Vec<_> = inbox["messages"]
        .as_array()
        .context("a list")?
        .iter()
        .map(|one| &one["from_agent"])
        .collect();
    assert_eq!(
        senders.iter().filter(|sender| **sender == "mine").count(),
        3,
        "sent, answered, told: once each: {inbox}"
    );
    Ok(())
}

#[tokio::test]
async fn receipts_for_foreign_messages_change_nothing() -> Result<()> {
    let mut scene = Scene::set().await?;
    let before = scene.receipts().await?;
    let ids: Vec<_> = scene.sent.iter().map(String::as_str).collect();
    for (stage, via) in [("in_session", "wait_for_message"), ("seen", "tool_call")] {
        scene.third.receipt(&ids, stage, via).await?;
    }
    // The coordinator numbers its deliveries on each link from one.
    for number in 0..20 {
        let answer = json!({"jsonrpc": "2.0", "id": number, "result": {}}).to_string();
        scene.third.send_text(&answer).await?;
    }
    let call = CallId::fresh();
    let waits = scene
        .mine
        .begin(
            call,
            "wait_for_message",
            json!({"message_id": NOWHERE, "timeout": 1}),
        )
        .await?;
    let refused =
        scene.mine.end(waits).await?.expect_err("no such message")["data"]["code"].clone();
    assert_eq!(refused, "MESSAGE_NOT_FOUND");
    scene.is_untouched(&before).await?;

    // A wait continues if another session cancels it.
    let (mut other_wait, ..) = linked(&scene.gate, "fourth", &Who::new("fourth")).await?;
    let call = CallId::fresh();
    let waits = other_wait
        .begin(call, "wait_for_message", json!({"timeout": 600}))
        .await?;
    scene
        .third
        .notify("cancel", json!({"call_id": call}))
        .await?;
    scene.third.call("ping", json!({})).await?;
    scene
        .others
        .call(
            "send_message",
            json!({"target": "fourth", "message": "go on"}),
        )
        .await?;
    assert_eq!(
        other_wait.end(waits).await?.expect("it goes on")["message"],
        "go on"
    );
    Ok(())
}

#[tokio::test]
async fn answers_with_foreign_ids_do_not_confirm_a_delivery() -> Result<()> {
    let gate = Gate::start().await?;
    let (mut mine, ..) = linked(&gate, "mine", &Who::new("mine")).await?;
    let (mut others, ..) = linked(&gate, "others", &Who::new("others")).await?;
    mine.accepts = false;
    let sent = others
        .call("send_message", json!({"target": "mine", "message": SECRET}))
        .await?;
    let real = mine.hear(|frame| frame["method"] == "deliver").await?["id"]
        .as_i64()
        .context("an id")?;
    for id in [
        json!(real + 1),
        json!(real - 1),
        json!(real.to_string()),
        json!(null),
    ] {
        mine.send_text(&json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string())
            .await?;
    }
    let refusal = json!({"code": -32603, "message": "no"});
    mine.send_text(&json!({"jsonrpc": "2.0", "id": real, "error": refusal}).to_string())
        .await?;
    mine.call("ping", json!({})).await?;
    let tracked = others
        .call("message_status", json!({"message_id": sent["id"]}))
        .await?;
    assert_eq!(tracked["stage"], "stored", "{tracked}");
    Ok(())
}

#[tokio::test]
async fn a_hello_in_the_place_of_another_is_a_hello_of_ones_own() -> Result<()> {
    let mut scene = Scene::set().await?;
    let address = scene.gate.served.address.clone();
    let stolen = json!({
        "succeeds": [scene.who.instance], "uid": scene.welcome["uid"], "generation": scene.welcome["generation"],
        "agent_id": "mine", "last_delivered": 0, "context": 0,
    });
    let thief = |name: &str| Who {
        instance: scene.who.instance,
        more: stolen.clone(),
        ..Who::new(name)
    };
    let mut said = Vec::new();
    for name in ["mine", "nobody"] {
        for person in [
            json!({}),
            json!({"person": true}),
            json!({"person": true, "leftover": true}),
        ] {
            let mut forged = thief(name);
            forged
                .more
                .as_object_mut()
                .context("an object")?
                .extend(person.as_object().cloned().unwrap_or_default());
            let mut link = Link::open_with(&address, Some(&scene.third_key)).await?;
            said.push(
                link.hello(&forged)
                    .await?
                    .expect_err("not covered")
                    .to_string()
                    .replace(name, "NAME"),
            );
        }
    }
    assert!(
        said[0].contains("FORBIDDEN") && said.iter().all(|one| *one == said[0]),
        "{said:?}"
    );

    scene.third.notify("goodbye", json!({})).await?;
    let mut link = Link::open_with(&address, Some(&scene.third_key)).await?;
    let welcome = link
        .hello(&thief("third"))
        .await?
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    assert!(
        welcome["agent_id"]
            .as_str()
            .is_some_and(|name| name.starts_with("third")),
        "{welcome}"
    );
    assert_ne!(welcome["uid"], scene.welcome["uid"]);
    assert_eq!(
        link.call("get_messages", json!({})).await?["count"],
        0,
        "nothing of the other's mail"
    );
    scene.mine.call("ping", json!({})).await?;
    Ok(())
}

#[tokio::test]
async fn a_link_of_nothing_but_pings_ends() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("agent", "*", &[]).await?;
    for greets in [false, true] {
        let mut link = Link::open_with(&gate.served.address, Some(&key)).await?;
        if greets {
            link.hello(&Who::new("pings"))
                .await?
                .expect("it is covered");
        }
        link.ping(100).await?;
        if greets {
            link.call("ping", json!({})).await?;
            link.ping(100).await?;
            link.call("ping", json!({}))
                .await
                .context("the count begins with each message")?;
        }
        // Both the pings and the call may find the link closed.
        let _ = link.ping(200).await;
        ensure!(
            link.try_call("ping", json!({})).await.is_err(),
            "it goes on"
        );
    }
    Ok(())
}
