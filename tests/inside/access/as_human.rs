//! No key of any scope, nor the token, nor a client of the network without a login acts as `human`: over every path and tool.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_coordinator::config::Config;
use c3po_coordinator::store::{Key, Selection};
use c3po_shared::audit::Entry;
use c3po_shared::catalogue::Tool;
use c3po_shared::ids::AgentId;
use c3po_shared::limits::KEYS_MAX;
use harness::eventually::eventually;
use harness::http::Answer;
use harness::link::{Link, Who};
use inside::gate::{Gate, id};
use serde_json::{Value, json};

use super::{arguments, ask, call};

const TOKEN: &str = "a token of everybody";
/// How long a changed key may take to be noticed.
const SOON: Duration = Duration::from_secs(20);

/// Returns a key that names `human`, as an earlier build made it.
async fn key_for_human(gate: &Gate) -> Result<String> {
    let (key, store) = (gate.key("agent", "*", &[]).await?, &gate.served.store);
    let of = id(&key)?;
    let kept = store.keys().await?.into_iter().find(|kept| kept.id == of);
    let kept = kept.context("the key")?;
    let named = Key {
        agents: vec!["human".into()],
        revision: kept.revision + 1,
        ..kept
    };
    ensure!(store.put_key(&named, None, KEYS_MAX, None).await?);
    eventually("it is read again", SOON, async || {
        let other = ask(gate, "GET", "/api/pending", Some(&key), Some("web"), "").await;
        (other.ok()?.status == 403).then_some(())
    })
    .await?;
    Ok(key)
}

/// Sends a question to the person. Returns its id.
async fn asked(gate: &Gate, key: Option<&str>) -> Result<String> {
    let mut web = Link::open_with(&gate.served.address, key).await?;
    web.hello(&Who::new("web")).await?.expect("an agent");
    let question = json!({"target": "human", "message": "May I?", "requires_response": true});
    let sent = web.call("send_message", question).await?;
    Ok(sent["id"].as_str().context("an id")?.to_owned())
}

fn check_refused(answer: &Answer, at: &str) {
    assert_eq!(answer.status, 403, "{at}: {}", answer.body);
    assert!(answer.body.contains("FORBIDDEN"), "{at}: {}", answer.body);
    assert!(answer.body.contains("c3po login"), "{at}: {}", answer.body);
}

async fn try_rest(gate: &Gate, key: Option<&str>, question: &str) -> Result<()> {
    let human = Some("human");
    for path in [
        "/api/pending".to_owned(),
        "/api/sent".to_owned(),
        "/api/v1/messages".to_owned(),
        format!("/api/v1/threads/{question}"),
        format!("/api/v1/messages/{question}/receipt"),
    ] {
        check_refused(&ask(gate, "GET", &path, key, human, "").await?, &path);
        let as_coordinator = ask(gate, "GET", &path, key, Some("system"), "").await?;
        assert_eq!(
            as_coordinator.status, 403,
            "{path}: {}",
            as_coordinator.body
        );
    }
    let path = "/api/unregister";
    check_refused(&ask(gate, "POST", path, key, human, "").await?, path);
    // Without a login, the name means the person of the host, which has no such message.
    let reply = format!("/api/v1/messages/{question}/reply");
    let body = json!({"response": "yes"}).to_string();
    for named in [human, None] {
        let answer = ask(gate, "POST", &reply, key, named, &body).await?;
        ensure!([403, 404].contains(&answer.status), "{}", answer.body);
        let body = json!({"target": "web", "message": "I am a person"}).to_string();
        let answer = ask(gate, "POST", "/api/v1/messages", key, named, &body).await?;
        ensure!([201, 403].contains(&answer.status), "{}", answer.body);
        let body = json!({"message_ids": [question]}).to_string();
        let answer = ask(
            gate,
            "POST",
            "/api/v1/messages/acknowledge",
            key,
            named,
            &body,
        )
        .await?;
        ensure!([200, 403].contains(&answer.status), "{}", answer.body);
    }
    Ok(())
}

async fn try_mcp(gate: &Gate, key: Option<&str>, question: &str) -> Result<()> {
    for tool in Tool::ALL.iter().filter(|tool| tool.is_listed()) {
        let arguments = arguments(*tool, "yes", [question, question]);
        let refused = call(gate, key, "human", tool.name(), &arguments).await?;
        assert_eq!(refused, (200, Some("FORBIDDEN".to_owned())), "{tool:?}");
    }
    Ok(())
}

async fn try_link(gate: &Gate, key: Option<&str>, question: &str) -> Result<()> {
    let mut link = Link::open_with(&gate.served.address, key).await?;
    let refused = link.hello(&Who::new("human")).await?;
    let refused = refused.expect_err("a session is not a person").to_string();
    ensure!(refused.contains("c3po login"), "{refused}");
    for more in [
        json!({"person": true}),
        json!({"person": true, "reach": ["terminal"]}),
        json!({"person": true, "leftover": true}),
    ] {
        let mut link = Link::open_with(&gate.served.address, key).await?;
        let who = Who {
            more,
            ..Who::new("human")
        };
        let Ok(welcome) = link.hello(&who).await? else {
            continue;
        };
        assert_ne!(welcome["agent_id"], "human");
        for tool in Tool::ALL {
            let arguments = arguments(*tool, "yes", [question, question]);
            // Its outcome does not matter here: the inbox of the person does, afterwards.
            let _ = link.try_call(tool.name(), arguments).await?;
        }
    }
    Ok(())
}

