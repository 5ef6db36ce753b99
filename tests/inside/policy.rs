//! The policy: which agents may send messages to which, reloaded without a restart, and explained.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::eventually::eventually;
use harness::http;
use harness::link::Link;
use harness::process::{command, program};
use inside::served::Served;
use serde_json::{Value, json};

/// How soon a change of the file takes effect, on a machine that builds at the same time.
const RELOADED: Duration = Duration::from_secs(10);

/// Starts a coordinator with these rules in its data folder, in a file called `name`.
async fn with_rules(name: &str, rules: &str) -> Result<(Served, tempfile::TempDir)> {
    let folder = tempfile::TempDir::new()?;
    fs::write(folder.path().join(name), rules)?;
    let place = folder.path().to_owned();
    let named = (name != "policy.toml").then(|| place.join(name));
    let served = Served::start_with(|config| {
        config.data_dir = place;
        config.policy = named;
    })
    .await?;
    Ok((served, folder))
}

fn deny(from: &str, to: &str, verb: &str, reason: &str) -> String {
    format!(
        "[[rule]]\nfrom = \"{from}\"\nto = \"{to}\"\nverb = \"{verb}\"\neffect = \"deny\"\nreason = \"{reason}\"\n"
    )
}

async fn refused(link: &mut Link, tool: &str, arguments: Value) -> Result<Value> {
    let outcome = link.try_call(tool, arguments).await?;
    outcome.err().context("it was not refused")
}

fn hi(target: &str) -> Value {
    json!({"target": target, "message": "hi"})
}

#[tokio::test]
async fn a_denied_message_is_refused_with_the_rule_and_its_reason_and_nothing_is_sent() -> Result<()>
{
    let rules = deny("guest-*", "nas", "message", "guests ask the front desk");
    let (served, _folder) = with_rules("policy.toml", &rules).await?;
    let (mut guest, mut nas) = (served.join("guest-1").await?, served.join("nas").await?);
    let refusal = refused(&mut guest, "send_message", hi("nas")).await?;
    assert_eq!(refusal["code"], "FORBIDDEN_BY_POLICY");
    assert_eq!(refusal["details"]["rule"], 1);
    assert_eq!(
        refusal["error"],
        "rule 1 of the policy denies message from guest-1 to nas: guests ask the front desk"
    );
    // Another spelling of the name finds the same agent, so the same rule applies.
    assert_eq!(
        refused(&mut guest, "send_message", hi("NAS")).await?["code"],
        "FORBIDDEN_BY_POLICY"
    );
    assert_eq!(
        refused(&mut guest, "send_message", hi("nas@testhost")).await?["code"],
        "FORBIDDEN_BY_POLICY"
    );
    assert_eq!(nas.call("get_messages", json!({})).await?["count"], 0);
    // Actions that the rule does not match are allowed: the other direction, another verb, the answer.
    let asked = nas.call("send_message", hi("guest-1")).await?;
    guest
        .call(
            "reply",
            json!({"message_id": asked["id"], "response": "yes"}),
        )
        .await?;
    assert_eq!(
        guest.call("broadcast", json!({"message": "all"})).await?["recipients"],
        json!(["nas"])
    );
    Ok(())
}

#[tokio::test]
async fn a_rule_by_host_is_for_no_person() -> Result<()> {
    let (served, _folder) = with_rules("policy.toml", &deny("host:*", "nas", "*", "no")).await?;
    let (mut guest, _nas) = (served.join("guest").await?, served.join("nas").await?);
    let refusal = refused(&mut guest, "send_message", hi("nas")).await?;
    assert_eq!(refusal["code"], "FORBIDDEN_BY_POLICY");
    let headers = [("X-Agent-ID", "human"), ("X-Agent-Host", "testhost")];
    let text = hi("nas").to_string();
    let address = served.address.parse()?;
    let sent = http::post(address, "/api/v1/messages", &headers, &text).await?;
    assert_eq!(sent.status, 201, "{}", sent.body);
    Ok(())
}

#[tokio::test]
async fn a_reply_is_checked_as_one_and_the_question_stays_open() -> Result<()> {
    let (served, _folder) =
        with_rules("policy.toml", &deny("b", "*", "reply", "b only listens")).await?;
    let (mut a, mut b) = (served.join("a").await?, served.join("b").await?);
    let asked = a.call("send_message", hi("b")).await?;
    let answer = json!({"message_id": asked["id"], "response": "yes"});
    let refusal = refused(&mut b, "reply", answer).await?;
    assert_eq!(
        (&refusal["code"], &refusal["details"]["rule"]),
        (&json!("FORBIDDEN_BY_POLICY"), &json!(1))
    );
    assert_eq!(a.call("get_messages", json!({})).await?["count"], 0);
    assert_eq!(
        b.call("get_messages", json!({})).await?["count"],
        1,
        "it is still open"
    );
    b.call("send_message", hi("a")).await?;
    Ok(())
}

