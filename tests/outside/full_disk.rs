//! A full disk: accepted messages are kept, others are refused with a clear error, and everything continues when there is
//! room.

use std::fs::{self, File};
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::{proxy_command, session};
use harness::skip::skipped;
use harness::small_disk::SmallDisk;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The time limit of any operation, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);
/// The length of texts that fill a disk quickly.
const LONG: usize = 3_000;

/// Sends numbered messages until one is refused. Returns how many were accepted, and the refusal.
async fn send_until_refused(sender: &McpClient, queue: bool) -> Result<(usize, Value)> {
    for number in 0..1_000 {
        let text = format!("{number} {}", "x".repeat(LONG));
        let arguments = json!({"target": "receiver", "message": text, "queue_if_down": queue});
        let answer = sender.call("send_message", arguments).await?;
        if answer.is_error {
            return Ok((number, answer.json()?));
        }
    }
    anyhow::bail!("the disk was never full")
}

/// Receives messages by waits until there are no more, and returns their numbers.
async fn numbers(receiver: &McpClient, expected: usize) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    eventually("everything has arrived", SOON, async || {
        let next = receiver
            .call("wait_for_message", json!({"timeout": 1}))
            .await
            .ok()?
            .json()
            .ok()?;
        if let Some(text) = next["message"].as_str().filter(|_| next["id"].is_string()) {
            numbers.extend(
                text.split(' ')
                    .next()
                    .and_then(|number| number.parse::<usize>().ok()),
            );
        }
        (numbers.len() >= expected && next["timeout"] == true).then_some(())
    })
    .await?;
    Ok(numbers)
}

#[tokio::test]
async fn a_host_with_a_full_disk_keeps_accepted_messages_and_refuses_others() -> Result<()> {
    const NAME: &str =
        "full_disk::a_host_with_a_full_disk_keeps_accepted_messages_and_refuses_others";
    let work = TempDir::new()?;
    let Some(disk) = SmallDisk::mount(&work.path().join("state"), 256)? else {
        return skipped(NAME, "mounting a small disk is not allowed");
    };
    let mut coordinator = Coordinator::start(work.path()).await?;
    let url = coordinator.url();
    let receiver = session(work.path(), "receiver", &url).await?;
    receiver.reply("ping", json!({})).await?;
    let mut command = proxy_command(work.path(), "sender", &url)?;
    command.env("XDG_STATE_HOME", disk.path());
    let sender = McpClient::start(command, &work.path().join("sender.log"))?;
    sender.initialize().await?;
    sender.reply("ping", json!({})).await?;
    coordinator.kill().await?;

    let (accepted, refusal) = send_until_refused(&sender, true).await?;
    assert!(accepted > 10, "{accepted}");
    let sentence = refusal["error"].as_str().context("a sentence")?;
    assert!(
        sentence.contains("could not be queued on this host") && sentence.contains("No space left"),
        "{sentence}"
    );
    assert_eq!(
        (&refusal["code"], &refusal["details"]["applied"]),
        (&json!("COORD_DOWN"), &json!("no"))
    );
    let journal = fs::read_to_string(disk.path().join("c3po/journal/sender.jsonl"))?;
    assert!(
        journal.ends_with('\n') && journal.lines().count() == accepted,
        "nothing is half-written"
    );

    // The disk is still full, but sending queued messages needs no room.
    disk.fill(0)?;
    coordinator.restart().await?;
    let received = numbers(&receiver, accepted).await?;
    assert_eq!(received, (0..accepted).collect::<Vec<_>>());
    assert_eq!(
        fs::metadata(disk.path().join("c3po/journal/sender.jsonl"))?.len(),
        0
    );
    Ok(())
}

#[tokio::test]
async fn a_coordinator_whose_disk_is_full_refuses_sends_reads_on_and_recovers() -> Result<()> {
    const NAME: &str =
        "full_disk::a_coordinator_whose_disk_is_full_refuses_sends_reads_on_and_recovers";
    let work = TempDir::new()?;
    let Some(disk) = SmallDisk::mount(&work.path().join("store"), 2_048)? else {
        return skipped(NAME, "mounting a small disk is not allowed");
    };
    let filler = disk.fill(1_000)?;
    let store = format!("sqlite:{}", disk.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.unlimited();
    coordinator.restart().await?;
    let sender = session(work.path(), "sender", &coordinator.url()).await?;
    let receiver = session(work.path(), "receiver", &coordinator.url()).await?;
    receiver.reply("ping", json!({})).await?;
    let other = session(work.path(), "other", &coordinator.url()).await?;
    other.reply("ping", json!({})).await?;

    let (accepted, refusal) = send_until_refused(&sender, false).await?;
    assert!(accepted > 10, "{accepted}: {refusal}");
    assert_eq!(refusal["code"], "STORE_UNAVAILABLE", "{refusal}");
    assert!(
        refusal["error"].is_string() && refusal["suggestion"].is_string(),
        "{refusal}"
    );
    // Reading needs no room, although the receipt for it cannot be recorded.
    let page = receiver.reply("get_messages", json!({"limit": 1})).await?;
    assert_eq!(page["count"], accepted, "{}", page["count"]);
    // The log of the audit shrinks, which gives a little room once.
    let again = json!({"target": "other", "message": "x".repeat(LONG)});
    eventually("it refuses again", SOON, async || {
        let sent = sender.call("send_message", again.clone()).await.ok()?;
        sent.is_error.then_some(())
    })
    .await?;

    fs::remove_file(filler)?;
    eventually("there is room again", SOON, async || {
        let text = format!("{accepted} is the last");
        let sent = sender
            .call(
                "send_message",
                json!({"target": "receiver", "message": text}),
            )
            .await
            .ok()?;
        (!sent.is_error).then_some(())
    })
    .await?;
    // The page showed the first message; the others arrive in order, once each.
    let received = numbers(&receiver, accepted).await?;
    assert_eq!(received, (1..=accepted).collect::<Vec<_>>());
    coordinator.kill().await?;
    coordinator.restart().await?;
    let count = eventually("the link", SOON, async || {
        let page = receiver
            .call("get_messages", json!({"limit": 1}))
            .await
            .ok()?;
        page.json()
            .ok()
            .filter(|_| !page.is_error)
            .map(|page| page["count"].clone())
    });
    assert_eq!(count.await?, accepted + 1);
    Ok(())
}

#[tokio::test]
async fn a_coordinator_whose_log_cannot_be_written_goes_on() -> Result<()> {
    let work = TempDir::new()?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut coordinator = command(program("c3po-coordinator")?, work.path());
    coordinator
        .args(["--listen", &address.to_string()])
        .stderr(File::options().write(true).open("/dev/full")?)
        .kill_on_drop(true);
    let _running = coordinator.spawn()?;
    let connected = async || {
        let session = session(work.path(), "one", &format!("http://{address}")).await;
        let listed = session.ok()?.call("list_agents", json!({})).await.ok()?;
        (!listed.is_error).then_some(())
    };
    eventually("a session is connected", SOON, connected).await
}
