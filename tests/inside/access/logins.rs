//! Logins of people: a code makes one, the token speaks as the person, and no coordinator accepts it once it has ended.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use c3po_coordinator::config::{Fleet, StoreAddress};
use c3po_coordinator::store::{self, Login, Selection};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::{
    LOGIN_CODES_MAX, LOGIN_EXTENDED_EVERY, LOGIN_LIFE, WRONG_CODES_PER_MINUTE,
};
use c3po_shared::time::Timestamp;
use harness::eventually::eventually;
use harness::http::{self, Answer};
use harness::link::{Link, Who};
use harness::redis::Redis;
use inside::gate::{Gate, id};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{ask, code};

/// How long a change at one coordinator may take to arrive at another.
const SOON: Duration = Duration::from_secs(1);

async fn log_in(gate: &Gate, body: &Value) -> Result<Answer> {
    http::post(gate.address()?, "/api/v1/login", &[], &body.to_string()).await
}

async fn me(gate: &Gate, token: &str) -> Result<Answer> {
    ask(gate, "GET", "/api/v1/me", Some(token), None, "").await
}

fn read(answer: &Answer) -> Result<Value> {
    let body: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    Ok(body.get("data").cloned().unwrap_or(body))
}

/// A code from the control socket makes one login, whose token is accepted until it is revoked.
async fn lives_and_ends(gate: &Gate, other: Option<&Gate>) -> Result<()> {
    let code_of = gate.login_code("operator").await?;
    let body = json!({"code": code_of, "device": "phone"});
    let made = log_in(gate, &body).await?;
    assert_eq!(made.status, 200, "{}", made.body);
    let made = read(&made)?;
    let token = made["token"].as_str().context("a token")?;
    assert!(token.starts_with("c3po-login_"), "{token}");
    let again = log_in(gate, &body).await?;
    assert_eq!(
        (again.status, code(&again).as_deref()),
        (401, Some("UNAUTHORIZED"))
    );
    for gate in [Some(gate), other].into_iter().flatten() {
        let found = eventually("it is known", SOON * 5, async || {
            Some(me(gate, token).await.ok()?).filter(|answer| answer.status == 200)
        })
        .await?;
        let found = read(&found)?;
        assert_eq!(found["kind"], "login");
        assert_eq!(found["login"], made["login"], "{found}");
        let login = &found["login"];
        assert_eq!(
            (&login["name"], &login["scope"]),
            (&json!("ann"), &json!("operator"))
        );
        assert_eq!(
            (&login["device"], &login["made_by"]),
            (&json!("phone"), &json!("local"))
        );
        assert_eq!(found["answers_as"], "ann");
    }
    gate.revoke_login(token).await?;
    let revoked = Instant::now();
    for gate in [Some(gate), other].into_iter().flatten() {
        eventually("it is refused", SOON * 5, async || {
            (me(gate, token).await.ok()?.status == 401).then_some(())
        })
        .await?;
        ensure!(revoked.elapsed() < SOON, "{:?}", revoked.elapsed());
    }
    Ok(())
}

#[tokio::test]
async fn a_code_makes_one_login_that_is_accepted_until_it_is_revoked() -> Result<()> {
    lives_and_ends(&Gate::start().await?, None).await
}

#[tokio::test]
async fn a_login_is_accepted_and_refused_by_every_coordinator_of_a_redis() -> Result<()> {
    let redis = Redis::start().await?;
    let address: StoreAddress = redis.url().parse()?;
    let start = async || Gate::start_with(|config| config.store = address.clone()).await;
    let (one, other) = (start().await?, start().await?);
    lives_and_ends(&one, Some(&other)).await?;
    lives_and_ends(&other, Some(&one)).await
}

