//! The journal of messages for a coordinator that is away: none is lost or duplicated, and order and sender are kept.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::mcp::McpClient;
use harness::process::{command, program};
use harness::proxy::{proxy_command, session};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;

/// How long queued messages may take to arrive after the coordinator returns, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(60);

/// Queues a message on the host of a session.
async fn queue(session: &McpClient, target: &str, text: &str) -> Result<()> {
    let arguments = json!({"target": target, "message": text, "queue_if_down": true});
    let queued = session.reply("send_message", arguments).await?;
    assert_eq!(queued["receipt"]["stage"], "queued_on_host", "{queued}");
    Ok(())
}

/// Waits for that many messages, and returns their senders and texts.
async fn receive(session: &McpClient, count: usize) -> Result<Vec<(String, String)>> {
    let mut received = Vec::new();
    let text = |message: &Value, name: &str| message[name].as_str().unwrap_or_default().to_owned();
    eventually("everything has arrived", SOON, async || {
        let next = session
            .call("wait_for_message", json!({"timeout": 5}))
            .await
            .ok()?
            .json()
            .ok()?;
        if next["id"].is_string() {
            received.push((text(&next, "from_agent"), text(&next, "message")));
        }
        (received.len() == count).then_some(())
    })
    .await?;
    assert_eq!(
        session.reply("get_messages", json!({})).await?["count"],
        count,
        "and nothing twice"
    );
    Ok(received)
}

#[tokio::test]
async fn a_living_session_sends_the_queued_messages_of_dead_ones() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let url = coordinator.url();
    let mut first = session(work.path(), "homeassistant", &url).await?;
    first.reply("ping", json!({})).await?;
    let mut second = session(work.path(), "homeassistant", &url).await?;
    assert_eq!(
        second.reply("ping", json!({})).await?["agent_id"],
        "homeassistant-2"
    );
    let meshtastic = session(work.path(), "meshtastic", &url).await?;
    meshtastic.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    queue(&first, "meshtastic", "one").await?;
    queue(&second, "meshtastic", "two").await?;
    queue(&second, "meshtastic", "three").await?;
    first.process().kill().await?;
    second.process().kill().await?;

    coordinator.restart().await?;
    let mut received = receive(&meshtastic, 3).await?;
    received.sort_by_key(|(sender, _)| sender.clone());
    let expected = [
        ("homeassistant", "one"),
        ("homeassistant-2", "two"),
        ("homeassistant-2", "three"),
    ];
    assert_eq!(
        received,
        expected.map(|(sender, text)| (sender.to_owned(), text.to_owned()))
    );
    Ok(())
}

#[tokio::test]
async fn a_later_send_does_not_overtake_queued_messages() -> Result<()> {
    const KEPT: usize = 40;
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let homeassistant = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let meshtastic = session(work.path(), "meshtastic", &coordinator.url()).await?;
    homeassistant.reply("ping", json!({})).await?;
    meshtastic.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    for number in 0..KEPT {
        queue(&homeassistant, "meshtastic", &number.to_string()).await?;
    }
    coordinator.restart().await?;
    // Without `queue_if_down`, as soon as there is a link.
    eventually("a plain send", SOON, async || {
        let sent = homeassistant
            .call(
                "send_message",
                json!({"target": "meshtastic", "message": "last"}),
            )
            .await
            .ok()?;
        (!sent.is_error).then_some(())
    })
    .await?;
    let received = receive(&meshtastic, KEPT + 1).await?;
    let texts: Vec<_> = received.into_iter().map(|(_, text)| text).collect();
    let expected: Vec<_> = (0..KEPT)
        .map(|number| number.to_string())
        .chain(["last".to_owned()])
        .collect();
    assert_eq!(texts, expected);
    let journal = work
        .path()
        .join(".local/state/c3po/journal/homeassistant.jsonl");
    assert_eq!(fs::metadata(journal)?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn a_new_session_does_not_overtake_messages_that_its_predecessor_queued() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let url = coordinator.url();
    let mut killed = session(work.path(), "homeassistant", &url).await?;
    let meshtastic = session(work.path(), "meshtastic", &url).await?;
    killed.reply("ping", json!({})).await?;
    meshtastic.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    for text in ["one", "two", "three"] {
        queue(&killed, "meshtastic", text).await?;
    }
    killed.process().kill().await?;
    coordinator.restart().await?;

    // Its first call, before it has a link.
    let next = session(work.path(), "homeassistant", &url).await?;
    next.reply(
        "send_message",
        json!({"target": "meshtastic", "message": "four"}),
    )
    .await?;
    let received = receive(&meshtastic, 4).await?;
    let texts: Vec<_> = received.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "three", "four"]);
    Ok(())
}

