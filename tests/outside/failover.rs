//! Two coordinators of one fleet with separate certificates, and hosts that joined at both: after any kill or refusal, every
//! session recovers without intervention.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::process::{command, join_code, program};
use harness::redis::Redis;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// The deadline for the recovery of every session: people would notice twice that.
const BACK: Duration = Duration::from_secs(10);

/// The name of the host at each join.
const HOST: &str = "box";

/// Starts a coordinator on that Redis that requires keys, over TLS with its own certificate.
async fn coordinator(folder: PathBuf, redis: &Redis) -> Result<Coordinator> {
    std::fs::create_dir(&folder)?;
    let coordinator = Coordinator::absent(&folder, &redis.url())?.over_tls("auto");
    let mut coordinator = coordinator.with("C3PO_CLOSED", Path::new("true"));
    coordinator.restart().await?;
    Ok(coordinator)
}

/// Runs an admin command on the coordinator's machine.
async fn admin(folder: &Path, coordinator: &Coordinator, words: &[&str]) -> Result<String> {
    let mut admin = command(program("c3po-coordinator")?, folder);
    let said = admin
        .args(words)
        .args(["--listen", &coordinator.address().to_string()])
        .output()
        .await?;
    ensure!(said.status.success(), "{said:?}");
    Ok(String::from_utf8(said.stdout)? + &String::from_utf8_lossy(&said.stderr))
}

/// Joins a host with the line that the coordinator prints. Returns the output for the host.
async fn join(home: &Path, folder: &Path, coordinator: &Coordinator) -> Result<String> {
    join_with(home, &admin(folder, coordinator, &["invite"]).await?).await
}

/// Does the same with an invite that was printed earlier.
async fn join_with(home: &Path, said: &str) -> Result<String> {
    let line = said
        .lines()
        .find(|line| line.contains("c3po join "))
        .with_context(|| said.to_owned())?;
    let url = line.split_whitespace().last().context("a URL")?;
    let mut c3po = c3po(home, &["join", url])?;
    let joined = c3po
        .env("C3PO_JOIN_CODE", join_code(line)?)
        .output()
        .await?;
    ensure!(joined.status.success(), "{joined:?}");
    Ok(String::from_utf8(joined.stdout)?)
}

/// Runs a printed command in a shell on the coordinator's machine. Returns its output.
async fn pasted(folder: &Path, line: &str) -> Result<String> {
    let path = program("c3po-coordinator")?
        .parent()
        .context("a folder")?
        .display()
        .to_string();
    let mut shell = command("sh", folder);
    let said = shell
        .args(["-c", line])
        .env("PATH", format!("{path}:/usr/bin:/bin"))
        .output()
        .await?;
    ensure!(said.status.success(), "{line}: {said:?}");
    Ok(String::from_utf8(said.stdout)?)
}

fn c3po(home: &Path, words: &[&str]) -> Result<Command> {
    let mut c3po = command(program("c3po")?, home);
    c3po.args(words)
        .env("C3PO_HOST", HOST)
        .env("XDG_RUNTIME_DIR", home)
        .env("PATH", "/usr/bin:/bin");
    Ok(c3po)
}

async fn person(home: &Path, words: &[&str]) -> Result<std::process::Output> {
    Ok(c3po(home, words)?.output().await?)
}

fn file(home: &Path) -> PathBuf {
    home.join(".config/c3po/config.toml")
}

/// Starts a session on a host that is configured by its file alone.
async fn session(home: &Path, project: &str) -> Result<McpClient> {
    let folder = home.join(project);
    std::fs::create_dir_all(&folder)?;
    let mut proxy = command(program("c3po")?, home);
    proxy
        .arg("proxy")
        .current_dir(&folder)
        .env("CLAUDE_PROJECT_DIR", &folder)
        .env("XDG_RUNTIME_DIR", home);
    let client = McpClient::start(proxy, &home.join(format!("{project}.log")))?;
    client.initialize().await?;
    Ok(client)
}

/// Waits until a session has a link, and returns the reply of `ping`.
async fn back(session: &McpClient) -> Result<Value> {
    eventually("the session is back", BACK, async || {
        let pong = session.call("ping", json!({})).await.ok()?;
        pong.json().ok().filter(|_| !pong.is_error)
    })
    .await
}

