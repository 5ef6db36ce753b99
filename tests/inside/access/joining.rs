//! A new host up to its first message: with the c3po program, and with only curl.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::mcp::McpClient;
use harness::process::{command, join_code, program};
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

/// The most verbose log level that does not name a library which logs whole messages.
const LOUD: &str = "trace";

/// The variables that name a proxy for curl.
const PROXIES: [&str; 5] = [
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "all_proxy",
    "ALL_PROXY",
];

/// Starts a coordinator that requires keys, with TLS and the most verbose log.
pub(super) async fn coordinator(work: &Path) -> Result<Coordinator> {
    let store = format!("sqlite:{}", work.join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work, &store)?
        .over_tls("auto")
        .with("C3PO_CLOSED", Path::new("true"));
    coordinator = coordinator.with("C3PO_LOG", Path::new(LOUD));
    coordinator.restart().await?;
    Ok(coordinator)
}

/// Requests a line that admits a host, and returns the one that contains `mark`.
pub(super) async fn line(work: &Path, coordinator: &Coordinator, mark: &str) -> Result<String> {
    let mut invite = command(program("c3po-coordinator")?, work);
    let said = invite
        .args(["invite", "--listen", &coordinator.address().to_string()])
        .output()
        .await?;
    let said = String::from_utf8(said.stdout)? + &String::from_utf8_lossy(&said.stderr);
    let line = said
        .lines()
        .find(|line| line.contains(mark))
        .with_context(|| said.clone())?;
    Ok(line.trim().to_owned())
}

/// Runs a printed line for a host with c3po.
pub(super) async fn c3po(home: &Path, line: &str) -> Result<Output> {
    let (code, words) = line.split_once(" c3po ").context("no command")?;
    let mut c3po = command(program("c3po")?, home);
    Ok(c3po
        .args(words.split_whitespace())
        .env("C3PO_JOIN_CODE", join_code(code)?)
        .output()
        .await?)
}

/// Starts a session on a host that is configured by its file alone.
async fn session(home: &Path, project: &str) -> Result<McpClient> {
    let folder = home.join(project);
    std::fs::create_dir_all(&folder)?;
    let mut proxy = command(program("c3po")?, home);
    proxy
        .arg("proxy")
        .current_dir(&folder)
        .env("C3PO_LOG", LOUD)
        .env("CLAUDE_PROJECT_DIR", &folder)
        .env("XDG_RUNTIME_DIR", home);
    let client = McpClient::start(proxy, &home.join(format!("{project}.log")))?;
    client.initialize().await?;
    Ok(client)
}

/// Returns the key in the text of a configuration file.
fn key_in(text: &str) -> Result<&str> {
    let key = text
        .lines()
        .find_map(|line| line.strip_prefix("token = \""))
        .context("a key")?;
    Ok(key.trim_end_matches('"'))
}

#[tokio::test]
async fn a_new_host_is_in_with_one_line_and_the_line_is_good_once() -> Result<()> {
    let (work, home, thief) = (TempDir::new()?, TempDir::new()?, TempDir::new()?);
    let coordinator = coordinator(work.path()).await?;
    let file = home.path().join(".config/c3po/config.toml");
    std::fs::create_dir_all(file.parent().context("a folder")?)?;
    std::fs::write(
        &file,
        "# mine\ntimeout = 7\ncoordinator_url = \"http://elsewhere:1\"\n",
    )?;
    let line = line(work.path(), &coordinator, "c3po join ").await?;
    let joined = c3po(home.path(), &line).await?;
    ensure!(joined.status.success(), "{joined:?}");

    let text = std::fs::read_to_string(&file)?;
    ensure!(
        text.contains("# mine\ntimeout = 7\n") && !text.contains("elsewhere"),
        "{text}"
    );
    ensure!(
        text.contains(&coordinator.url()) && text.contains("fingerprint = \"sha256:"),
        "{text}"
    );
    assert_eq!(
        std::fs::metadata(&file)?.permissions().mode() & 0o777,
        0o600
    );
    let printed = String::from_utf8(joined.stdout)?;
    ensure!(
        !printed.contains(key_in(&text)?),
        "the key is not printed: {printed}"
    );

    let stolen = c3po(thief.path(), &line).await?;
    ensure!(stolen.status.code() == Some(1), "{stolen:?}");
    ensure!(
        String::from_utf8_lossy(&stolen.stderr).contains("was used"),
        "{stolen:?}"
    );

    let (asks, answers) = (
        session(home.path(), "asks").await?,
        session(home.path(), "answers").await?,
    );
    answers.reply("ping", json!({})).await?;
    asks.reply(
        "send_message",
        json!({"target": "answers", "message": "hello"}),
    )
    .await?;
    assert_eq!(
        answers
            .reply("wait_for_message", json!({"timeout": 20}))
            .await?["message"],
        "hello"
    );
    Ok(())
}

/// Returns the text of all logs in a folder.
fn logs(folder: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            text += &std::fs::read_to_string(path)?;
        }
    }
    Ok(text)
}

