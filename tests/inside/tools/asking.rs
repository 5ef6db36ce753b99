//! Questions to people: `ask_user` with and without a wait, its outcomes, and notices.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_shared::ids::CallId;
use c3po_shared::limits::QUESTIONS_PER_AGENT;
use c3po_shared::question::WAITING_PATH;
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use inside::served::Served;
use serde_json::{Value, json};

use super::{each, id, two_agents};

/// How long something may take, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(20);

/// Returns the open questions, as people see them.
async fn open(served: &Served) -> Result<Value> {
    let address: SocketAddr = served.address.parse()?;
    let answer = http::get(address, "/api/v1/questions").await?;
    let listed: Value = serde_json::from_str(&answer.body)?;
    Ok(listed["data"]["questions"].clone())
}

/// Answers a question as a person without a login.
async fn answer(served: &Served, question: &str, content: Value) -> Result<Value> {
    let address: SocketAddr = served.address.parse()?;
    let path = format!("/api/v1/questions/{question}/answer");
    let answer = http::post(address, &path, &[], &content.to_string()).await?;
    ensure!(answer.status == 201, "{}", answer.body);
    Ok(serde_json::from_str(&answer.body)?)
}

/// Asks without a wait. Returns the id of the question.
async fn ask(link: &mut Link, more: Value) -> Result<String> {
    let mut call = json!({"question": "Which database?", "wait": false});
    for (name, value) in more.as_object().context("members")? {
        call[name] = value.clone();
    }
    Ok(id(&link.call("ask_user", call).await?))
}

async fn refusal(link: &mut Link, tool: &str, arguments: Value) -> Result<Value> {
    let outcome = link.try_call(tool, arguments).await?;
    outcome.err().context("it is not refused")
}

#[tokio::test]
async fn a_long_list_of_questions_comes_in_pages() -> Result<()> {
    let (served, mut link, _other) = two_agents().await?;
    let address: SocketAddr = served.address.parse()?;
    let mut asked = Vec::new();
    for _ in 0..QUESTIONS_PER_AGENT {
        let context = "x".repeat(40 << 10);
        asked.push(ask(&mut link, json!({"context": context})).await?);
    }
    let (mut listed, mut pages, mut from) = (Vec::new(), 0, String::new());
    loop {
        let answer = http::get(address, &format!("/api/v1/questions{from}")).await?;
        ensure!(answer.body.len() < 1 << 20, "{} bytes", answer.body.len());
        let page: Value = serde_json::from_str(&answer.body)?;
        let page = &page["data"];
        let on_page = each(&page["questions"], "id");
        ensure!(on_page.len() <= 4, "others get turns: {on_page:?}");
        listed.extend(on_page);
        pages += 1;
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        from = format!("?cursor={cursor}");
    }
    ensure!(listed == asked && pages > 1, "{pages} pages: {listed:?}");
    let wrong = http::get(address, "/api/v1/questions?cursor=x").await?;
    ensure!(wrong.status == 400, "{}", wrong.body);
    Ok(())
}

#[tokio::test]
async fn the_answer_of_a_person_is_the_result_of_ask_user_any_number_of_times() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let call = json!({"question": "Which database?", "options": ["SQLite", "Redis"], "context": "small host"});
    let waiting = homeassistant
        .begin(CallId::fresh(), "ask_user", call)
        .await?;
    let question = eventually("it is open", SOON, async || {
        let questions = open(&served).await.ok()?;
        questions[0]["id"].is_string().then(|| questions[0].clone())
    })
    .await?;
    let part = json!({"id": "1", "text": "Which database?", "allow_text": true,
        "options": [{"id": "1", "label": "SQLite"}, {"id": "2", "label": "Redis"}]});
    assert_eq!(
        question["question"],
        json!({"kind": "ask", "parts": [part]})
    );
    assert_eq!(
        (&question["context"], &question["priority"]),
        (&json!("small host"), &json!("high"))
    );
    let content = json!({"parts": [{"options": ["2"], "text": "the existing one"}]});
    let sent = answer(&served, &id(&question), content).await?;
    let answered = homeassistant
        .end(waiting)
        .await?
        .map_err(anyhow::Error::msg)?;
    let expected = json!({"question_id": question["id"], "status": "answered",
        "answers": [{"options": ["Redis"], "text": "the existing one"}], "answered_by": "local (not verified)", "via": "rest",
        "reply_id": sent["data"]["id"], "waited_seconds": answered["waited_seconds"]});
    assert_eq!(answered, expected);
    homeassistant.notify("goodbye", json!({})).await?;
    // With a close frame or without one: the session is over.
    homeassistant.hear_close().await.ok();
    let mut later = served.join("homeassistant").await?;
    let again = later
        .call("ask_user", json!({"question_id": question["id"]}))
        .await?;
    assert_eq!(again, expected, "also in a later session");
    Ok(())
}