#[tokio::test]
async fn the_links_of_a_login_end_with_it() -> Result<()> {
    let gate = Gate::start().await?;
    let token = gate.login("answer").await?;
    let mut link = Link::open_with(&gate.served.address, Some(&token)).await?;
    let welcome = link.hello(&Who::person("human")).await?.expect("a person");
    assert_eq!(welcome["agent_id"], "human");
    gate.revoke_login(&token).await?;
    let closed = timeout(SOON * 5, link.hear_close()).await;
    ensure!(closed.is_ok(), "it goes on");
    assert!(
        Link::open_with(&gate.served.address, Some(&token))
            .await
            .is_err()
    );
    Ok(())
}

#[tokio::test]
async fn a_login_speaks_as_the_person_and_never_as_a_session() -> Result<()> {
    let gate = Gate::start().await?;
    for scope in ["answer", "person", "operator", "admin"] {
        let token = gate.login(scope).await?;
        for who in [
            Who::new("mine"),
            Who::person("mine"),
            Who::new("human"),
            Who::person("somebody-cli"),
        ] {
            let mut link = Link::open_with(&gate.served.address, Some(&token)).await?;
            let refused = link.hello(&who).await?.expect_err("not the person");
            assert_eq!(refused["data"]["code"], "FORBIDDEN", "{scope} {who:?}");
        }
        let mut link = Link::open_with(&gate.served.address, Some(&token)).await?;
        link.hello(&Who::person("human"))
            .await?
            .expect("the person");
    }
    Ok(())
}

#[tokio::test]
async fn a_login_gets_the_smaller_scope_of_the_code_and_the_request() -> Result<()> {
    let gate = Gate::start().await?;
    for (offered, wished, expected) in [
        ("admin", "answer", "answer"),
        ("answer", "admin", "answer"),
        ("operator", "operator", "operator"),
    ] {
        let code = gate.login_code(offered).await?;
        // As a person might type it.
        let typed = format!(" {}-{} ", code[..9].to_uppercase(), &code[9..]);
        let made = log_in(&gate, &json!({"code": typed, "scope": wished})).await?;
        assert_eq!(read(&made)?["login"]["scope"], expected, "{}", made.body);
    }
    Ok(())
}

#[tokio::test]
async fn wrong_codes_are_limited_and_a_right_one_is_accepted_nevertheless() -> Result<()> {
    let gate = Gate::start().await?;
    let code_of = gate.login_code("person").await?;
    let wrong = json!({"code": "abcdefghijklmnopqrstuvwxyz"});
    let mut statuses = Vec::new();
    for _ in 0..=WRONG_CODES_PER_MINUTE {
        statuses.push(log_in(&gate, &wrong).await?.status);
    }
    assert_eq!((statuses[0], statuses.last()), (401, Some(&429)));
    assert_eq!(log_in(&gate, &json!({"code": code_of})).await?.status, 200);
    let join = ask(
        &gate,
        "POST",
        "/api/join",
        None,
        None,
        r#"{"code":"x","host":"a"}"#,
    )
    .await?;
    assert_eq!(join.status, 401, "the codes of hosts have their own limit");
    Ok(())
}

