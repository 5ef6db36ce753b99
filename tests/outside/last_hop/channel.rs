//! The channel, which only the user turns on: the last resort for deliveries, tested with a scripted client.

use std::time::Duration;

use anyhow::{Context, Result};
use harness::coordinator::Coordinator;
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::{proxy_command, session};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;

/// Every step takes only milliseconds alone.
const SOON: Duration = Duration::from_secs(20);
/// The method with which a server pushes into a channel.
const METHOD: &str = "notifications/claude/channel";

/// Runs a hook of the session whose client is this process, and returns its output.
async fn hook(work: &Path, event: &str, input: Value) -> Result<String> {
    let mut hook = command(program("c3po")?, work);
    hook.args(["hook", event])
        .env("CLAUDE_PID", std::process::id().to_string())
        .env("XDG_RUNTIME_DIR", work);
    let mut hook = hook
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting a hook")?;
    hook.stdin
        .take()
        .context("its input")?
        .write_all(input.to_string().as_bytes())
        .await?;
    let ended = tokio::time::timeout(SOON, hook.wait_with_output())
        .await
        .context("a hook does not end")??;
    Ok(String::from_utf8(ended.stdout)?)
}

async fn receiver(
    work: &Path,
    coordinator: &Coordinator,
    channel: &str,
) -> Result<(McpClient, Value)> {
    let mut proxy = proxy_command(work, "meshtastic", &coordinator.url())?;
    proxy.env("C3PO_CHANNEL", channel);
    let client = McpClient::start(proxy, &work.join("meshtastic.log"))?;
    let hello = client.initialize().await?;
    Ok((client, hello))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_notified_where_the_channel_is_on_and_the_prompt_is_the_evidence() -> Result<()>
{
    let work = tempfile::tempdir()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let (receiver, hello) = receiver(work.path(), &coordinator, "true").await?;
    assert_eq!(
        hello["capabilities"]["experimental"],
        json!({"claude/channel": {}})
    );
    hook(
        work.path(),
        "session-start",
        json!({"session_id": "s1", "source": "startup"}),
    )
    .await?;
    receiver.reply("ping", json!({})).await?;

    let sender = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let sent = sender
        .reply(
            "send_message",
            json!({"target": "meshtastic", "message": "lights please"}),
        )
        .await?;
    let notified = receiver.notification(METHOD, SOON).await?;
    let text = notified["params"]["content"]
        .as_str()
        .context("a text")?
        .to_owned();
    assert!(
        text.starts_with("[c3po] 1 message for meshtastic\n") && text.contains("> lights please\n"),
        "{text}"
    );

    let waited = json!({"message_id": sent["id"], "until": "on_host", "timeout": 20});
    let status = sender.reply("wait_for_message", waited).await?;
    assert_eq!(status["stage"], "on_host", "a notification proves nothing");
    let prompt = format!("<channel source=\"c3po\">{text}</channel>");
    hook(
        work.path(),
        "user-prompt-submit",
        json!({"session_id": "s1", "prompt_id": "p1", "prompt": prompt}),
    )
    .await?;
    hook(
        work.path(),
        "stop",
        json!({"session_id": "s1", "prompt_id": "p1"}),
    )
    .await?;
    let waited = json!({"message_id": sent["id"], "until": "seen", "timeout": 20});
    let history = sender.reply("wait_for_message", waited).await?["history"].clone();
    let vias: Vec<_> = history
        .as_array()
        .context("a history")?
        .iter()
        .map(|step| step["via"].clone())
        .collect();
    assert_eq!(
        vias[1..],
        [json!("deliver"), json!("channel"), json!("hook")],
        "{history}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_the_channel_off_gets_no_notification() -> Result<()> {
    let work = tempfile::tempdir()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let (receiver, hello) = receiver(work.path(), &coordinator, "").await?;
    assert_eq!(hello["capabilities"].get("experimental"), None);
    hook(
        work.path(),
        "session-start",
        json!({"session_id": "s1", "source": "startup"}),
    )
    .await?;
    receiver.reply("ping", json!({})).await?;
    let sender = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let sent = sender
        .reply(
            "send_message",
            json!({"target": "meshtastic", "message": "lights please"}),
        )
        .await?;
    let waited = json!({"message_id": sent["id"], "until": "on_host", "timeout": 20});
    assert_eq!(
        sender.reply("wait_for_message", waited).await?["stage"],
        "on_host"
    );
    assert!(
        receiver
            .notification(METHOD, Duration::from_secs(1))
            .await
            .is_err()
    );
    Ok(())
}
