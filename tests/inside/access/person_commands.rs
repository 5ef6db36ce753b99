//! `c3po login`: the commands of a host act as its person, with a login that answers and sends and nothing more.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use c3po_coordinator::store::Selection;
use c3po_shared::ids::AgentId;
use harness::eventually::eventually;
use harness::link::{Link, Who};
use harness::process::{command, program};
use harness::pty;
use inside::gate::Gate;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// How long a command may take, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

/// Returns a command of a host with that key.
fn of_host(gate: &Gate, home: &Path, key: &str, words: &[&str]) -> Result<Command> {
    let mut c3po = command(program("c3po")?, home);
    let url = format!("http://{}", gate.served.address);
    c3po.args(words)
        .env("C3PO_COORDINATOR_URL", url)
        .env("C3PO_TOKEN", key);
    Ok(c3po)
}

/// Runs `c3po` on a host with that key.
pub(super) async fn c3po(
    gate: &Gate,
    home: &Path,
    key: &str,
    words: &[&str],
    input: &str,
) -> Result<Output> {
    let mut c3po = of_host(gate, home, key, words)?;
    c3po.stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut c3po = c3po.spawn()?;
    // A program that does not read its input may have closed it.
    let _ = c3po
        .stdin
        .take()
        .context("a standard input")?
        .write_all(input.as_bytes())
        .await;
    Ok(c3po.wait_with_output().await?)
}

/// Returns the senders of the messages in the inbox of an agent.
async fn senders(gate: &Gate, agent: &str) -> Result<Vec<String>> {
    let selection = Selection {
        limit: 10,
        ..Selection::default()
    };
    let agent: AgentId = agent.parse()?;
    let mail = gate.served.store.inbox(&agent, selection).await?;
    Ok(mail
        .iter()
        .map(|placed| placed.message.from_agent.to_string())
        .collect())
}

#[tokio::test]
async fn a_code_does_not_go_to_a_coordinator_that_only_the_environment_names() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let url = format!("http://{}", gate.served.address);
    let file = home.path().join(".config/c3po/config.toml");
    fs::create_dir_all(file.parent().context("a folder")?)?;
    fs::write(&file, "coordinator_url = \"https://nas:8420\"\n")?;
    let code = gate.login_code("person").await?;
    let words = ["login", &url, "--yes"];
    let refused = c3po(&gate, home.path(), &key, &words, &code).await?;
    let why = String::from_utf8(refused.stderr)?;
    ensure!(why.contains("the environment names another"), "{why}");
    ensure!(gate.served.store.logins().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_login_names_the_certificate_and_its_file_before_the_code_is_sent() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let url = format!("http://{}", gate.served.address);
    let run = async |words: &[&str]| {
        let ran = c3po(&gate, home.path(), &key, words, "wrong\n").await?;
        anyhow::Ok(String::from_utf8(ran.stderr)?)
    };
    let said = run(&["login", &url, "--yes"]).await?;
    let first = said.lines().next().unwrap_or_default();
    ensure!(
        first.starts_with(&format!("The code goes to {url}: nothing identifies it")),
        "{said}"
    );
    // The home of this test is not that of its user.
    let moved = format!(
        "moved that to {}",
        home.path().join(".config/c3po/config.toml").display()
    );
    ensure!(first.contains(&moved), "{said}");
    Ok(())
}