#[tokio::test]
async fn a_question_that_nobody_answers_stays_open_and_its_wait_is_no_error() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let check = |outcome: &Value, words: &str| {
        let note = outcome["note"].as_str().unwrap_or_default();
        assert!(
            note.contains(words) && outcome["answers"].is_null(),
            "{outcome}"
        );
        assert_eq!(outcome["status"], "no_response");
    };
    let asked = json!({"question": "Which database?", "timeout": 1});
    let outcome = homeassistant.call("ask_user", asked).await?;
    check(&outcome, "Do not ask again in a loop");
    let again = json!({"question_id": outcome["question_id"], "timeout": 1, "on_no_response": "best_judgment"});
    let again = homeassistant.call("ask_user", again).await?;
    check(&again, "best judgment and record the assumption");
    assert_eq!(
        each(&open(&served).await?, "id"),
        [outcome["question_id"].as_str().unwrap_or_default()]
    );
    Ok(())
}

#[tokio::test]
async fn a_withdrawn_question_ends_the_waits_for_it_and_is_open_no_more() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, json!({})).await?;
    let waiting = homeassistant
        .begin(
            CallId::fresh(),
            "ask_user",
            json!({"question_id": question}),
        )
        .await?;
    let conclude = json!({"message_id": question, "stage": "withdrawn", "via": "tool_call"});
    let concluding = homeassistant
        .begin(CallId::fresh(), "conclude", conclude)
        .await?;
    let outcome = homeassistant
        .end(waiting)
        .await?
        .map_err(anyhow::Error::msg)?;
    assert_eq!(outcome["status"], "withdrawn", "{outcome}");
    homeassistant
        .end(concluding)
        .await?
        .map_err(anyhow::Error::msg)?;
    assert_eq!(open(&served).await?, json!([]));
    Ok(())
}

