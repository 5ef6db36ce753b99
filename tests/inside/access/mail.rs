//! A person's commands that send, list, answer and acknowledge messages.

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::AgentId;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use inside::gate::{Gate, id};
use serde_json::{Value, json};

use super::ask;
use super::people::{Host, SOON};

#[tokio::test]
async fn a_receipt_explains_the_evidence_of_each_step() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    web.hello(&Who::new("web")).await?.expect("it is covered");
    let sent: Value = serde_json::from_str(&host.says("send web hello --json").await?)?;
    let id = sent["id"].as_str().context("an id")?;
    web.hear(|frame| frame["method"] == "deliver").await?;
    web.receipt_in(1, &[id], "in_session", "stop").await?;
    web.receipt_in(1, &[id], "seen", "tool_call").await?;
    let evidence = [
        "the coordinator's store has committed it",
        "on the recipient's host (session 1): its proxy received it",
        "in the session's context (session 1, context 1) by the Stop hook, which continued the turn",
        "the model named it in a tool call (session 1, context 1)",
    ];
    let said = host.says(&format!("receipt {id}")).await?;
    assert!(
        said.lines()
            .skip(1)
            .zip(evidence)
            .all(|(line, words)| line.ends_with(words)),
        "{said}"
    );
    assert_eq!(said.lines().count(), 5, "{said}");
    let told: Value = serde_json::from_str(&host.says(&format!("receipt {id} --json")).await?)?;
    let steps = told["history"].as_array().context("a history")?;
    assert!(
        steps.iter().map(|step| &step["evidence"]).eq(evidence),
        "{told}"
    );
    assert_eq!(
        (&told["stage"], &steps[2]["via"], &steps[2]["session"]),
        (&json!("seen"), &json!("stop"), &json!("1.1"))
    );
    Ok(())
}

#[tokio::test]
async fn a_message_that_was_never_in_the_inbox_is_not_acknowledged() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    let mut sender = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    sender
        .hello(&Who::new("sender"))
        .await?
        .expect("it is covered");
    host.says("inbox").await?;
    let sent = sender
        .call(
            "send_message",
            json!({"target": "human", "message": "hello", "requires_response": false}),
        )
        .await?;
    let id = sent["id"].as_str().context("an id")?;
    let said = host.fails("ack sender::human::00000000", 1).await?;
    ensure!(
        said.contains("sender::human::00000000") && said.contains("MESSAGE_NOT_FOUND"),
        "{said}"
    );
    // An existing message is still acknowledged, and this can be repeated.
    host.fails(&format!("ack {id} sender::human::00000000"), 1)
        .await?;
    ensure!(host.says("inbox").await?.contains("The inbox is empty."));
    ensure!(
        host.says(&format!("ack {id}"))
            .await?
            .contains("acknowledged")
    );
    Ok(())
}

#[tokio::test]
async fn a_message_that_waits_is_named_by_the_end_of_its_id() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    let mut sender = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    sender
        .hello(&Who::new("sender"))
        .await?
        .expect("it is covered");
    host.says("inbox").await?;
    let question = sender
        .call(
            "send_message",
            json!({"target": "human", "message": "May I?"}),
        )
        .await?;
    let id = question["id"].as_str().context("an id")?;
    let end = &id[id.len() - 8..];
    ensure!(
        host.says(&format!("thread {end}"))
            .await?
            .contains("> May I?")
    );
    ensure!(host.says(&format!("receipt {end}")).await?.starts_with(id));
    let said = host.fails("reply 00000000 yes", 1).await?;
    ensure!(
        said.contains("no id in the inbox ends in 00000000") && said.contains("`c3po inbox`"),
        "{said}"
    );
    // Its sender chooses the id, and the person has to see what has this end now.
    let said = host.fails(&format!("reply {end} yes"), 2).await?;
    ensure!(said.contains(id), "{said}");
    ensure!(
        host.says(&format!("reply {id} yes"))
            .await?
            .contains("::sender::")
    );
    sender.hear(|frame| frame["method"] == "deliver").await?;
    Ok(())
}