#[tokio::test]
async fn a_send_goes_on_once_another_process_has_sent_the_queued_messages() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let url = coordinator.url();
    let mut killed = session(work.path(), "homeassistant", &url).await?;
    let meshtastic = session(work.path(), "meshtastic", &url).await?;
    killed.reply("ping", json!({})).await?;
    meshtastic.reply("ping", json!({})).await?;
    meshtastic.end(SOON).await?;
    coordinator.kill().await?;
    queue(&killed, "meshtastic", "one").await?;
    killed.process().kill().await?;

    let next = session(work.path(), "homeassistant", &url).await?;
    let send = async {
        let arguments = json!({"target": "meshtastic", "message": "two"});
        next.reply("send_message", arguments).await
    };
    let journal = work
        .path()
        .join(".local/state/c3po/journal/homeassistant.jsonl");
    let sent_by_another = async {
        sleep(Duration::from_millis(500)).await;
        fs::write(journal, "")?;
        coordinator.restart().await
    };
    let (sent, restarted) = tokio::join!(send, sent_by_another);
    restarted?;
    sent.map(|_| ())
}

#[tokio::test]
async fn doctor_reports_queued_messages_that_were_refused() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let homeassistant = session(work.path(), "homeassistant", &coordinator.url()).await?;
    homeassistant.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    queue(&homeassistant, "nobody", "to one who does not exist").await?;
    let doctor = async || -> Result<String> {
        let mut doctor = command(program("c3po")?, work.path());
        doctor
            .arg("doctor")
            .env("C3PO_COORDINATOR_URL", "http://127.0.0.1:1")
            .env("XDG_RUNTIME_DIR", work.path());
        Ok(String::from_utf8(doctor.output().await?.stdout)?)
    };
    let waiting = doctor().await?;
    assert!(
        waiting.contains("messages that homeassistant queued on this host: 1"),
        "{waiting}"
    );
    coordinator.restart().await?;
    let refused = eventually("it is refused", SOON, async || {
        let said = doctor().await.ok()?;
        (said.contains("of homeassistant that were refused: 1;")
            && !said.contains("queued on this host"))
        .then_some(said)
    })
    .await?;
    assert!(refused.contains("no agent named nobody"), "{refused}");
    assert!(refused.contains("homeassistant~refused.jsonl"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn a_refused_message_that_cannot_be_stored_holds_up_no_other() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let homeassistant = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let meshtastic = session(work.path(), "meshtastic", &coordinator.url()).await?;
    homeassistant.reply("ping", json!({})).await?;
    meshtastic.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    queue(&homeassistant, "nobody", "to one who does not exist").await?;
    queue(&homeassistant, "meshtastic", "one").await?;
    // A folder in place of the file of refused messages: appending fails, as on a full disk.
    fs::create_dir(
        work.path()
            .join(".local/state/c3po/journal/homeassistant~refused.jsonl"),
    )?;
    coordinator.restart().await?;
    receive(&meshtastic, 1).await?;
    let plain = json!({"target": "meshtastic", "message": "two"});
    homeassistant.reply("send_message", plain).await?;
    Ok(())
}

#[tokio::test]
async fn two_sessions_that_wish_for_one_name_get_the_answers_to_their_own_questions() -> Result<()>
{
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let url = coordinator.url();
    let meshtastic = session(work.path(), "meshtastic", &url).await?;
    meshtastic.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    let mut sessions = Vec::new();
    for text in ["of the first", "of the second"] {
        let session = session(work.path(), "homeassistant", &url).await?;
        queue(&session, "meshtastic", text).await?;
        sessions.push((session, text));
    }
    coordinator.restart().await?;
    let received = receive(&meshtastic, 2).await?;
    for (session, text) in sessions {
        let pong = session.reply("ping", json!({})).await?;
        let expected = (
            pong["agent_id"].as_str().unwrap_or_default().to_owned(),
            text.to_owned(),
        );
        assert!(received.contains(&expected), "{received:?} {pong}");
    }
    Ok(())
}

#[tokio::test]
async fn messages_that_a_session_queued_before_it_had_a_name_outlive_it() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let url = coordinator.url();
    let meshtastic = session(work.path(), "meshtastic", &url).await?;
    meshtastic.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    let mut dead = session(work.path(), "homeassistant", &url).await?;
    queue(&dead, "meshtastic", "one").await?;
    dead.process().kill().await?;
    coordinator.restart().await?;
    let received = receive(&meshtastic, 1).await?;
    assert_eq!(received, [("homeassistant".to_owned(), "one".to_owned())]);
    let files = fs::read_dir(work.path().join(".local/state/c3po/journal"))?;
    let names = files
        .map(|file| Ok(file?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    assert!(!names.iter().any(|name| name.contains('~')), "{names:?}");
    Ok(())
}

#[tokio::test]
async fn the_time_in_the_queue_is_a_part_of_a_messages_life() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let homeassistant = session(work.path(), "homeassistant", &coordinator.url()).await?;
    let meshtastic = session(work.path(), "meshtastic", &coordinator.url()).await?;
    homeassistant.reply("ping", json!({})).await?;
    meshtastic.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    for (text, life) in [("short", 1), ("long", 3_600)] {
        let arguments = json!({
            "target": "meshtastic", "message": text, "queue_if_down": true, "expires_in": life,
        });
        homeassistant.reply("send_message", arguments).await?;
    }
    sleep(Duration::from_secs(2)).await;
    coordinator.restart().await?;
    let received = receive(&meshtastic, 1).await?;
    assert_eq!(received[0].1, "long");
    let refused = work
        .path()
        .join(".local/state/c3po/journal/homeassistant~refused.jsonl");
    let refused = fs::read_to_string(refused)?;
    assert!(refused.contains("expired while it was queued"), "{refused}");
    Ok(())
}

/// Starts a session of the project `homeassistant` on a host with its own files.
async fn session_on(work: &Path, host: &str, url: &str) -> Result<McpClient> {
    let home = work.join(host);
    let mut command = proxy_command(&home, "homeassistant", url)?;
    command.env("C3PO_HOST", host);
    let session = McpClient::start(command, &home.join("session.log"))?;
    session.initialize().await?;
    Ok(session)
}

#[tokio::test]
async fn messages_queued_before_the_first_link_go_out_under_the_name_that_it_gives() -> Result<()> {
    let work = TempDir::new()?;
    let mut coordinator = Coordinator::start(work.path()).await?;
    let url = coordinator.url();
    let meshtastic = session(work.path(), "meshtastic", &url).await?;
    meshtastic.reply("ping", json!({})).await?;
    let first = session_on(work.path(), "laptop", &url).await?;
    first.reply("ping", json!({})).await?;
    coordinator.kill().await?;
    let second = session_on(work.path(), "nas", &url).await?;
    for text in ["one", "two"] {
        queue(&second, "meshtastic", text).await?;
    }
    coordinator.restart().await?;
    let received = receive(&meshtastic, 2).await?;
    let expected = ["one", "two"].map(|text| ("homeassistant-2".to_owned(), text.to_owned()));
    assert_eq!(received, expected, "the name belongs to the laptop");
    Ok(())
}