#[tokio::test]
async fn so_many_codes_are_open_at_once() -> Result<()> {
    let gate = Gate::start().await?;
    for _ in 0..LOGIN_CODES_MAX {
        gate.login_code("answer").await?;
    }
    let refused = gate.login_code("answer").await.expect_err("one too many");
    assert!(refused.to_string().contains("100 open codes"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_login_is_extended_when_it_is_used() -> Result<()> {
    let gate = Gate::start().await?;
    let token = gate.login("person").await?;
    let store = &gate.served.store;
    let made = store.logins().await?.pop().context("a login")?;
    let earlier = Login {
        expires_at: made.created_at + (LOGIN_LIFE - 2 * LOGIN_EXTENDED_EVERY),
        revision: 2,
        ..made
    };
    ensure!(store.put_login(&earlier, None, None).await?);
    let address = StoreAddress::Sqlite(gate.served.folder().join("c3po.db"));
    let folder = gate.served.stop().await?;
    let gate = Gate::start_with(|config| config.store = address.clone()).await?;
    assert_eq!(me(&gate, &token).await?.status, 200);
    gate.served.stop().await?;
    let store = store::open(&address, &Fleet::default()).await?;
    let extended = store.logins().await?.pop().context("a login")?;
    assert!(extended.expires_at > Timestamp::now() + (LOGIN_LIFE - LOGIN_EXTENDED_EVERY));
    assert_eq!(extended.revision, 3);
    store.close().await;
    drop(folder);
    Ok(())
}

#[tokio::test]
async fn a_login_ends_itself_and_no_other() -> Result<()> {
    let gate = Gate::start().await?;
    let (mine, other) = (gate.login("operator").await?, gate.login("person").await?);
    let path = |token: &str| Ok::<_, anyhow::Error>(format!("/api/v1/logins/{}", id(token)?));
    let refused = ask(&gate, "DELETE", &path(&other)?, Some(&mine), None, "").await?;
    assert_eq!(refused.status, 403, "{}", refused.body);
    let ended = ask(&gate, "DELETE", &path(&mine)?, Some(&mine), None, "").await?;
    assert_eq!(
        (ended.status, &read(&ended)?["state"]),
        (200, &json!("revoked"))
    );
    assert_eq!(me(&gate, &mine).await?.status, 401);
    assert_eq!(me(&gate, &other).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_code_ends_with_the_login_that_made_it() -> Result<()> {
    let gate = Gate::start().await?;
    let admin = gate.login("admin").await?;
    let offer = async || {
        let body = r#"{"name":"bob"}"#;
        let made = ask(&gate, "POST", "/api/v1/logins", Some(&admin), None, body).await?;
        Ok::<_, anyhow::Error>(read(&made)?["code"].clone())
    };
    let (first, second) = (offer().await?, offer().await?);
    let made = log_in(&gate, &json!({"code": first})).await?;
    let made_by = format!("login-{}", id(&admin)?);
    assert_eq!(read(&made)?["login"]["made_by"], made_by.as_str());
    gate.revoke_login(&admin).await?;
    assert_eq!(log_in(&gate, &json!({"code": second})).await?.status, 401);
    Ok(())
}

/// Makes a login, a key and an invite with an admin login, and a key with that key, and rotates an older key. Returns their
/// kinds and ids.
async fn make_everything(
    gate: &Gate,
    admin: &str,
    older: &str,
) -> Result<Vec<(&'static str, String)>> {
    let make = async |path: &str, with: &str, body: &str| {
        read(&ask(gate, "POST", path, Some(with), None, body).await?)
    };
    let text = |made: &Value, name: &str| made[name].as_str().map(str::to_owned).context("a text");
    let admins = r#"{"name":"mallory","scope":"admin"}"#;
    let offered = make("/api/v1/logins", admin, admins).await?;
    let login = read(&log_in(gate, &json!({"code": offered["code"]})).await?)?;
    let key = make("/api/v1/keys", admin, admins).await?;
    let other = make("/api/v1/keys", &text(&key, "key")?, admins).await?;
    let invite = make("/api/v1/invites", admin, "{}").await?;
    make(&format!("/api/v1/keys/{older}/rotate"), admin, "").await?;
    Ok(vec![
        ("login", text(&login["login"], "id")?),
        ("key", text(&key, "id")?),
        ("key", text(&other, "id")?),
        ("invite", text(&invite, "id")?),
        ("key", older.to_owned()),
    ])
}

#[tokio::test]
async fn a_revocation_lists_the_offspring_of_the_login_or_key() -> Result<()> {
    for redis in [None, Some(Redis::start().await?)] {
        let address: Option<StoreAddress> = redis
            .as_ref()
            .map(|redis| redis.url().parse())
            .transpose()?;
        let gate = Gate::start_with(|config| {
            config.store = address.unwrap_or_else(|| config.store.clone());
        })
        .await?;
        let (admin, person) = (gate.login("admin").await?, gate.login("person").await?);
        gate.key("agent", "*", &[]).await?;
        let older = gate.key("admin", "*", &[]).await?;
        let older = older.split('_').nth(1).context("an id")?;
        let made = make_everything(&gate, &admin, older).await?;
        let said = gate.ask(&["logins", "revoke", id(&admin)?]).await?;
        for (kind, id) in &made {
            let command = format!(" {kind}s revoke {id} --data-dir");
            ensure!(
                said.contains(&format!("  The {kind} {id}")) && said.contains(&command),
                "{said}"
            );
        }
        ensure!(said.matches(" revoke ").count() == made.len(), "{said}");
        // Revoked once more, it lists what is still valid.
        let said = gate.ask(&["keys", "revoke", &made[1].1]).await?;
        ensure!(
            said.contains(&format!("  The key {} of", made[2].1)),
            "{said}"
        );
        let left = gate
            .ask(&["logins", "revoke", id(&admin)?, "--json"])
            .await?;
        let left: Value = serde_json::from_str(&left)?;
        let left = left["made"].as_array().context("a list")?;
        let ids: Vec<_> = left.iter().map(|made| made["id"].as_str()).collect();
        ensure!(
            ids.len() == 4 && ids.contains(&Some(&made[2].1)),
            "{left:?}"
        );
        let said = gate.ask(&["logins", "revoke", id(&person)?]).await?;
        ensure!(said.ends_with(" of ann is revoked."), "{said}");
    }
    Ok(())
}

/// Makes something of the scope `admin` with that credential. Returns the answer.
async fn make_admin(gate: &Gate, path: &str, token: &str) -> Result<Value> {
    let body = r#"{"name":"mallory","scope":"admin"}"#;
    let answer = ask(gate, "POST", path, Some(token), None, body).await?;
    ensure!(answer.status == 200, "{path}: {}", answer.body);
    read(&answer)
}

/// Makes an admin key with that credential. Returns its text.
async fn make_key(gate: &Gate, token: &str) -> Result<String> {
    let made = make_admin(gate, "/api/keys", token).await?;
    Ok(made["key"].as_str().context("a key")?.to_owned())
}

/// Makes an admin login with that one. Returns its token.
async fn make_login(gate: &Gate, token: &str) -> Result<String> {
    let offered = make_admin(gate, "/api/v1/logins", token).await?;
    let made = read(&log_in(gate, &json!({"code": offered["code"]})).await?)?;
    Ok(made["token"].as_str().context("a token")?.to_owned())
}

/// Deletes the records of an ended login and an ended key, as further ones do when the limit is reached.
async fn make_room(gate: &Gate, login: &str, key: &str) -> Result<()> {
    let store = &gate.served.store;
    let logins = store.logins().await?;
    let ended = logins.iter().find(|one| one.id == login);
    store.forget_login(ended.context("a login")?).await?;
    let keys = store.keys().await?;
    let ended = keys.iter().find(|one| one.id == key);
    Ok(store.forget_key(ended.context("a key")?).await?)
}

#[tokio::test]
async fn a_login_or_key_whose_record_is_deleted_to_make_room_hides_nothing() -> Result<()> {
    for redis in [None, Some(Redis::start().await?)] {
        let address: Option<StoreAddress> = redis
            .as_ref()
            .map(|redis| redis.url().parse())
            .transpose()?;
        let gate = Gate::start_with(|config| {
            config.store = address.unwrap_or_else(|| config.store.clone());
        })
        .await?;
        // Each first one makes a second one, which makes a third one and ends.
        let first = gate.login("admin").await?;
        let second = make_login(&gate, &first).await?;
        let third = make_login(&gate, &second).await?;
        let first_key = gate.key("admin", "*", &[]).await?;
        let second_key = make_key(&gate, &first_key).await?;
        let third_key = make_key(&gate, &second_key).await?;
        gate.revoke_login(&second).await?;
        gate.revoke(&second_key).await?;
        make_room(&gate, id(&second)?, id(&second_key)?).await?;
        let lost_login = format!("login-{}", id(&second)?);
        for (kind, first, third, lost) in [
            ("login", id(&first)?, id(&third)?, lost_login.as_str()),
            ("key", id(&first_key)?, id(&third_key)?, id(&second_key)?),
        ] {
            let said = gate.ask(&[&format!("{kind}s"), "revoke", first]).await?;
            let line = format!(
                "  The {kind} {third} of mallory, scope admin, made by {lost}, which is not stored any more\n"
            );
            ensure!(
                said.contains("It may have made") && said.contains(&line),
                "{line}: {said}"
            );
        }
        for (kind, lost, third) in [
            ("login", id(&second)?, id(&third)?),
            ("key", id(&second_key)?, id(&third_key)?),
        ] {
            let revoke = [&format!("{kind}s"), "revoke", lost];
            let refused = gate.ask(&revoke).await.err().context("no record")?;
            let made = format!("These are certain: {kind} {third}. A maker");
            ensure!(format!("{refused:#}").contains(&made), "{refused:#}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_login_that_ends_gets_no_secret_by_a_request_that_it_began_before() -> Result<()> {
    let gate = Gate::start().await?;
    let store = &gate.served.store;
    for (path, body) in [
        ("/api/keys", json!({"name": "thief", "scope": "admin"})),
        ("/api/invites", json!({"scope": "admin"})),
    ] {
        let (admin, body) = (gate.login("admin").await?, body.to_string());
        let (begin, rest) = body.split_at(5);
        let mut making = TcpStream::connect(gate.address()?).await?;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Authorization: Bearer {admin}\r\nContent-Length: {}\r\n\r\n{begin}",
            body.len()
        );
        making.write_all(head.as_bytes()).await?;
        // The request has begun when a later one is answered.
        assert_eq!(me(&gate, &admin).await?.status, 200);
        let of = id(&admin)?;
        let logins = store.logins().await?;
        let login = logins.into_iter().find(|login| login.id == of);
        let login = login.context("no login")?;
        let ended = Login {
            revoked_at: Some(Timestamp::now()),
            revision: login.revision + 1,
            ..login
        };
        // As another coordinator does it: this one learns of it later.
        ensure!(store.put_login(&ended, None, None).await?);
        making.write_all(rest.as_bytes()).await?;
        let mut answer = String::new();
        timeout(SOON * 5, making.read_to_string(&mut answer)).await??;
        ensure!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    }
    Ok(())
}

#[tokio::test]
async fn each_change_of_a_login_is_in_the_audit() -> Result<()> {
    let gate = Gate::start().await?;
    let token = gate.login("person").await?;
    gate.revoke_login(&token).await?;
    let found = eventually("all are written", SOON * 20, async || {
        let entries = gate.served.store.audit(0, 100).await.ok()?;
        let changes: Vec<_> = entries
            .into_iter()
            .filter(|entry| entry.event.as_str() == "login_changed")
            .collect();
        (changes.len() == 3).then_some(changes)
    })
    .await?;
    let verbs: Vec<_> = found
        .iter()
        .filter_map(|entry| entry.verb.as_deref())
        .collect();
    assert_eq!(verbs, ["offered", "logged_in", "revoked"]);
    assert_eq!(found[1].login.as_deref(), Some(id(&token)?));
    assert_eq!(found[2].why.as_deref(), Some("person for ann, by local"));
    let selection = Selection {
        limit: 10,
        ..Selection::default()
    };
    let notices = eventually("people are told", SOON * 20, async || {
        let mail = gate
            .served
            .store
            .inbox(&AgentId::human(), selection)
            .await
            .ok()?;
        (mail.len() == 3).then_some(mail)
    })
    .await?;
    for notice in &notices {
        let message = &notice.message;
        assert_eq!(
            (message.from_agent.as_str(), message.requires_response),
            ("system", false)
        );
        assert!(!message.text().contains("c3po-login_"), "{message:?}");
    }
    let all = serde_json::to_string(&found)?;
    // The secret itself may contain the sign.
    assert!(!all.contains(token.splitn(3, '_').nth(2).context("a secret")?));
    Ok(())
}
