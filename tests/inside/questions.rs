//! Questions of clients to people: the right to decide, the subject of a verdict, and the end of a question.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::eventually::eventually;
use harness::http;
use harness::link::{Link, Who};
use inside::gate::Gate;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Every step takes a fraction of this.
const SOON: Duration = Duration::from_secs(20);

/// A client that asks whether a command may run, and the question.
struct Asked {
    gate: Gate,
    web: Link,
    question: Value,
    key: String,
}

impl Asked {
    async fn start() -> Result<Self> {
        let gate = Gate::start().await?;
        let key = gate.key("agent", "web", &[]).await?;
        let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
        hello(&mut web).await?;
        let question = request(&mut web, "rm -r build").await?;
        Ok(Self {
            gate,
            web,
            question,
            key,
        })
    }

    fn id(&self) -> &str {
        self.question["id"].as_str().unwrap_or_default()
    }

    fn verdict(&self, decision: &str) -> Value {
        let hash = &self.question["question"]["request"]["hash"];
        json!({"verdict": {"decision": decision, "request_hash": hash}})
    }

    async fn answers(&self, with: &str, body: &Value) -> Result<(u16, Value)> {
        answer(&self.gate, with, self.id(), body).await
    }
}

async fn hello(link: &mut Link) -> Result<Value> {
    let welcome = link.hello(&Who::new("web")).await?;
    welcome.map_err(|error| anyhow::anyhow!("{error}"))
}

/// Asks people about a command.
async fn request(web: &mut Link, command: &str) -> Result<Value> {
    let part = json!({"id": "1", "text": command, "allow_text": true});
    let input = json!({"command": command}).to_string();
    let question = json!({"kind": "permission", "parts": [part], "request": {"tool": "Bash", "input": input,
        "hash": "of the sender", "generation": 700}});
    web.call(
        "request_permission",
        json!({"message": command, "question": question}),
    )
    .await
}

async fn answer(gate: &Gate, with: &str, id: &str, body: &Value) -> Result<(u16, Value)> {
    let path = format!("/api/v1/questions/{id}/answer");
    let bearer = format!("Bearer {with}");
    let headers = [("Authorization", bearer.as_str())];
    let answer = http::post(gate.address()?, &path, &headers, &body.to_string()).await?;
    let body = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    Ok((answer.status, body))
}

#[tokio::test]
async fn a_verdict_needs_the_login_of_a_person() -> Result<()> {
    let asked = Asked::start().await?;
    let admin = asked.gate.key("admin", "*", &[]).await?;
    let small = asked.gate.login("answer").await?;
    for with in [&asked.key, &admin, &small] {
        let (status, refusal) = asked.answers(with, &asked.verdict("allow")).await?;
        assert_eq!((status, &refusal["code"]), (403, &json!("FORBIDDEN")));
    }
    let ann = asked.gate.login("person").await?;
    let (status, reply) = asked.answers(&ann, &asked.verdict("allow")).await?;
    assert_eq!(status, 201, "{reply}");
    assert_eq!(reply["data"]["answer"]["verdict"]["decision"], "allow");
    Ok(())
}

#[tokio::test]
async fn a_verdict_is_about_what_was_shown_and_nothing_else() -> Result<()> {
    let mut asked = Asked::start().await?;
    let ann = asked.gate.login("person").await?;
    let other = request(&mut asked.web, "rm -r /").await?;
    let hash = |question: &Value| question["question"]["request"]["hash"].clone();
    assert_ne!(hash(&asked.question), hash(&other));
    let wrong = [
        json!({}),
        json!({"parts": [{"text": "allow"}]}),
        json!({"verdict": {"decision": "allow"}}),
        json!({"verdict": {"decision": "allow", "request_hash": "of the sender"}}),
        json!({"verdict": {"decision": "allow", "request_hash": hash(&other)}}),
        json!({"verdict": {"decision": "allow", "request_hash": hash(&asked.question), "suggestion": 0}}),
        json!({"verdict": {"decision": "maybe", "request_hash": hash(&asked.question)}}),
        json!({"verdict": {"decision": "allow", "request_hash": hash(&asked.question), "interrupt": true}}),
    ];
    let foreign_ways = ["ntfy", "dialog", "reply"].map(|via| {
        let mut verdict = asked.verdict("allow");
        verdict["via"] = json!(via);
        verdict
    });
    for body in wrong.into_iter().chain(foreign_ways) {
        let (status, refusal) = asked.answers(&ann, &body).await?;
        assert_eq!(
            (status, &refusal["code"]),
            (400, &json!("INVALID_REQUEST")),
            "{body}"
        );
    }
    let (status, _) = asked.answers(&ann, &asked.verdict("deny")).await?;
    assert_eq!(status, 201, "it is still open");
    Ok(())
}

#[tokio::test]
async fn the_first_of_many_verdicts_wins_and_the_others_learn_whose_it_was() -> Result<()> {
    let asked = Asked::start().await?;
    let address = asked.gate.address()?;
    let ann = asked.gate.login("person").await?;
    let mut racing = JoinSet::new();
    for number in 0..50 {
        let decision = if number % 2 == 0 { "allow" } else { "deny" };
        let (body, bearer) = (asked.verdict(decision), format!("Bearer {ann}"));
        let path = format!("/api/v1/questions/{}/answer", asked.id());
        racing.spawn(async move {
            let headers = [("Authorization", bearer.as_str())];
            http::post(address, &path, &headers, &body.to_string()).await
        });
    }
    let mut first = 0;
    while let Some(answer) = racing.join_next().await {
        let answer = answer??;
        let body: Value = serde_json::from_str(&answer.body)?;
        if answer.status == 201 {
            first += 1;
            continue;
        }
        assert_eq!(
            (answer.status, &body["code"]),
            (409, &json!("ALREADY_ANSWERED"))
        );
        let details = &body["details"];
        assert!(
            details["by"].is_string() && details["at"].is_string(),
            "{body}"
        );
        assert_eq!(details["via"], "rest");
    }
    assert_eq!(first, 1);
    Ok(())
}

