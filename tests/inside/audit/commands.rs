//! The commands of a person that read and follow the audit log, and ask the policy.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Result;
use harness::process::{command, program};
use inside::served::Served;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::{WRITTEN, lines, scenario, served, short};

/// Returns a command that uses the coordinator.
fn c3po(home: &Path, served: &Served, arguments: &[&str]) -> Result<Command> {
    let mut c3po = command(program("c3po")?, home);
    c3po.args(arguments)
        .env("C3PO_COORDINATOR_URL", format!("http://{}", served.address));
    Ok(c3po)
}

/// Follows the audit with a command while a session comes and goes.
async fn follow_a_session(home: &Path, served: &Served) -> Result<()> {
    let mut following = c3po(home, served, &["audit", "--follow", "--json"])?
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let out = following
        .stdout
        .take()
        .ok_or_else(|| anyhow::anyhow!("no output"))?;
    let mut out = BufReader::new(out).lines();
    let mut hear = async |wanted: &str, within: Duration| -> Result<()> {
        let found = async {
            while let Some(line) = out.next_line().await? {
                if short(&serde_json::from_str(&line)?) == wanted {
                    return Ok(());
                }
            }
            anyhow::bail!("it ended")
        };
        timeout(within, found).await?
    };
    // The command follows from its start on, but that moment cannot be observed.
    let mut late = served.join("late").await?;
    while hear("session_begun late session", Duration::from_secs(1))
        .await
        .is_err()
    {
        late.notify("goodbye", json!({})).await?;
        late = served.join("late").await?;
    }
    late.notify("goodbye", json!({})).await?;
    hear("session_ended late goodbye", WRITTEN).await?;
    following.kill().await?;
    Ok(())
}

/// Returns the lines that a command prints, without their times.
async fn printed(home: &Path, served: &Served, arguments: &[&str]) -> Result<Vec<String>> {
    let read = c3po(home, served, arguments)?.output().await?;
    let error = String::from_utf8_lossy(&read.stderr);
    assert_eq!(read.status.code(), Some(0), "{error}");
    let text = String::from_utf8(read.stdout)?;
    let ends = text.lines().filter_map(|line| line.split_once("Z  "));
    Ok(ends.map(|(_, rest)| rest.to_owned()).collect())
}

#[tokio::test]
async fn a_person_reads_and_follows_the_audit_and_reads_events_with_commands() -> Result<()> {
    let served = served(None).await?;
    let _a = scenario(&served).await?;
    lines(&served, "", 11).await?;
    let home = tempfile::TempDir::new()?;
    let read = async |arguments: &[&str]| printed(home.path(), &served, arguments).await;
    assert_eq!(
        read(&["audit", "--utc", "--since", "10m", "--agent", "c"]).await?,
        [
            "session_begun  c        session",
            "renamed        b  -> c",
            "session_ended  c        goodbye"
        ],
    );
    let denied = read(&["audit", "--utc"]).await?;
    assert!(
        denied.iter().any(|line| line.starts_with("denied")),
        "{denied:?}"
    );
    let events = read(&["events", "--utc", "--agent", "c"]).await?;
    assert_eq!(events.len(), 3, "{events:?}");
    let all = read(&["events", "--utc"]).await?;
    assert!(
        !all.iter().any(|line| line.starts_with("denied")),
        "{all:?}"
    );
    let answered = read(&["events", "--utc", "--event", "answered"]).await?;
    assert_eq!(answered.len(), 1, "{answered:?}");

    for looking in ["agents", "status", "inbox"] {
        let looked = c3po(home.path(), &served, &[looking])?.output().await?;
        assert!(looked.status.success(), "{looking}");
    }
    follow_a_session(home.path(), &served).await?;
    let (entries, _) = lines(&served, "", 12).await?;
    assert!(
        !entries.iter().any(|entry| short(entry).contains("human")),
        "looking leaves no entry: {entries:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_person_asks_the_policy_with_a_command() -> Result<()> {
    let served = served(None).await?;
    let _a = scenario(&served).await?;
    let home = tempfile::TempDir::new()?;
    let arguments = ["policy", "check", "a", "vault", "message"];
    let checked = c3po(home.path(), &served, &arguments)?.output().await?;
    assert_eq!(checked.status.code(), Some(1), "it is denied");
    assert_eq!(
        String::from_utf8(checked.stdout)?,
        "deny  message from a (host testhost) to vault (no agent has that name yet)\n  rule 1: it is a vault\n"
    );
    Ok(())
}