/// Sends a message over `/mcp`, which uses the library that logs the most, and reads pending messages over REST.
async fn over_http(coordinator: &Coordinator, key: &str) -> Result<()> {
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params":
        {"name": "send_message", "arguments": {"target": "answers", "message": "text-of-it"}}});
    let url = coordinator.url();
    for (path, body) in [("/mcp", call.to_string()), ("/api/pending", String::new())] {
        let mut curl = Command::new("curl");
        curl.args([
            "-sSk",
            "-H",
            "X-Agent-ID: other",
            "-H",
            "Content-Type: application/json",
        ]);
        curl.args([
            "-H",
            "Accept: application/json, text/event-stream",
            "-H",
            &format!("Authorization: Bearer {key}"),
        ]);
        if !body.is_empty() {
            curl.args(["--data-binary", &body]);
        }
        let said = curl.arg(format!("{url}{path}")).output().await?;
        ensure!(said.status.success(), "{said:?}");
        let said = String::from_utf8_lossy(&said.stdout);
        ensure!(body.is_empty() || said.contains("stored"), "{said}");
    }
    Ok(())
}

/// Sends a message with every text that it can have, and a reply.
async fn exchange(asks: &McpClient, answers: &McpClient) -> Result<()> {
    let texts = json!({"target": "answers", "message": "body-of-it", "title": "title-of-it", "context": "context-of-it"});
    let sent = asks.reply("send_message", texts).await?;
    answers
        .reply("wait_for_message", json!({"timeout": 20}))
        .await?;
    answers
        .reply(
            "reply",
            json!({"message_id": sent["id"], "response": "response-to-it"}),
        )
        .await?;
    asks.reply("wait_for_message", json!({"timeout": 20}))
        .await?;
    Ok(())
}

#[tokio::test]
async fn no_log_holds_a_key_a_code_or_a_text() -> Result<()> {
    let (work, home) = (TempDir::new()?, TempDir::new()?);
    let coordinator = coordinator(work.path()).await?;
    let line = line(work.path(), &coordinator, "c3po join ").await?;
    let code = join_code(&line)?;
    ensure!(c3po(home.path(), &line).await?.status.success());
    ensure!(!c3po(home.path(), &line).await?.status.success());
    let text = std::fs::read_to_string(home.path().join(".config/c3po/config.toml"))?;
    let key = key_in(&text)?;

    let (asks, answers) = (
        session(home.path(), "asks").await?,
        session(home.path(), "answers").await?,
    );
    answers.reply("ping", json!({})).await?;
    exchange(&asks, &answers).await?;
    over_http(&coordinator, key).await?;
    let mut admin = command(program("c3po-coordinator")?, work.path());
    let id = key.split('_').nth(1).context("its id")?;
    admin.args([
        "keys",
        "rotate",
        id,
        "--listen",
        &coordinator.address().to_string(),
    ]);
    let rotated = String::from_utf8(admin.output().await?.stdout)?;
    let rotated = rotated.lines().next().context("the new text")?;
    ensure!(
        asks.call("ping", json!({})).await?.is_error,
        "the text before is worth nothing"
    );

    let said = logs(work.path())? + &logs(home.path())?;
    ensure!(
        said.contains(id) && said.contains("DEBUG"),
        "they say what they should: {said}"
    );
    let (secret, fresh) = (key.splitn(3, '_').nth(2), rotated.splitn(3, '_').nth(2));
    let hidden = [
        secret,
        fresh,
        Some(code),
        code.get(..20),
        Some("-of-it"),
        Some("response-to-it"),
    ];
    for hidden in hidden.into_iter().flatten() {
        ensure!(
            hidden.len() > 5 && !said.contains(hidden),
            "{hidden} is in a log:\n{said}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_host_that_relays_is_told_of_each_new_coordinator() -> Result<()> {
    let (work, home) = (TempDir::new()?, TempDir::new()?);
    let coordinator = coordinator(work.path()).await?;
    let file = home.path().join(".config/c3po/config.toml");
    std::fs::create_dir_all(file.parent().context("a folder")?)?;
    std::fs::write(&file, "relay_permissions = true\n")?;
    let is_told = async || {
        let line = line(work.path(), &coordinator, "c3po join ").await?;
        let joined = c3po(home.path(), &line).await?;
        ensure!(joined.status.success(), "{joined:?}");
        let told = format!("The people of {} decide about requests", coordinator.url());
        Ok(String::from_utf8(joined.stdout)?.contains(&told))
    };
    assert!(is_told().await?, "the first one");
    assert!(!is_told().await?, "the same one");
    let text = std::fs::read_to_string(&file)?;
    let (before, print) = text.split_once("sha256:").context("a fingerprint")?;
    let other = format!("{before}sha256:{}{}", "0".repeat(64), &print[64..]);
    std::fs::write(&file, other)?;
    assert!(is_told().await?, "the same URL with another certificate");
    Ok(())
}

#[tokio::test]
async fn a_program_that_joins_a_host_is_told_of_new_people_too() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = coordinator(work.path()).await?;
    for (text, variable, told) in [
        ("relay_permissions = true\n", "", true),
        ("", "true", true),
        ("", "", false),
    ] {
        let home = TempDir::new()?;
        let folder = home.path().join(".config/c3po");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("config.toml"), text)?;
        let line = line(work.path(), &coordinator, "c3po join ").await?;
        let mut joins = command(program("c3po")?, home.path());
        joins
            .args(["join", &coordinator.url(), "--json"])
            .env("C3PO_JOIN_CODE", join_code(&line)?);
        if !variable.is_empty() {
            joins.env("C3PO_RELAY_PERMISSIONS", variable);
        }
        let joined = joins.output().await?;
        ensure!(joined.status.success(), "{joined:?}");
        let joined: serde_json::Value = serde_json::from_slice(&joined.stdout)?;
        assert_eq!(joined["relays_to_new_people"], told, "{text}{variable}");
    }
    Ok(())
}