#[tokio::test]
async fn commands_of_a_host_with_a_login_act_as_the_person() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
    web.hello(&Who::new("web")).await?.expect("an agent");
    let url = format!("http://{}", gate.served.address);
    let file = home.path().join(".config/c3po/person.toml");
    let run =
        async |words: &[&str], input: &str| c3po(&gate, home.path(), &key, words, input).await;

    let sent = run(&["send", "web", "one"], "").await?;
    ensure!(sent.status.success(), "{sent:?}");
    let code = gate.login_code("admin").await?;
    for (words, input, status) in [
        (&["login", &url][..], code.as_str(), 2),
        (&["login", &url, "--yes"][..], "wrong\n", 1),
        (&["login", &url, &code, "--yes"][..], "", 2),
        (
            &["login", "http://127.0.0.1:1", "--yes"][..],
            code.as_str(),
            2,
        ),
    ] {
        let refused = run(words, input).await?;
        let is_refused = refused.status.code() == Some(status) && !file.exists();
        ensure!(is_refused, "{words:?}: {refused:?}");
    }

    let done = run(&["login", &url, "--yes"], &format!("{code}\n")).await?;
    ensure!(done.status.success(), "{done:?}");
    let said = String::from_utf8(done.stdout)?;
    ensure!(said.starts_with("Logged in as ann until "), "{said}");
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600);
    let logins = gate.served.store.logins().await?;
    ensure!(
        logins.len() == 1 && logins[0].scope.as_str() == "answer",
        "{logins:?}"
    );

    let sent = run(&["send", "web", "two"], "").await?;
    ensure!(sent.status.success(), "{sent:?}");
    let other = run(&["send", "web", "three", "--as", "somebody-cli"], "").await?;
    ensure!(other.status.success(), "{other:?}");
    assert_eq!(
        senders(&gate, "web").await?,
        ["somebody-cli", "human", "somebody-cli"]
    );
    let sent = run(&["sent", "--json"], "").await?;
    ensure!(
        String::from_utf8_lossy(&sent.stdout).contains("human"),
        "{sent:?}"
    );
    let agents = run(&["agents"], "").await?;
    ensure!(
        agents.status.success(),
        "with the key of the host: {agents:?}"
    );

    let out = run(&["logout"], "").await?;
    ensure!(out.status.success() && !file.exists(), "{out:?}");
    ensure!(gate.served.store.logins().await?[0].revoked_at.is_some());
    let again = run(&["logout"], "").await?;
    ensure!(again.status.success(), "{again:?}");
    Ok(())
}

