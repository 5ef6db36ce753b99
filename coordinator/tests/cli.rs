//! The coordinator's command line, as a real process.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};

fn coordinator(arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_c3po-coordinator"))
        .env_clear()
        .args(arguments)
        .output()?)
}

#[test]
fn help_names_every_setting_and_its_variable() -> Result<()> {
    let output = coordinator(&["--help"])?;
    let help = String::from_utf8(output.stdout)?;
    for expected in [
        "--listen",
        "C3PO_LISTEN",
        "--store",
        "C3PO_STORE",
        "--tls",
        "C3PO_TLS",
        "--rate-limit",
        "C3PO_RATE_LIMIT",
        "--loop-messages",
        "C3PO_LOOP_MESSAGES",
        "--store-max",
        "C3PO_STORE_MAX",
        "--store-quota",
        "C3PO_STORE_QUOTA",
        "--message-life",
        "C3PO_MESSAGE_LIFE",
        "--token",
        "C3PO_TOKEN",
        "--open",
        "C3PO_OPEN",
        "--allowed-hosts",
        "C3PO_ALLOWED_HOSTS",
        "--log",
        "C3PO_LOG",
        "health",
    ] {
        assert!(help.contains(expected), "{expected} is not in\n{help}");
    }
    Ok(())
}

#[test]
fn the_first_start_on_the_network_is_closed_and_prints_the_line_that_joins_a_host() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().to_str().context("a path that is text")?;
    let mut server = Command::new(env!("CARGO_BIN_EXE_c3po-coordinator"))
        .env_clear()
        .args(["--listen", "0.0.0.0:0", "--data-dir", data])
        .stderr(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(server.stderr.take().context("its standard error")?).lines();
    let said: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|line| !line.contains("For each further host"))
        .collect();
    server.kill()?;
    server.wait()?;
    let said = said.join("\n");
    assert!(said.contains("clients need a key"), "{said}");
    assert!(
        said.contains("  C3PO_JOIN_CODE=") && said.contains(" c3po join https://"),
        "{said}"
    );
    Ok(())
}

#[test]
fn health_reports_that_no_coordinator_is_running() -> Result<()> {
    let output = coordinator(&["health", "--listen", "127.0.0.1:9"])?;
    let said = String::from_utf8(output.stderr)?;
    assert!(
        !output.status.success() && said.contains("no coordinator is running at 127.0.0.1:9"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_store_that_does_not_answer_is_named_without_its_password() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_c3po-coordinator"))
        .args([
            "--listen",
            "127.0.0.1:0",
            "--store",
            "redis://user:hunter2@127.0.0.1:9",
            "--data-dir",
        ])
        .arg(folder.path())
        .stderr(Stdio::piped())
        .spawn()?;
    let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
    // The program waits for its Redis, so it is killed once it has reported that.
    let named = lines
        .map_while(Result::ok)
        .find(|line| line.contains("redis://127.0.0.1:9"));
    child.kill()?;
    child.wait()?;
    assert!(named.is_some_and(|line| !line.contains("hunter2")));
    Ok(())
}

#[test]
fn a_word_that_is_no_scope_is_wrong_usage_and_the_scopes_are_listed() -> Result<()> {
    for command in [&["keys", "create", "nas2"][..], &["invite"]] {
        let output = coordinator(&[command, &["--scope", "foo"]].concat())?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("'foo' is not one of agent, read, operator, admin"),
            "{said}"
        );
    }
    Ok(())
}

#[test]
fn a_taken_port_is_refused_with_the_next_step() -> Result<()> {
    let (folder, taken) = (
        tempfile::tempdir()?,
        std::net::TcpListener::bind("127.0.0.1:0")?,
    );
    let (data, listen) = (
        folder.path().to_str().context("a path that is text")?,
        taken.local_addr()?.to_string(),
    );
    let output = coordinator(&["--listen", &listen, "--data-dir", data])?;
    let said = String::from_utf8(output.stderr)?;
    assert!(
        !output.status.success() && said.contains(&format!("cannot listen on {listen}: another")),
        "{said}"
    );
    let port = taken.local_addr()?.port();
    assert!(
        said.contains(&format!("`ss -ltnp 'sport = :{port}'`")) && said.contains("--listen"),
        "{said}"
    );
    Ok(())
}

#[test]
fn a_store_is_copied_and_restored_and_redis_is_referred_to_its_own_tools() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().to_str().context("a path that is text")?;
    let copy = folder.path().join("copy");
    let copy = copy.to_str().context("a path that is text")?;
    let said = |output: &Output| {
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
    };

    let nothing = coordinator(&["backup", copy, "--data-dir", data])?;
    assert!(
        !nothing.status.success() && said(&nothing).contains("there is no database to copy"),
        "{}",
        said(&nothing)
    );
    let redis = coordinator(&[
        "--store",
        "redis://127.0.0.1:1",
        "backup",
        copy,
        "--data-dir",
        data,
    ])?;
    assert!(
        !redis.status.success() && said(&redis).contains("redis-cli --rdb"),
        "{}",
        said(&redis)
    );

    let mut server = Command::new(env!("CARGO_BIN_EXE_c3po-coordinator"))
        .env_clear()
        .args(["--listen", "127.0.0.1:0", "--data-dir", data])
        .stderr(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(server.stderr.take().context("its standard error")?).lines();
    let serves = lines.any(|line| line.is_ok_and(|line| line.contains("serving")));
    let copied = coordinator(&["backup", copy, "--data-dir", data])?;
    let busy = coordinator(&["restore", copy, "--data-dir", data])?;
    server.kill()?;
    server.wait()?;
    assert!(serves && copied.status.success(), "{}", said(&copied));
    assert!(
        said(&copied).contains(&format!(
            "c3po-coordinator --data-dir {data} --store sqlite:{data}/c3po.db restore {copy}\n"
        )),
        "{}",
        said(&copied)
    );
    assert!(
        !busy.status.success() && said(&busy).contains("in use by another coordinator"),
        "{}",
        said(&busy)
    );
    let restored = coordinator(&["restore", copy, "--data-dir", data])?;
    assert!(
        restored.status.success()
            && said(&restored).contains("the previous files are kept: ")
            && said(&restored).contains("revoked after the backup are valid again"),
        "{}",
        said(&restored)
    );
    Ok(())
}