#[tokio::test]
async fn copies_that_are_denied_stand_in_the_receipts_and_the_others_are_sent() -> Result<()> {
    let rules = [
        deny("*", "role:vault", "broadcast", "nobody shouts at the vault"),
        deny("host:testhost", "b", "message", "b is not to be asked"),
    ];
    let (served, _folder) = with_rules("rules.toml", &rules.concat()).await?;
    let (mut a, mut b, mut c) = (
        served.join("a").await?,
        served.join("b").await?,
        served.join("c").await?,
    );
    for link in [&mut b, &mut c] {
        link.call("register_agent", json!({"role": "radio"}))
            .await?;
    }
    let copies = a.call("send_message", hi("@radio")).await?;
    assert_eq!(copies["recipients"], json!(["c"]));
    let receipts = &copies["receipts"];
    assert_eq!(
        (&receipts[0]["agent_id"], &receipts[0]["stage"]),
        (&json!("b"), &json!("refused"))
    );
    assert_eq!(receipts[0]["refusal"]["code"], "FORBIDDEN_BY_POLICY");
    assert_eq!(receipts[0]["refusal"]["details"]["rule"], 2);
    assert_eq!(receipts[1]["stage"], "stored");

    c.call("register_agent", json!({"role": "vault"})).await?;
    let copies = a.call("broadcast", json!({"message": "hi"})).await?;
    assert_eq!(
        copies["recipients"],
        json!(["b"]),
        "broadcasts have a rule of their own"
    );
    assert_eq!(copies["receipts"][1]["refusal"]["details"]["rule"], 1);
    Ok(())
}