#[tokio::test]
async fn a_new_login_of_a_host_ends_the_one_before() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let url = format!("http://{}", gate.served.address);
    for ended_before in [[false].as_slice(), &[true, false]] {
        let code = gate.login_code("answer").await?;
        let words = ["login", &url, "--yes"];
        let done = c3po(&gate, home.path(), &key, &words, &code).await?;
        ensure!(done.status.success(), "{done:?}");
        let mut logins = gate.served.store.logins().await?;
        logins.sort_by_key(|login| login.created_at);
        let ended = logins.iter().map(|login| login.revoked_at.is_some());
        ensure!(ended.eq(ended_before.iter().copied()), "{logins:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_revoked_login_is_reported_and_the_host_is_not_told_to_join() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let url = format!("http://{}", gate.served.address);
    let code = gate.login_code("answer").await?;
    let done = c3po(&gate, home.path(), &key, &["login", &url, "--yes"], &code).await?;
    ensure!(done.status.success(), "{done:?}");
    let id = gate.served.store.logins().await?[0].id.clone();
    gate.ask(&["logins", "revoke", &id]).await?;
    let refused = c3po(&gate, home.path(), &key, &["inbox"], "").await?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(refused.status.code() == Some(1), "{refused:?}");
    ensure!(
        said.contains("the login is unknown, was revoked, or has expired"),
        "{said}"
    );
    ensure!(said.contains("c3po-coordinator login"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_question_is_counted_and_leaves_the_inbox_of_people_by_an_answer_alone() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
    web.hello(&Who::new("web")).await?.expect("an agent");
    let call = json!({"question": "Which one?", "options": ["red", "blue"], "wait": false});
    let asked = web.call("ask_user", call).await?;
    let id = asked["id"].as_str().context("an id")?.to_owned();
    let run =
        async |words: &[&str], input: &str| c3po(&gate, home.path(), &key, words, input).await;
    let url = format!("http://{}", gate.served.address);
    let code = gate.login_code("answer").await?;
    let done = run(&["login", &url, "--yes"], &code).await?;
    ensure!(done.status.success(), "{done:?}");
    let status = run(&["status"], "").await?;
    let said = String::from_utf8_lossy(&status.stdout);
    ensure!(
        said.contains("human") && said.contains("1 question"),
        "{status:?}"
    );
    let taken_out = run(&["ack", &id], "").await?;
    let said = String::from_utf8_lossy(&taken_out.stderr);
    let is_refused = taken_out.status.code() == Some(1) && said.contains("by an answer");
    ensure!(is_refused, "{taken_out:?}");
    let done = run(&["reply", &id, "Blue"], "").await?;
    ensure!(done.status.success(), "{done:?}");
    let outcome = web.call("ask_user", json!({"question_id": id})).await?;
    assert_eq!(outcome["answers"], json!([{"options": ["blue"]}]));
    Ok(())
}

#[tokio::test]
async fn questions_are_listed_and_answered_with_a_login_alone() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
    web.hello(&Who::new("web")).await?.expect("an agent");
    let call = json!({"question": "Which one?", "options": ["red", "blue"], "wait": false});
    let asked = web.call("ask_user", call).await?;
    let id = asked["id"].as_str().context("an id")?.to_owned();
    let run =
        async |words: &[&str], input: &str| c3po(&gate, home.path(), &key, words, input).await;
    let answer = ["answer", &id, "--option", "2"];
    for words in [&["questions"][..], &answer] {
        let refused = run(words, "").await?;
        let said = String::from_utf8_lossy(&refused.stderr);
        let is_refused = refused.status.code() == Some(1) && said.contains("c3po login URL");
        ensure!(is_refused, "{words:?}: {refused:?}");
    }
    let url = format!("http://{}", gate.served.address);
    let code = gate.login_code("person").await?;
    let done = run(&["login", &url, "--yes"], &code).await?;
    ensure!(done.status.success(), "{done:?}");
    let listed = run(&["questions"], "").await?;
    let said = String::from_utf8_lossy(&listed.stdout);
    let is_listed =
        said.contains(&id) && said.contains("> Which one?") && said.contains("  2  blue");
    ensure!(is_listed, "{listed:?}");
    let wrong = run(&["answer", &id, "--option", "3"], "").await?;
    ensure!(wrong.status.code() == Some(2), "{wrong:?}");
    // The agent may have withdrawn the question that a person read, and asked another one whose id ends in the same way.
    let end = id.rsplit("::").next().unwrap_or_default();
    let unseen = run(&["answer", end, "--option", "2"], "y\n").await?;
    let said = String::from_utf8_lossy(&unseen.stderr);
    let is_refused = unseen.status.code() == Some(2) && said.contains(&id);
    ensure!(is_refused, "{unseen:?}");
    let done = run(&answer, "").await?;
    ensure!(done.status.success(), "{done:?}");
    let late = run(&["answer", &id, "red"], "").await?;
    let said = String::from_utf8_lossy(&late.stderr);
    ensure!(
        late.status.code() == Some(1) && said.contains("answered"),
        "{late:?}"
    );
    let outcome = web.call("ask_user", json!({"question_id": id})).await?;
    assert_eq!(
        (
            &outcome["answers"],
            &outcome["answered_by"],
            &outcome["via"]
        ),
        (
            &json!([{"options": ["blue"]}]),
            &json!("ann"),
            &json!("terminal")
        )
    );
    Ok(())
}

#[tokio::test]
async fn a_terminal_shows_the_message_that_a_whole_id_has_by_now() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
    web.hello(&Who::new("web")).await?.expect("an agent");
    let url = format!("http://{}", gate.served.address);
    let code = gate.login_code("person").await?;
    let done = c3po(&gate, home.path(), &key, &["login", &url, "--yes"], &code).await?;
    ensure!(done.status.success(), "{done:?}");
    let call = json!({"question": "Delete the backups?", "wait": false});
    let asked = web.call("ask_user", call).await?;
    let id = asked["id"].as_str().context("an id")?;
    for command in ["answer", "reply"] {
        let typed = of_host(&gate, home.path(), &key, &[command, id, "yes"])?;
        let shown = pty::output(typed, Some("[y/N]")).await?;
        ensure!(
            shown.contains("> Delete the backups?"),
            "{command}: {shown}"
        );
    }
    ensure!(gate.served.store.open_questions().await?.len() == 1);
    // Without a terminal, a whole id is enough.
    let done = c3po(&gate, home.path(), &key, &["reply", id, "no"], "").await?;
    ensure!(done.status.success(), "{done:?}");
    Ok(())
}

#[tokio::test]
async fn answers_are_saved_listed_and_deleted_with_a_login_alone() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let run =
        async |words: &[&str], input: &str| c3po(&gate, home.path(), &key, words, input).await;
    let add = ["answers", "add", "style", "As in the other files."];
    for words in [
        &add[..],
        &["answers", "list"],
        &["answers", "remove", "style"],
    ] {
        let refused = run(words, "").await?;
        let said = String::from_utf8_lossy(&refused.stderr);
        let is_refused = refused.status.code() == Some(1) && said.contains("c3po login URL");
        ensure!(is_refused, "{words:?}: {refused:?}");
    }
    let url = format!("http://{}", gate.served.address);
    let code = gate.login_code("answer").await?;
    let done = run(&["login", &url, "--yes"], &code).await?;
    ensure!(done.status.success(), "{done:?}");
    for name in ["", "a\u{1b}[2Jb", &"n".repeat(41)] {
        let wrong = run(&["answers", "add", name, "text"], "").await?;
        ensure!(!wrong.status.success(), "{name:?}: {wrong:?}");
    }
    ensure!(run(&add, "").await?.status.success());
    let piped = run(&["answers", "add", "two lines", "-"], "one\n\u{1b}[2Jtwo").await?;
    ensure!(piped.status.success(), "{piped:?}");
    let listed = run(&["answers", "list"], "").await?;
    let said = String::from_utf8_lossy(&listed.stdout).into_owned();
    let is_listed = said.contains("style  As in the other files.\ntwo lines  one");
    ensure!(is_listed && !said.contains('\u{1b}'), "{said:?}");
    let file = home.path().join(".config/c3po/answers.toml");
    ensure!(fs::metadata(&file)?.permissions().mode() & 0o777 == 0o600);
    for status in [0, 2] {
        let removed = run(&["answers", "remove", "two lines"], "").await?;
        ensure!(removed.status.code() == Some(status), "{removed:?}");
    }
    let listed = run(&["answers", "list", "--json"], "").await?;
    let listed: Value = serde_json::from_slice(&listed.stdout)?;
    let expected = json!({"answers": {"style": "As in the other files."}});
    assert_eq!(listed, expected);
    Ok(())
}