#[tokio::test]
async fn an_inbox_is_emptied_of_news_and_keeps_its_questions() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    let mut sender = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    sender
        .hello(&Who::new("sender"))
        .await?
        .expect("it is covered");
    host.says("inbox").await?;
    for wants_answer in [false, true, false] {
        let message =
            json!({"target": "human", "message": "hello", "requires_response": wants_answer});
        sender.call("send_message", message).await?;
    }
    let output = host.run("ack --all").await?;
    let (said, noted) = (
        String::from_utf8(output.stdout)?,
        String::from_utf8(output.stderr)?,
    );
    assert_eq!(
        (output.status.code(), said.lines().count()),
        (Some(0), 2),
        "{said}{noted}"
    );
    ensure!(noted.contains("1 more message wants an answer"), "{noted}");
    ensure!(
        host.says("inbox").await?.lines().count() == 2,
        "the question stays"
    );
    Ok(())
}

#[tokio::test]
async fn a_person_broadcasts_and_is_warned_of_offline_recipients() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::of_person(&gate).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    web.hello(&Who::new("web")).await?.expect("it is covered");
    ensure!(host.says("broadcast hello").await?.contains("web  stored"));
    let output = host.run("send web hello").await?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    web.notify("goodbye", json!({})).await?;
    let _ = web.hear_close().await;
    let output = host.run("send web again").await?;
    let noted = String::from_utf8(output.stderr)?;
    ensure!(
        output.status.success() && noted.contains("web is offline since 20"),
        "{noted}"
    );
    ensure!(
        host.fails("send all hello", 1)
            .await?
            .contains("`c3po broadcast ")
    );
    Ok(())
}

#[tokio::test]
async fn sent_messages_are_listed_with_their_stage() -> Result<()> {
    let gate = Gate::start().await?;
    let host = Host::with(&gate, "agent", "*").await?;
    let mut web = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    web.hello(&Who::new("web")).await?.expect("it is covered");
    assert_eq!(
        host.says("sent").await?,
        "somebody-cli has sent nothing recently.\n"
    );
    host.says("inbox").await?;
    let asked = web
        .call(
            "send_message",
            json!({"target": "somebody-cli", "message": "Which?"}),
        )
        .await?;
    let asked = asked["id"].as_str().context("an id")?;
    host.says("send web hello --title Topics").await?;
    host.says(&format!("reply {asked} all")).await?;
    web.hear(|frame| frame["method"] == "deliver").await?;
    let whole = async || {
        host.says("sent")
            .await
            .ok()
            .filter(|said| said.lines().count() == 2)
    };
    let said = eventually("both are in the audit", SOON, whole).await?;
    let lines: Vec<_> = said.lines().collect();
    ensure!(
        lines[0].starts_with("somebody-cli::web::") && lines[0].ends_with("  Topics"),
        "{said}"
    );
    ensure!(
        lines[1].contains("  to web  ") && lines[1].ends_with(&format!("answers {asked}")),
        "{said}"
    );
    let list: Value =
        serde_json::from_str(&host.says("sent --json --as web").await.unwrap_or_default())?;
    assert_eq!(
        (
            &list["messages"][0]["message_id"],
            &list["messages"][0]["stage"]
        ),
        (&json!(asked), &json!("answered"))
    );
    let narrow = Host::with(&gate, "agent", "api").await?;
    ensure!(
        narrow
            .fails("sent --as web", 1)
            .await?
            .contains("does not cover web")
    );
    Ok(())
}