#[tokio::test]
async fn a_verdict_goes_to_the_host_and_never_to_the_model() -> Result<()> {
    let mut asked = Asked::start().await?;
    let ann = asked.gate.login("person").await?;
    asked.answers(&ann, &asked.verdict("allow")).await?;
    let delivered = asked.web.hear(|frame| frame["method"] == "deliver").await?;
    let verdict = &delivered["params"]["messages"][0]["answer"]["verdict"];
    assert_eq!(verdict["decision"], "allow", "{delivered}");
    let inbox = asked.web.call("get_messages", json!({})).await?;
    assert_eq!(inbox["messages"], json!([]));
    let waited = asked
        .web
        .call("wait_for_message", json!({"timeout": 1}))
        .await?;
    assert_eq!(waited["timeout"], true, "{waited}");
    Ok(())
}

#[tokio::test]
async fn a_request_ends_with_its_session() -> Result<()> {
    let asked = Asked::start().await?;
    let ann = asked.gate.login("person").await?;
    let (id, verdict) = (asked.id().to_owned(), asked.verdict("allow"));
    let Asked { gate, web, key, .. } = asked;
    drop(web);
    let mut next = Link::open_with(&gate.served.address, Some(&key)).await?;
    eventually("the name is free", SOON, async || {
        hello(&mut next).await.ok()
    })
    .await?;
    let (status, refusal) = answer(&gate, &ann, &id, &verdict).await?;
    assert_eq!((status, &refusal["code"]), (410, &json!("WITHDRAWN")));
    let tracked = next
        .call("message_status", json!({"message_id": id}))
        .await?;
    ensure!(tracked["stage"] == "withdrawn", "{tracked}");
    Ok(())
}

#[tokio::test]
async fn after_the_clients_own_time_every_answer_is_too_late() -> Result<()> {
    let mut asked = Asked::start().await?;
    let ann = asked.gate.login("person").await?;
    let (id, verdict) = (asked.id().to_owned(), asked.verdict("allow"));
    let end = json!({"message_id": id, "stage": "withdrawn", "via": "time_out"});
    let tracked = asked.web.call("conclude", end).await?;
    ensure!(tracked["stage"] == "withdrawn", "{tracked}");
    for _ in 0..2 {
        let (status, refusal) = answer(&asked.gate, &ann, &id, &verdict).await?;
        assert_eq!((status, &refusal["code"]), (409, &json!("TOO_LATE")));
    }
    let terminal = json!({"message_id": id, "stage": "withdrawn", "via": "terminal"});
    let tracked = asked.web.call("conclude", terminal).await?;
    assert_eq!(tracked["history"][1]["via"], "time_out", "{tracked}");
    Ok(())
}

#[tokio::test]
async fn only_the_asker_concludes_a_question() -> Result<()> {
    let mut asked = Asked::start().await?;
    let id = asked.id().to_owned();
    let key = asked.gate.key("agent", "other", &[]).await?;
    let mut other = Link::open_with(&asked.gate.served.address, Some(&key)).await?;
    let welcome = other.hello(&Who::new("other")).await?;
    ensure!(welcome.is_ok());
    let withdraw = json!({"message_id": id, "stage": "withdrawn", "via": "terminal"});
    let refused = other.refusal("conclude", withdraw.clone()).await?;
    assert_eq!(refused, "MESSAGE_NOT_FOUND");
    for stage in ["taken", "applied"] {
        let early = json!({"message_id": id, "stage": stage, "via": "transcript"});
        let tracked = asked.web.call("conclude", early).await?;
        assert_eq!(tracked["stage"], "stored", "{stage} needs an answer");
    }
    let by_phone = json!({"message_id": id, "stage": "withdrawn", "via": "ntfy"});
    let refused = asked.web.refusal("conclude", by_phone).await?;
    assert_eq!(refused, "INVALID_REQUEST", "no person did that");
    let tracked = asked.web.call("conclude", withdraw).await?;
    assert_eq!(tracked["stage"], "withdrawn");
    let notice = json!({"target": "human", "message": "news", "requires_response": false});
    let sent = asked.web.call("send_message", notice).await?;
    let withdraw = json!({"message_id": sent["id"], "stage": "withdrawn", "via": "terminal"});
    let refused = asked.web.refusal("conclude", withdraw).await?;
    assert_eq!(refused, "MESSAGE_NOT_FOUND", "it is no question");
    Ok(())
}

#[tokio::test]
async fn a_request_of_a_tool_is_no_choice_that_looks_harmless() -> Result<()> {
    let mut asked = Asked::start().await?;
    let part =
        json!({"id": "1", "text": "Which colour?", "options": [{"id": "1", "label": "Red"}]});
    let question = json!({"kind": "choice", "parts": [part], "request": {"tool": "Bash", "input": "{}", "hash": ""}});
    let call = json!({"message": "Which colour?", "question": question});
    let refused = asked.web.refusal("request_permission", call).await?;
    assert_eq!(refused, "INVALID_REQUEST");
    Ok(())
}