async fn check(gate: &Gate, keys: Vec<Option<String>>) -> Result<()> {
    let question = asked(gate, keys[0].as_deref()).await?;
    for key in &keys {
        let key = key.as_deref();
        try_rest(gate, key, &question).await?;
        try_mcp(gate, key, &question).await?;
        try_link(gate, key, &question).await?;
    }
    let (store, all) = (
        &gate.served.store,
        Selection {
            limit: 100,
            ..Selection::default()
        },
    );
    let inbox = store.inbox(&AgentId::human(), all).await?;
    ensure!(
        inbox
            .iter()
            .any(|placed| placed.message.id.as_str() == question)
    );
    let kept = store
        .message(&question.parse()?)
        .await?
        .context("it is kept")?;
    ensure!(kept.reply.is_none() && kept.history.len() == 1, "{kept:?}");
    for agent in store.agents(None, 100).await? {
        for placed in store.inbox(&agent.id, all).await? {
            assert_ne!(placed.message.from_agent, AgentId::human());
        }
    }
    Ok(())
}

#[tokio::test]
async fn no_key_and_no_token_acts_as_the_person() -> Result<()> {
    let token = |config: &mut Config| config.token = TOKEN.parse().ok();
    let gate = Gate::start_with(token).await?;
    let mut keys = vec![Some(TOKEN.to_owned())];
    for scope in ["agent", "admin"] {
        keys.push(Some(gate.key(scope, "*", &[]).await?));
        let refused = gate.key(scope, "*,human", &[]).await;
        let refused = format!("{:#}", refused.expect_err("no key is for a person"));
        ensure!(refused.contains("no key covers human"), "{refused}");
    }
    keys.push(Some(key_for_human(&gate).await?));
    check(&gate, keys).await?;
    let refused = gate.ask(&["invite", "--agents", "*,human"]).await;
    ensure!(format!("{:#}", refused.expect_err("nor an invite")).contains("no key covers human"));
    Ok(())
}

#[tokio::test]
async fn on_an_open_network_only_a_login_acts_as_the_person() -> Result<()> {
    let open = |config: &mut Config| {
        config.is_open = true;
        config.public_url = Some("http://nas:8420".to_owned());
    };
    let gate = Gate::start_with(open).await?;
    check(&gate, vec![None]).await
}

/// Checks that no client gives `human` a state, a description or a host, which would count for every person.
async fn has_no_state(gate: &Gate, login: Option<&str>) -> Result<()> {
    let mut person = Link::open_with(&gate.served.address, login).await?;
    person
        .hello(&Who::person("human"))
        .await?
        .expect("admitted");
    for (tool, arguments) in [
        ("set_status", json!({"status": "away"})),
        (
            "register_agent",
            json!({"description": "do what triage asks"}),
        ),
    ] {
        assert_eq!(
            person.refusal(tool, arguments).await?,
            "FORBIDDEN",
            "{tool}"
        );
    }
    let human = gate.served.store.agent(&AgentId::human()).await?;
    let host = human.context("human")?.host;
    assert_eq!(
        host, None,
        "a rule about a host does not count for everybody"
    );
    Ok(())
}

#[tokio::test]
async fn a_person_reads_sends_and_answers_with_a_login_and_without_one_on_this_machine()
-> Result<()> {
    let closed = Gate::start().await?;
    let (key, login) = (
        closed.key("agent", "*", &[]).await?,
        closed.login("answer").await?,
    );
    let open = Gate::start_with(|config| config.is_open = true).await?;
    let strict = Gate::start_with(|config| {
        config.is_open = true;
        config.answers_need_login = true;
    });
    let strict = strict.await?;
    for (gate, key, login, recorded, answers) in [
        (
            &closed,
            Some(key.as_str()),
            Some(login.as_str()),
            id(&login)?,
            true,
        ),
        (&open, None, None, "local", true),
        (&strict, None, None, "local", false),
    ] {
        let question = asked(gate, key).await?;
        let inbox = ask(gate, "GET", "/api/v1/messages", login, Some("human"), "").await?;
        ensure!(
            inbox.status == 200 && inbox.body.contains(&question),
            "{}",
            inbox.body
        );
        has_no_state(gate, login).await?;
        let body = json!({"target": "web", "message": "hello"}).to_string();
        let sent = ask(gate, "POST", "/api/v1/messages", login, None, &body).await?;
        let sent: Value = serde_json::from_str(&sent.body)?;
        assert_eq!(sent["data"]["from_agent"], "human");
        let reply = format!("/api/v1/messages/{question}/reply");
        let body = json!({"response": "yes"}).to_string();
        let answer = ask(gate, "POST", &reply, login, None, &body).await?;
        let log = gate.served.store.audit(0, 100).await?;
        let of_human = |entry: &&Entry| entry.agent == Some(AgentId::human());
        let logins: Vec<_> = log
            .iter()
            .filter(of_human)
            .map(|entry| entry.login.as_deref())
            .collect();
        assert_eq!(logins, vec![Some(recorded); 1 + usize::from(answers)]);
        assert_eq!(
            answer.status,
            if answers { 201 } else { 403 },
            "{}",
            answer.body
        );
    }
    Ok(())
}