#[tokio::test]
async fn queued_messages_are_sent_once_and_before_newer_ones() -> Result<()> {
    const NOBODY: &str = "http://127.0.0.1:1";
    let gate = Gate::start().await?;
    let host = Host::with(&gate, "agent", "*").await?;
    let mut web = Link::open_with(&gate.served.address, Some(&host.key)).await?;
    web.hello(&Who::new("web")).await?.expect("it is covered");
    for text in ["one", "two"] {
        let mut send = host.c3po(&format!("send web {text} --queue"))?;
        ensure!(
            send.env("C3PO_COORDINATOR_URL", NOBODY)
                .output()
                .await?
                .status
                .success(),
            "{text}"
        );
    }
    // The queued messages are for another coordinator, so this one is not used.
    host.fails("send web early", 1).await?;
    let both = format!("{NOBODY},{}", host.url);
    for text in ["three", "four"] {
        let output = host
            .c3po(&format!("send web {text}"))?
            .env("C3PO_COORDINATOR_URL", &both)
            .output()
            .await?;
        ensure!(output.status.success(), "{output:?}");
    }
    let inbox = web.call("get_messages", json!({})).await?;
    let texts: Vec<_> = inbox["messages"]
        .as_array()
        .context("messages")?
        .iter()
        .map(|one| &one["message"])
        .collect();
    assert_eq!(texts, ["one", "two", "three", "four"]);
    Ok(())
}

/// As that agent, reads a message by a command and takes it away, takes another one away over REST, and reports that a page
/// displayed the third one, a question to people.
async fn read_and_take(gate: &Gate, sender: &mut Link, name: &str, credential: &str) -> Result<()> {
    let mut reader = Link::open_with(&gate.served.address, Some(credential)).await?;
    reader.hello(&Who::person(name)).await?.expect("covered");
    let mut ids = Vec::new();
    for wants in [false, false, true] {
        let text = json!({"target": name, "message": "hello", "requires_response": wants});
        let sent = sender.call("send_message", text).await?;
        ids.push(sent["id"].as_str().context("an id")?.to_owned());
    }
    reader.receipt(&[&ids[0]], "in_session", "terminal").await?;
    let first = json!({"message_ids": [ids[0]]});
    reader.call("ack_messages", first).await?;
    let (second, seen) = (
        json!({"message_ids": [ids[1]]}),
        json!({"stage": "seen", "via": "page"}),
    );
    let mut reports = vec![("/api/v1/messages/acknowledge".to_owned(), second)];
    if name == "human" {
        reports.push((format!("/api/v1/questions/{}/receipt", ids[2]), seen));
    }
    for (path, body) in reports {
        let (credential, agent) = (Some(credential), Some(name));
        let answer = ask(gate, "POST", &path, credential, agent, &body.to_string()).await?;
        ensure!(answer.status == 200, "{path}: {}", answer.body);
    }
    Ok(())
}

#[tokio::test]
async fn a_message_that_a_command_reads_or_takes_away_is_audited_with_its_credential() -> Result<()>
{
    let gate = Gate::start().await?;
    let (key, login) = (
        gate.key("agent", "*", &[]).await?,
        gate.login("person").await?,
    );
    let mut sender = Link::open_with(&gate.served.address, Some(&key)).await?;
    sender.hello(&Who::new("sender")).await?.expect("covered");
    let acts = ["in_session terminal", "acknowledged", "acknowledged"];
    let of_page = ["in_session page", "seen page"];
    for (name, credential, recorded, acts) in [
        ("reader", &key, [Some(id(&key)?), None], acts.to_vec()),
        (
            "human",
            &login,
            [None, Some(id(&login)?)],
            [&acts[..], &of_page].concat(),
        ),
    ] {
        read_and_take(&gate, &mut sender, name, credential).await?;
        let mut found = gate.served.store.audit(0, 100).await?;
        found.retain(|entry| entry.agent.as_ref().map(AgentId::as_str) == Some(name));
        let of_it = found.iter().map(|entry| match (entry.stage, entry.via) {
            (Some(stage), Some(via)) => format!("{stage} {via}"),
            _ => entry.event.to_string(),
        });
        assert_eq!(of_it.collect::<Vec<_>>(), acts);
        for entry in &found {
            let credential = [entry.key.as_deref(), entry.login.as_deref()];
            assert_eq!(credential, recorded, "{entry:?}");
        }
    }
    Ok(())
}