#[tokio::test]
async fn the_asker_reads_that_an_answer_was_saved_and_whose_it_is() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let mut web = Link::open_with(&gate.served.address, Some(&key)).await?;
    web.hello(&Who::new("web")).await?.expect("an agent");
    let run =
        async |words: &[&str], input: &str| c3po(&gate, home.path(), &key, words, input).await;
    let url = format!("http://{}", gate.served.address);
    let code = gate.login_code("answer").await?;
    ensure!(
        run(&["login", &url, "--yes"], &code)
            .await?
            .status
            .success()
    );
    let add = ["answers", "add", "style", "As in the other files."];
    ensure!(run(&add, "").await?.status.success());
    let mut ask = async |needs_person: bool| {
        let call = json!({"question": "Which style?", "wait": false, "needs_person": needs_person});
        let asked = web.call("ask_user", call).await?;
        anyhow::Ok(asked["id"].as_str().context("an id")?.to_owned())
    };
    let (id, of_person) = (ask(false).await?, ask(true).await?);
    for (id, name) in [(&id, "none"), (&of_person, "style")] {
        let refused = run(&["answer", id, "--saved", name], "").await?;
        ensure!(!refused.status.success(), "{refused:?}");
    }
    let done = run(&["answer", &id, "--saved", "style", "--json"], "").await?;
    let sent: Value = serde_json::from_slice(&done.stdout)?;
    let text = "[saved answer style of ann] As in the other files.";
    assert_eq!(sent["response"], text);
    let outcome = web.call("ask_user", json!({"question_id": id})).await?;
    assert_eq!(outcome["answered_by"], "ann");
    let note = "It is the saved answer style of ann, not written for this question.";
    assert_eq!(outcome["note"], note);
    Ok(())
}

