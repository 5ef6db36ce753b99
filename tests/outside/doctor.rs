//! `c3po doctor` on healthy and on broken hosts, and the status line beside a session.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::breaker::Breaker;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::{proxy_command, session};
use serde_json::{Value, json};
use tempfile::tempdir;

/// How long a proxy may take from its start until hooks reach it.
const LISTENS: Duration = Duration::from_secs(10);

/// The result of the doctor: its exit code and its document.
struct Diagnosis {
    code: Option<i32>,
    document: Value,
}

impl Diagnosis {
    async fn of(work: &Path, coordinator: &str) -> Result<Self> {
        let mut doctor = command(program("c3po")?, work);
        // This machine's Claude Code must not be found: only the home of the test counts.
        doctor
            .args(["doctor", "--json"])
            .env("PATH", "/usr/bin:/bin");
        doctor
            .env("C3PO_COORDINATOR_URL", coordinator)
            .env("XDG_RUNTIME_DIR", work);
        let output = doctor.output().await?;
        let document = serde_json::from_slice(&output.stdout).context("reading the document")?;
        Ok(Self {
            code: output.status.code(),
            document,
        })
    }

    /// Returns the verdict and the text of a check.
    fn finding(&self, check: &str) -> (String, String) {
        let findings = self.document["findings"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = findings
            .into_iter()
            .find(|finding| finding["check"] == check)
            .unwrap_or_default();
        let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
        (text("verdict"), text("found"))
    }

    /// Returns the failed checks. The doctor also examines sessions of this machine that do not belong to the test.
    fn failed(&self) -> Vec<String> {
        let findings = self.document["findings"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let failed = findings
            .iter()
            .filter(|finding| finding["verdict"] == "fail");
        failed
            .map(|finding| finding["check"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    fn check(&self, check: &str, verdict: &str, parts: &[&str]) {
        let (found_verdict, found) = self.finding(check);
        assert_eq!(found_verdict, verdict, "{check}: {found}");
        assert!(
            parts.iter().all(|part| found.contains(part)),
            "{check}: {parts:?} are not all in: {found}"
        );
    }
}

/// Waits until the proxy of this process listens for hooks.
async fn listening(work: &Path) -> Result<()> {
    let sockets = work.join("c3po");
    let count = || sockets.read_dir().map_or(0, Iterator::count);
    eventually("a socket", LISTENS, async || (count() == 1).then_some(())).await
}

#[tokio::test]
async fn on_a_host_that_is_well_every_way_is_tried_and_nothing_is_left_behind() -> Result<()> {
    let folder = tempdir()?;
    let work = folder.path();
    let coordinator = Coordinator::start(work).await?;
    let web = session(work, "web", &coordinator.url()).await?;
    web.reply("ping", json!({})).await?;
    listening(work).await?;

    let diagnosis = Diagnosis::of(work, &coordinator.url()).await?;
    let failed = diagnosis.failed();
    assert!(
        failed.iter().all(|check| check == "session"),
        "{:#}",
        diagnosis.document
    );
    assert_eq!(diagnosis.code, Some(i32::from(!failed.is_empty())));
    diagnosis.check("program", "ok", &["c3po"]);
    diagnosis.check("configuration", "ok", &[]);
    diagnosis.check("sockets", "ok", &["c3po"]);
    diagnosis.check("session", "ok", &["web", "connected", "0 unread"]);
    diagnosis.check("plugin", "warn", &["no claude command"]);
    diagnosis.check("coordinator", "ok", &[&coordinator.url(), "round trip"]);
    diagnosis.check(
        "clock",
        "ok",
        &["this host's agrees with the coordinator's"],
    );
    let stages =
        |via: &str, proof: &str| format!("stored, on_host, in_session ({via}), seen ({proof})");
    diagnosis.check(
        "by a wait",
        "ok",
        &[&stages("wait_for_message", "tool_call")],
    );
    diagnosis.check("by a hook", "ok", &[&stages("post_tool_batch", "hook")]);
    diagnosis.check("by a waiter", "ok", &[&stages("async_rewake", "hook")]);

    let agents = web.reply("list_agents", json!({})).await?;
    assert!(!agents.to_string().contains("doctor-"), "{agents}");
    assert_eq!(work.join("c3po").read_dir()?.count(), 1);
    Ok(())
}

#[tokio::test]
async fn a_failed_check_is_named_and_dependent_checks_are_skipped() -> Result<()> {
    let folder = tempdir()?;
    let work = folder.path();
    let nobody = "http://127.0.0.1:9";
    let mut web = McpClient::start(proxy_command(work, "web", nobody)?, &work.join("web.log"))?;
    web.initialize().await?;
    listening(work).await?;
    web.process().signal("STOP").await?;
    let diagnosis = Diagnosis::of(work, nobody).await?;
    web.process().signal("CONT").await?;
    assert_eq!(diagnosis.code, Some(1));
    diagnosis.check("session", "fail", &["does not answer"]);
    diagnosis.check("coordinator", "fail", &[nobody, "Connection refused"]);
    diagnosis.check("by a hook", "skip", &[]);
    drop(web);

    fs::set_permissions(work.join("c3po"), Permissions::from_mode(0o755))?;
    let diagnosis = Diagnosis::of(work, "ftp://nas").await?;
    diagnosis.check("configuration", "fail", &["neither http:// nor https://"]);
    diagnosis.check(
        "sockets",
        "warn",
        &["accessible to other users", "/tmp/c3po-"],
    );
    diagnosis.check("coordinator", "skip", &[]);
    Ok(())
}

#[tokio::test]
async fn a_clock_that_is_behind_is_named_with_how_far() -> Result<()> {
    let folder = tempdir()?;
    let work = folder.path();
    let coordinator = Coordinator::start(work).await?;
    let breaker = Breaker::before(coordinator.address()).await?;
    let url = format!("http://{}", breaker.address());
    // The shift is 3 h and 30 s. Starting everything takes less than these 30 s.
    for (ahead_ms, said) in [
        (
            -10_830_000,
            "the coordinator's is 3 h 0 min behind this host's",
        ),
        (
            10_830_000,
            "this host's is 3 h 0 min behind the coordinator's",
        ),
    ] {
        breaker.shift_clock(ahead_ms);
        let diagnosis = Diagnosis::of(work, &url).await?;
        diagnosis.check("coordinator", "ok", &[&url]);
        diagnosis.check("clock", "warn", &[said]);
        diagnosis.check("by a wait", "ok", &[]);
    }
    Ok(())
}