/// One session sends a message, and the other one receives and answers it.
async fn converse(asks: &McpClient, answers: &McpClient, text: &str) -> Result<()> {
    let sent = asks
        .reply(
            "send_message",
            json!({"target": "answers", "message": text}),
        )
        .await?;
    let got = answers
        .reply("wait_for_message", json!({"timeout": 10}))
        .await?;
    assert_eq!(
        (&got["id"], got["message"].as_str()),
        (&sent["id"], Some(text))
    );
    answers
        .reply(
            "reply",
            json!({"message_id": sent["id"], "response": "yes"}),
        )
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_are_back_in_ten_seconds_after_either_coordinator_is_killed() -> Result<()> {
    let (work, home, redis) = (TempDir::new()?, TempDir::new()?, Redis::start().await?);
    let (nas_folder, laptop_folder) = (work.path().join("nas"), work.path().join("laptop"));
    let mut nas = coordinator(nas_folder.clone(), &redis).await?;
    let mut laptop = coordinator(laptop_folder.clone(), &redis).await?;
    ensure!(
        nas.fingerprint()? != laptop.fingerprint()?,
        "each has a certificate of its own"
    );
    let first = join(home.path(), &nas_folder, &nas).await?;
    ensure!(
        first.contains("Next: `c3po install`") && !first.contains("same fleet"),
        "{first}"
    );
    let second = join(home.path(), &laptop_folder, &laptop).await?;
    ensure!(
        second.contains(&format!("It serves the same fleet as {}", nas.url())),
        "{second}"
    );
    let again = join(home.path(), &nas_folder, &nas).await?;
    ensure!(
        again.contains(&format!("It also uses {}", laptop.url())),
        "{again}"
    );
    let written = std::fs::read_to_string(file(home.path()))?;
    ensure!(
        written.contains(&format!(
            "coordinator_url = \"{},{}\"",
            nas.url(),
            laptop.url()
        )),
        "{written}"
    );

    let (asks, answers) = (
        session(home.path(), "asks").await?,
        session(home.path(), "answers").await?,
    );
    let mut longest = Duration::ZERO;
    for turn in ["nas", "laptop", "nas again"] {
        for session in [&asks, &answers] {
            back(session).await?;
        }
        let killed = if turn == "laptop" {
            &mut laptop
        } else {
            &mut nas
        };
        killed.kill().await?;
        let began = Instant::now();
        for session in [&asks, &answers] {
            back(session).await?;
        }
        longest = longest.max(began.elapsed());
        converse(&asks, &answers, turn).await?;
        killed.restart().await?;
    }
    eprintln!("the longest way back took {longest:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_certificate_among_several_is_passed_over_and_doctor_reports_each() -> Result<()> {
    let (work, home, redis) = (TempDir::new()?, TempDir::new()?, Redis::start().await?);
    let (nas_folder, laptop_folder) = (work.path().join("nas"), work.path().join("laptop"));
    let mut nas = coordinator(nas_folder.clone(), &redis).await?;
    let laptop = coordinator(laptop_folder, &redis).await?;
    join(home.path(), &nas_folder, &nas).await?;
    // The laptop is listed first, but the host does not have its certificate.
    let written = std::fs::read_to_string(file(home.path()))?;
    std::fs::write(
        file(home.path()),
        written.replace(&nas.url(), &format!("{},{}", laptop.url(), nas.url())),
    )?;

    let session = session(home.path(), "web").await?;
    back(&session).await?;
    let agents = person(home.path(), &["agents"]).await?;
    ensure!(
        agents.status.success() && String::from_utf8_lossy(&agents.stdout).contains("web"),
        "{agents:?}"
    );
    let doctor = person(home.path(), &["doctor", "--json"]).await?;
    let found: Value = serde_json::from_slice(&doctor.stdout)?;
    let urls: Vec<_> = found["findings"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| one["check"] == "url")
        .collect();
    let verdict = |url: &str| {
        let of_url = urls.iter().find(|one| {
            one["found"]
                .as_str()
                .is_some_and(|found| found.contains(url))
        });
        of_url.map(|one| (one["verdict"].clone(), one["found"].to_string()))
    };
    let (failed, why) = verdict(&laptop.url()).context("the laptop's is reported")?;
    ensure!(
        failed == "fail" && why.contains("another certificate"),
        "{failed} {why}"
    );
    let (fine, why) = verdict(&nas.url()).context("the other one is reported")?;
    ensure!(fine == "ok", "{fine} {why}");

    // The only trusted one is down for a moment. The other one's certificate is no reason to give up.
    nas.kill().await?;
    let told = session.call("ping", json!({})).await?;
    ensure!(
        told.is_error && told.json()?["code"] == "COORD_DOWN",
        "{told:?}"
    );
    ensure!(told.text.contains("another certificate"), "{told:?}");
    nas.restart().await?;
    back(&session).await?;
    Ok(())
}

#[tokio::test]
async fn a_session_whose_key_was_changed_is_back_by_itself_once_its_host_joined_again() -> Result<()>
{
    let (work, home, redis) = (TempDir::new()?, TempDir::new()?, Redis::start().await?);
    let folder = work.path().join("nas");
    let nas = coordinator(folder.clone(), &redis).await?;
    join(home.path(), &folder, &nas).await?;
    let session = session(home.path(), "web").await?;
    back(&session).await?;
    let written = std::fs::read_to_string(file(home.path()))?;
    let key = written
        .split("c3po_")
        .nth(1)
        .and_then(|rest| rest.split('_').next())
        .context("a key")?;
    let rotated = admin(&folder, &nas, &["keys", "rotate", key]).await?;
    eventually("the session is refused", BACK, async || {
        let pong = session.call("ping", json!({})).await.ok()?;
        (pong.is_error && pong.text.contains("UNAUTHORIZED")).then_some(())
    })
    .await?;

    // The old text of the key no longer identifies the host, so the invite that was printed for this case names the host.
    let invite = rotated
        .lines()
        .find(|line| line.contains(" invite --host "))
        .context("the way back")?;
    let told = join_with(home.path(), &pasted(&folder, invite).await?).await?;
    let end = told
        .lines()
        .find(|line| line.contains("older key"))
        .context("the older key is named")?;
    back(&session).await?;
    // The printed command revokes the older key, pasted unchanged.
    pasted(&folder, end.split('`').nth(1).context("a command")?).await?;
    let keys = admin(&folder, &nas, &["keys", "list"]).await?;
    ensure!(
        keys.lines()
            .any(|line| line.contains(key) && line.contains("revoked")),
        "{keys}"
    );
    assert_eq!(
        back(&session).await?["agent_id"],
        "web",
        "the new one admits it"
    );
    Ok(())
}

#[tokio::test]
async fn a_login_is_used_at_a_coordinator_of_its_fleet_that_was_added_later() -> Result<()> {
    let (work, home, redis) = (TempDir::new()?, TempDir::new()?, Redis::start().await?);
    let (nas_folder, laptop_folder) = (work.path().join("nas"), work.path().join("laptop"));
    let mut nas = coordinator(nas_folder.clone(), &redis).await?;
    let laptop = coordinator(laptop_folder.clone(), &redis).await?;
    join(home.path(), &nas_folder, &nas).await?;
    let words = ["login", "Ann", "--scope", "answer", "--json"];
    let made = admin(&nas_folder, &nas, &words).await?;
    let mut made = serde_json::Deserializer::from_str(&made).into_iter::<Value>();
    let made = made.next().context("a login")??;
    let code = made["code"].as_str().context("a code")?;
    let given = work.path().join("code");
    std::fs::write(&given, code)?;
    let mut login = c3po(home.path(), &["login", &nas.url(), "--yes"])?;
    let done = login.stdin(std::fs::File::open(&given)?).output().await?;
    ensure!(done.status.success(), "{done:?}");

    join(home.path(), &laptop_folder, &laptop).await?;
    nas.kill().await?;
    let sent = person(home.path(), &["send", "human", "I am back", "--json"]).await?;
    let sent: Value = serde_json::from_slice(&sent.stdout).with_context(|| format!("{sent:?}"))?;
    ensure!(
        sent["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("human::")),
        "{sent}"
    );
    Ok(())
}