#[tokio::test]
async fn a_host_without_the_program_gets_it_from_the_coordinator_alone() -> Result<()> {
    let (work, home) = (TempDir::new()?, TempDir::new()?);
    let coordinator = coordinator(work.path()).await?;
    let line = line(work.path(), &coordinator, "curl ").await?;
    let mut shell = command("sh", home.path());
    shell
        .args(["-c", &format!("umask 000; {line}")])
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let installed = shell.output().await?;
    ensure!(installed.status.success(), "{installed:?}");
    let fetched = home.path().join(".local/bin/c3po");
    assert!(
        std::fs::read(&fetched)? == std::fs::read(program("c3po")?)?,
        "it is the very program"
    );
    for path in [".local", ".local/bin", ".local/bin/c3po"] {
        let mode = std::fs::metadata(home.path().join(path))?
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o755, "{path}: others could replace it");
    }
    let status = command(&fetched, home.path())
        .arg("status")
        .output()
        .await?;
    ensure!(
        status.status.success() && String::from_utf8_lossy(&status.stdout).contains("connected"),
        "{status:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_printed_line_uses_no_proxy_of_the_environment() -> Result<()> {
    let (work, home) = (TempDir::new()?, TempDir::new()?);
    let coordinator = coordinator(work.path()).await?;
    let line = line(work.path(), &coordinator, "curl ").await?;
    let mut shell = command("sh", home.path());
    shell
        .args(["-c", &line])
        .env("PATH", "/usr/local/bin:/usr/bin:/bin");
    for variable in PROXIES {
        shell.env(variable, "http://127.0.0.1:9");
    }
    let installed = shell.output().await?;
    ensure!(installed.status.success(), "{installed:?}");
    ensure!(home.path().join(".local/bin/c3po").exists());
    Ok(())
}

#[tokio::test]
async fn a_used_line_is_refused_and_installs_nothing() -> Result<()> {
    let (work, home, late) = (TempDir::new()?, TempDir::new()?, TempDir::new()?);
    let coordinator = coordinator(work.path()).await?;
    let line = line(work.path(), &coordinator, "curl ").await?;
    let run = async |home: &Path| {
        let mut shell = command("sh", home);
        shell
            .args(["-c", &line])
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .output()
            .await
    };
    ensure!(run(home.path()).await?.status.success());
    let refused = run(late.path()).await?;
    let said = String::from_utf8(refused.stderr)?;
    ensure!(refused.status.code() == Some(1), "{said}");
    ensure!(
        said.contains("was used") && said.contains("c3po-coordinator invite"),
        "{said}"
    );
    ensure!(said.contains("nothing was installed"), "{said}");
    let left = std::fs::read_dir(late.path().join(".local/bin"))?.count();
    assert_eq!(left, 0, "not even what was fetched");
    Ok(())
}

#[tokio::test]
async fn a_server_with_another_certificate_gets_no_code_and_nothing_is_written() -> Result<()> {
    let (work, other, home) = (TempDir::new()?, TempDir::new()?, TempDir::new()?);
    let (real, forged) = (
        coordinator(work.path()).await?,
        coordinator(other.path()).await?,
    );
    let line = line(work.path(), &real, "c3po join ")
        .await?
        .replace(&real.url(), &forged.url());
    let joined = c3po(home.path(), &line).await?;
    ensure!(joined.status.code() == Some(1), "{joined:?}");
    ensure!(
        String::from_utf8_lossy(&joined.stderr).contains("another certificate"),
        "{joined:?}"
    );
    let file = std::fs::read_to_string(home.path().join(".config/c3po/config.toml"))?;
    assert_eq!(file, "", "nothing but an empty file");
    Ok(())
}

#[tokio::test]
async fn a_truncated_join_line_is_refused_as_wrong_usage() -> Result<()> {
    let home = TempDir::new()?;
    for (code, url) in [
        ("abc", "https://127.0.0.1:9"),
        ("AAAAAAAAAAAAAAAAAAAAAA", "ftp://a"),
    ] {
        let words = format!("C3PO_JOIN_CODE={code} c3po join {url}");
        let joined = c3po(home.path(), &words).await?;
        ensure!(joined.status.code() == Some(2), "{words}: {joined:?}");
    }
    Ok(())
}
