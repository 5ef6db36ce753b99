//! The coordinator's own commands ask the running coordinator, and print its answers in whole sentences.

use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_coordinator::cli::{Action, CommandLine};
use clap::Parser;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::process::{command, program};
use harness::redis::Redis;
use inside::gate::Gate;
use tempfile::TempDir;

/// How long the loss of a store may stay unnoticed, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn refusals_are_printed_as_sentences() -> Result<()> {
    let gate = Gate::start().await?;
    let refused = gate
        .ask(&["keys", "revoke", "00000000"])
        .await
        .expect_err("there is none");
    assert_eq!(
        refused.to_string(),
        "there is no key 00000000. List the keys with `c3po-coordinator keys list`."
    );
    let refused = gate
        .ask(&["invites", "revoke", "00000000"])
        .await
        .expect_err("there is none");
    assert_eq!(
        refused.to_string(),
        "there is no open invite 00000000. List the invites with `c3po-coordinator invites list`."
    );
    let refused = gate
        .ask(&["invite", "--uses", "0"])
        .await
        .expect_err("nobody may use it");
    assert_eq!(
        refused.to_string(),
        "uses is 0; it must be from 1 to 1000. Check parameter values and formats."
    );
    Ok(())
}

#[tokio::test]
async fn the_audit_is_read_over_the_socket() -> Result<()> {
    let gate = Gate::start().await?;
    gate.key("agent", "web", &[]).await?;
    let audit = async |words: &[&str]| -> Result<String> {
        let line = CommandLine::try_parse_from([&["c3po-coordinator", "audit"], words].concat())?;
        let Some(Action::Audit(audit)) = line.action else {
            anyhow::bail!("{words:?}")
        };
        audit.ask(gate.served.folder(), gate.address()?).await
    };
    let written = async || {
        audit(&["--since", "1h"])
            .await
            .ok()
            .filter(|said| said.contains("created"))
    };
    let said = eventually("it is written", SOON, written).await?;
    assert!(
        said.contains("Z  key_changed  created  key ") && said.contains("(by local)"),
        "{said}"
    );
    let json: serde_json::Value =
        serde_json::from_str(audit(&["--json"]).await?.lines().last().context("a line")?)?;
    assert_eq!(json["verb"], "created");
    assert_eq!(
        audit(&["--agent", "nobody"]).await?,
        "The audit has no such entries."
    );
    Ok(())
}

#[tokio::test]
async fn the_line_for_a_host_without_c3po_has_no_gap_where_curl_verifies_nothing() -> Result<()> {
    let gate = Gate::start().await?;
    let said = gate.ask(&["invite"]).await?;
    assert!(
        said.contains(&format!(
            "  curl -q -fsS --noproxy '*' http://{}/join.sh | C3PO_JOIN_CODE=",
            gate.served.address
        )),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn health_behind_tls_reports_the_state_of_the_store() -> Result<()> {
    let (work, mut redis) = (TempDir::new()?, Redis::start().await?);
    let mut coordinator = Coordinator::absent(work.path(), &redis.url())?.over_tls("auto");
    coordinator.restart().await?;
    let health = async || -> Result<Output> {
        let mut health = command(program("c3po-coordinator")?, work.path());
        Ok(health
            .args(["health", "--listen", &coordinator.address().to_string()])
            .output()
            .await?)
    };
    let well = health().await?;
    assert!(
        well.status.success() && String::from_utf8_lossy(&well.stderr).contains("\"ok\""),
        "{well:?}"
    );
    redis.kill()?;
    eventually("it is missed", SOON, async || {
        let unwell = health().await.ok()?;
        let said = String::from_utf8_lossy(&unwell.stderr).into_owned();
        (!unwell.status.success()
            && said.contains("is not healthy")
            && said.contains("REDIS_UNAVAILABLE"))
        .then_some(())
    })
    .await
}