#[tokio::test]
async fn a_script_asks_people_and_ends_with_4_if_nobody_answers() -> Result<()> {
    let (gate, home) = (Gate::start().await?, TempDir::new()?);
    let key = gate.key("agent", "*", &[]).await?;
    let run = async |words: &[&str]| c3po(&gate, home.path(), &key, words, "").await;
    let unanswered = run(&["ask", "Go on?", "--timeout", "1", "--json"]).await?;
    ensure!(unanswered.status.code() == Some(4), "{unanswered:?}");
    let outcome: Value = serde_json::from_slice(&unanswered.stdout)?;
    ensure!(outcome["status"] == "no_response", "{outcome}");
    let asked = ["ask", "Which one?", "--option", "red", "--option", "blue"];
    let login = gate.login("person").await?;
    let answering = async {
        let question = eventually("the question", SOON, async || {
            let answer =
                super::ask(&gate, "GET", "/api/v1/questions", Some(&login), None, "").await;
            let listed: Value = serde_json::from_str(&answer.ok()?.body).ok()?;
            let questions = listed["data"]["questions"].as_array()?.clone();
            let is_it = |question: &&Value| question["message"] == "Which one?";
            questions.iter().find(is_it)?["id"]
                .as_str()
                .map(str::to_owned)
        })
        .await?;
        let path = format!("/api/v1/questions/{question}/answer");
        let body = json!({"parts": [{"options": ["1"], "text": "please"}]}).to_string();
        super::ask(&gate, "POST", &path, Some(&login), None, &body).await
    };
    let (answered, _) = tokio::try_join!(run(&asked), answering)?;
    assert_eq!(String::from_utf8(answered.stdout)?, "red\nplease\n");
    let notice = run(&["notify", "done", "--title", "Build"]).await?;
    ensure!(notice.status.success(), "{notice:?}");
    let mail = senders(&gate, "human").await?;
    // The open question and the notice; others are notices about logins.
    let of_script = mail.iter().filter(|sender| sender.ends_with("-cli"));
    ensure!(of_script.count() == 2, "{mail:?}");
    Ok(())
}

#[tokio::test]
async fn doctor_reports_whether_permission_requests_are_relayed() -> Result<()> {
    let home = TempDir::new()?;
    let file = home.path().join(".config/c3po/config.toml");
    fs::create_dir_all(file.parent().context("a folder")?)?;
    for (switch, begins) in [("", "off: "), ("relay_permissions = true\n", "on: ")] {
        let url = "coordinator_url = \"http://127.0.0.1:1\"\n";
        fs::write(&file, format!("{url}{switch}"))?;
        let mut doctor = command(program("c3po")?, home.path());
        let output = doctor.args(["doctor", "--json"]).output().await?;
        let document: Value = serde_json::from_slice(&output.stdout)?;
        let mut findings = document["findings"].as_array().into_iter().flatten();
        let relay = findings.find(|finding| finding["check"] == "relay");
        let found = relay.and_then(|relay| relay["found"].as_str());
        ensure!(
            found.is_some_and(|found| found.starts_with(begins)),
            "{document}"
        );
    }
    Ok(())
}