/// Repeats the query until the answer has that effect, and returns it.
async fn settled(served: &Served, effect: &str) -> Result<Value> {
    let address = served.address.parse()?;
    eventually("the file was read again", RELOADED, async || {
        let answer = http::get(address, "/api/policy/check?from=a&to=b&verb=message")
            .await
            .ok()?;
        let answer: Value = serde_json::from_str(&answer.body).ok()?;
        (answer["effect"] == effect).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn the_file_is_read_again_and_a_broken_one_changes_nothing() -> Result<()> {
    let (served, folder) = with_rules("policy.toml", "# none yet\n").await?;
    let file = folder.path().join("policy.toml");
    let mut a = served.join("a").await?;
    served.join("b").await?;
    a.call("send_message", hi("b")).await?;
    let noticed = async |what: &str, count: usize| {
        eventually(what, RELOADED, async || changes(&served, count).await).await
    };

    fs::write(&file, deny("a", "b", "message", "not now"))?;
    let answer = settled(&served, "deny").await?;
    assert_eq!(
        (&answer["rule"], &answer["reason"]),
        (&json!(1), &json!("not now"))
    );
    assert_eq!(
        a.refusal("send_message", hi("b")).await?,
        "FORBIDDEN_BY_POLICY"
    );

    fs::write(&file, "[[rule]]\nfrom = 7\n")?;
    let heard = noticed("the broken file was noticed", 2).await?;
    assert!(
        heard[1].contains("policy.toml, line 2, column 8: ") && heard[1].contains("stay in force"),
        "{heard:?}"
    );
    outdated(&served, "policy.toml, line 2, column 8: ").await?;
    fs::remove_file(&file)?;
    let heard = noticed("the missing file was noticed", 3).await?;
    assert!(
        heard[2].ends_with("policy.toml does not exist any more"),
        "{heard:?}"
    );
    assert_eq!(
        a.refusal("send_message", hi("b")).await?,
        "FORBIDDEN_BY_POLICY"
    );

    fs::write(&file, "")?;
    let heard = noticed("the empty file was noticed", 4).await?;
    assert!(heard[3].contains("policy.toml is empty"), "{heard:?}");
    assert_eq!(
        a.refusal("send_message", hi("b")).await?,
        "FORBIDDEN_BY_POLICY"
    );
    fs::write(&file, "# none any more\n")?;
    assert!(settled(&served, "allow").await?.get("outdated").is_none());
    a.call("send_message", hi("b")).await?;
    assert_eq!(
        ask(&served, "/api/policy").await?["text"],
        "# none any more\n"
    );
    assert!(
        ask(&served, "/api/health")
            .await?
            .get("policy_outdated")
            .is_none()
    );
    Ok(())
}

async fn ask(served: &Served, path: &str) -> Result<Value> {
    Ok(serde_json::from_str(
        &http::get(served.address.parse()?, path).await?.body,
    )?)
}

/// Asserts that everything that reports the rules also reports why their file is not in force.
async fn outdated(served: &Served, why: &str) -> Result<()> {
    assert_eq!(ask(served, "/api/health").await?["policy_outdated"], true);
    let policy = ask(served, "/api/policy").await?;
    assert_eq!(
        (&policy["rules"], &policy["text"]),
        (&json!(1), &json!(deny("a", "b", "message", "not now")))
    );
    for answer in [
        policy,
        ask(served, "/api/policy/check?from=a&to=b&verb=message").await?,
    ] {
        assert!(
            answer["outdated"]
                .as_str()
                .is_some_and(|found| found.contains(why)),
            "{answer}"
        );
    }
    let home = tempfile::TempDir::new()?;
    let c3po = async |words: &[&str]| -> Result<String> {
        let mut c3po = command(program("c3po")?, home.path());
        c3po.args(words)
            .env("C3PO_COORDINATOR_URL", format!("http://{}", served.address));
        let output = c3po
            .env("PATH", "/usr/bin:/bin")
            .env("XDG_RUNTIME_DIR", home.path())
            .output()
            .await?;
        Ok(format!(
            "{}{}",
            String::from_utf8(output.stdout)?,
            String::from_utf8(output.stderr)?
        ))
    };
    for words in [
        &["policy", "show"][..],
        &["policy", "check", "a", "b", "message"],
    ] {
        let said = c3po(words).await?;
        assert!(
            said.contains(why) && said.contains("the previous rules stay in force"),
            "{said}"
        );
    }
    let said = c3po(&["doctor"]).await?;
    assert!(
        said.contains("warn  policy") && said.contains("the previous rules stay in force"),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn rules_of_another_user_change_nothing() -> Result<()> {
    let rules = deny("a", "b", "message", "not now");
    let (served, folder) = with_rules("policy.toml", &rules).await?;
    let file = folder.path().join("policy.toml");
    let mut a = served.join("a").await?;
    served.join("b").await?;
    fs::set_permissions(&file, Permissions::from_mode(0o666))?;
    fs::write(&file, "# of another user\n")?;
    let why = "policy.toml is writable by other users (mode 666): run `install -m 600 -o ";
    let heard = eventually("it was noticed", RELOADED, async || {
        changes(&served, 1).await
    })
    .await?;
    assert!(heard[0].contains(why), "{heard:?}");
    outdated(&served, why).await?;
    assert_eq!(
        a.refusal("send_message", hi("b")).await?,
        "FORBIDDEN_BY_POLICY"
    );
    fs::set_permissions(&file, Permissions::from_mode(0o644))?;
    assert!(settled(&served, "allow").await?.get("outdated").is_none());
    Ok(())
}

#[tokio::test]
async fn files_that_other_users_can_write_end_the_start() -> Result<()> {
    for (folder_mode, file_mode, name) in [
        (0o1777, 0o644, "policy.toml"),
        (0o755, 0o666, "policy.toml"),
        (0o755, 0o666, "notify.toml"),
        (0o755, 0o666, "token"),
    ] {
        let folder = tempfile::TempDir::new()?;
        let file = |name: &str| folder.path().join(name);
        fs::write(file("policy.toml"), "# none\n")?;
        fs::write(
            file("notify.toml"),
            "[[person]]\nname = \"ann\"\nserver = \"http://127.0.0.1:1\"\ntopic = \"ask\"\ntoken_file = \"token\"\n",
        )?;
        fs::write(file("token"), "tk_coordinator")?;
        fs::set_permissions(folder.path(), Permissions::from_mode(folder_mode))?;
        fs::set_permissions(file(name), Permissions::from_mode(file_mode))?;
        let served = Served::start_with(|config| config.policy = Some(file("policy.toml"))).await?;
        let ended = tokio::time::timeout(RELOADED, served.ended()).await;
        let ended = ended.context("it serves")?.err().context("no error")?;
        let why = format!("{ended:#}");
        assert!(
            why.contains(name) && why.contains("writable by other users"),
            "{name} {file_mode:o}: {why}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn replacing_the_policy_with_a_pipe_keeps_the_old_rules() -> Result<()> {
    let (served, folder) = with_rules("policy.toml", &deny("a", "b", "message", "not now")).await?;
    let file = folder.path().join("policy.toml");
    let mut a = served.join("a").await?;
    served.join("b").await?;
    fs::remove_file(&file)?;
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&file)
            .status()?
            .success()
    );
    let heard = eventually("the pipe was noticed", RELOADED, async || {
        changes(&served, 1)
            .await
            .filter(|heard| heard.iter().any(|why| why.contains("not a regular file")))
    });
    let heard = heard.await?;
    assert!(
        heard
            .last()
            .is_some_and(|why| why.contains("stay in force")),
        "{heard:?}"
    );
    assert_eq!(
        a.refusal("send_message", hi("b")).await?,
        "FORBIDDEN_BY_POLICY"
    );
    fs::remove_file(&file)?;
    fs::write(&file, "# none\n")?;
    settled(&served, "allow").await?;
    a.call("send_message", hi("b")).await?;
    Ok(())
}

/// Returns the audit entries about the policy, when there are at least `count`.
async fn changes(served: &Served, count: usize) -> Option<Vec<String>> {
    let page = http::get(served.address.parse().ok()?, "/api/audit?limit=1000")
        .await
        .ok()?;
    let page: Value = serde_json::from_str(&page.body).ok()?;
    let entries = page["entries"].as_array()?.iter();
    let changes = entries.filter(|entry| entry["event"] == "policy_changed");
    let whys: Vec<_> = changes
        .filter_map(|entry| entry["why"].as_str().map(str::to_owned))
        .collect();
    (whys.len() >= count).then_some(whys)
}

#[tokio::test]
async fn a_case_is_explained_over_rest() -> Result<()> {
    let rules = [
        deny("cam", "role:ops", "message", "cameras do not page people"),
        "[default]\nreply = \"deny\"".into(),
    ];
    let (served, _folder) = with_rules("policy.toml", &rules.concat()).await?;
    let (_cam, mut ops) = (served.join("cam").await?, served.join("ops-1").await?);
    ops.call("register_agent", json!({"role": "ops"})).await?;
    let address = served.address.parse()?;
    let ask = async |query: &str| -> Result<(u16, Value)> {
        let answer = http::get(address, &format!("/api/policy/check?{query}")).await?;
        Ok((answer.status, serde_json::from_str(&answer.body)?))
    };
    let (status, answer) = ask("from=cam&to=ops-1&verb=message").await?;
    assert_eq!(status, 200);
    assert_eq!(
        answer,
        json!({
            "effect": "deny", "rule": 1, "reason": "cameras do not page people", "verb": "message",
            "from": {"id": "cam", "known": true, "host": "testhost"},
            "to": {"id": "ops-1", "known": true, "role": "ops", "host": "testhost"},
        })
    );
    let (_, answer) = ask("from=cam&to=nobody&verb=reply").await?;
    assert_eq!(
        (&answer["effect"], &answer["to"]["known"]),
        (&json!("deny"), &json!(false))
    );
    let (_, answer) = ask("from=cam&to=ops-1&verb=reply").await?;
    assert_eq!(answer["reason"], "no rule matches, and [default] is deny");
    assert!(answer.get("rule").is_none(), "{answer}");
    for query in [
        "",
        "from=cam&to=ops-1&verb=fly",
        "from=-&to=ops-1&verb=message",
    ] {
        let (status, answer) = ask(query).await?;
        assert_eq!(
            (status, &answer["code"]),
            (400, &json!("INVALID_REQUEST")),
            "{query}: {answer}"
        );
    }
    Ok(())
}

async fn start_refused(policy: &Path) -> Result<String> {
    let named = policy.to_owned();
    let served = Served::start_with(|config| config.policy = Some(named)).await?;
    let ended = served.ended().await;
    Ok(format!("{:#}", ended.err().context("it serves")?))
}

#[tokio::test]
async fn a_broken_or_missing_file_refuses_to_start() -> Result<()> {
    let folder = tempfile::TempDir::new()?;
    let file = folder.path().join("rules.toml");
    let refusal = start_refused(&file).await?;
    assert!(
        refusal.contains("there is no") && refusal.contains("rules.toml"),
        "{refusal}"
    );
    fs::write(
        &file,
        format!("{}colour = 1\n", deny("a", "b", "message", "")),
    )?;
    let refusal = start_refused(&file).await?;
    assert!(
        refusal.contains("rules.toml, line 7, column 1: ") && refusal.contains("colour"),
        "{refusal}"
    );
    Ok(())
}