#[tokio::test]
async fn only_questions_of_the_caller_to_people_are_waited_for() -> Result<()> {
    let (_served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let question = ask(&mut homeassistant, json!({})).await?;
    let of_other = refusal(
        &mut meshtastic,
        "ask_user",
        json!({"question_id": question}),
    )
    .await?;
    assert_eq!(of_other["code"], "MESSAGE_NOT_FOUND");
    let to_agent = super::ask(&mut homeassistant, "not to people").await?;
    let refused = refusal(
        &mut homeassistant,
        "ask_user",
        json!({"question_id": to_agent}),
    )
    .await?;
    assert_eq!(refused["code"], "INVALID_REQUEST");
    for arguments in [
        json!({}),
        json!({"question": "a", "question_id": question}),
        json!({"question_id": question, "wait": false}),
        json!({"question": "a", "options": ["x", "x", "x", "x", "x", "x", "x", "x", "x", "x", "x"]}),
        json!({"question": "a", "allow_text": false}),
        json!({"question": "a", "timeout": 86_401}),
    ] {
        let refused = refusal(&mut homeassistant, "ask_user", arguments.clone()).await?;
        let code = refused["code"].as_str().unwrap_or_default();
        assert!(
            ["INVALID_REQUEST", "PAYLOAD_TOO_LARGE"].contains(&code),
            "{arguments}: {refused}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_has_a_limit_of_open_questions_and_notices_do_not_count() -> Result<()> {
    let (_served, mut homeassistant, _meshtastic) = two_agents().await?;
    for _ in 0..QUESTIONS_PER_AGENT {
        ask(&mut homeassistant, json!({})).await?;
    }
    let refused = refusal(
        &mut homeassistant,
        "ask_user",
        json!({"question": "one more?"}),
    )
    .await?;
    assert_eq!(
        (&refused["code"], &refused["details"]["limit"]),
        (&json!("TOO_MANY_QUESTIONS"), &json!(QUESTIONS_PER_AGENT))
    );
    let notice = homeassistant
        .call("notify_user", json!({"message": "done", "title": "Build"}))
        .await?;
    assert_eq!(
        (
            &notice["priority"],
            &notice["requires_response"],
            &notice["to_agent"]
        ),
        (&json!("low"), &json!(false), &json!("human"))
    );
    Ok(())
}

#[tokio::test]
async fn an_escalation_asks_urgently_or_reports_about_an_open_question() -> Result<()> {
    let (served, mut homeassistant, _meshtastic) = two_agents().await?;
    let call = json!({"reason": "the disk is full", "message": "Delete the backups?", "options": ["yes", "no"]});
    let asked = homeassistant.call("escalate_to_human", call).await?;
    assert_eq!(
        (&asked["priority"], &asked["context"], &asked["message"]),
        (
            &json!("urgent"),
            &json!("the disk is full"),
            &json!("Delete the backups?")
        )
    );
    let about = json!({"reason": "nobody else may decide", "question_id": asked["id"]});
    let notice = homeassistant.call("escalate_to_human", about).await?;
    assert_eq!(
        (&notice["thread_id"], &notice["requires_response"]),
        (&asked["thread_id"], &json!(false))
    );
    // A person may answer with the label of an option.
    answer(&served, &id(&asked), json!({"parts": [{"options": ["1"]}]})).await?;
    let outcome = json!({"question_id": asked["id"]});
    let outcome = homeassistant.call("ask_user", outcome).await?;
    assert_eq!(outcome["answers"], json!([{"options": ["yes"]}]));
    Ok(())
}

#[tokio::test]
async fn an_agent_shows_for_how_long_it_has_been_asking_people() -> Result<()> {
    let (served, mut homeassistant, mut meshtastic) = two_agents().await?;
    let address: SocketAddr = served.address.parse()?;
    let seen = async |link: &mut Link| -> Result<[Value; 3]> {
        let listed = link.call("list_agents", json!({})).await?;
        let one = json!({"agent_id": "homeassistant"});
        let status = link.call("get_agent_status", one).await?;
        let all: Value = serde_json::from_str(&http::get(address, "/api/agents").await?.body)?;
        let asking = |agents: &Value| {
            let mut agents = agents.as_array().into_iter().flatten();
            let agent = agents.find(|agent| agent["id"] == "homeassistant");
            agent.map_or(Value::Null, |agent| agent["asking_seconds"].clone())
        };
        assert_eq!(
            listed["agents"][1]["asking_seconds"],
            Value::Null,
            "{listed}"
        );
        Ok([
            asking(&listed["agents"]),
            status["asking_seconds"].clone(),
            asking(&all),
        ])
    };
    assert_eq!(
        seen(&mut meshtastic).await?,
        [Value::Null, Value::Null, Value::Null]
    );
    let first = ask(&mut homeassistant, json!({})).await?;
    eventually("a second passes", SOON, async || {
        let ages = seen(&mut meshtastic).await.ok()?;
        ages.iter().all(|age| age.as_u64() >= Some(1)).then_some(())
    })
    .await?;
    let second = ask(&mut homeassistant, json!({})).await?;
    let [of_oldest, ..] = seen(&mut meshtastic).await?;
    assert!(of_oldest.as_u64() >= Some(1), "{of_oldest}");
    let waiting: Value = serde_json::from_str(&http::get(address, WAITING_PATH).await?.body)?;
    assert_eq!(waiting["data"]["count"], 2, "{waiting}");
    assert!(
        waiting["data"]["oldest_seconds"].as_u64() >= Some(1),
        "{waiting}"
    );
    for question in [first, second] {
        answer(&served, &question, json!({"parts": [{"text": "SQLite"}]})).await?;
    }
    assert_eq!(
        seen(&mut meshtastic).await?,
        [Value::Null, Value::Null, Value::Null]
    );
    let waiting: Value = serde_json::from_str(&http::get(address, WAITING_PATH).await?.body)?;
    assert_eq!(waiting["data"], json!({"count": 0}));
    Ok(())
}
