//! `lab demo`: two agents, each behind a real proxy, ask and answer; then their receipts and times.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::mcp::McpClient;
use harness::proxy::session;
use serde_json::{Value, json};

const QUESTION: &str = "What MQTT topics are available?";
const ANSWER: &str = "zigbee2mqtt/# for the sensors, frigate/events for the cameras.";
/// How long either side waits for the other, in seconds.
const WAIT: u64 = 10;
/// Deadline of a wait, which ends by itself before that.
const WAIT_END: Duration = Duration::from_secs(WAIT + 5);
/// A proxy sends its goodbye within 100 ms; the rest is for a busy machine.
const GOODBYE: Duration = Duration::from_secs(5);
/// How often the ping is measured.
const PINGS: usize = 200;

pub(crate) async fn run() -> Result<ExitCode> {
    let work = tempfile::tempdir().context("making a folder")?;
    let coordinator = Coordinator::absent(work.path(), &sqlite(work.path()))?;
    let mut coordinator = coordinator.quietly();
    let started = Instant::now();
    coordinator.restart().await?;
    println!(
        "coordinator on {}, SQLite, serving after {}",
        coordinator.url(),
        milliseconds(started)
    );

    let started = Instant::now();
    let home = session(work.path(), "homeassistant", &coordinator.url())
        .await?
        .quietly();
    println!(
        "proxy in the folder homeassistant, initialized after {}",
        milliseconds(started)
    );
    let mesh = session(work.path(), "meshtastic", &coordinator.url())
        .await?
        .quietly();
    println!("proxy in the folder meshtastic\n");
    for agent in [&home, &mesh] {
        agent.reply("ping", json!({})).await?;
    }

    let (question, reply) = talk(&home, &mesh).await?;
    receipts(&home, "the question", &question).await?;
    receipts(&mesh, "the answer", &reply).await?;
    pings(&home).await?;

    for agent in [home, mesh] {
        let status = agent.end(GOODBYE).await?;
        ensure!(status.success(), "a proxy ended with {status}");
    }
    let status = coordinator.stop().await?;
    ensure!(status.success(), "the coordinator ended with {status}");
    Ok(ExitCode::SUCCESS)
}

fn sqlite(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("c3po.db").display())
}

fn milliseconds(since: Instant) -> String {
    format!("{:.2} ms", since.elapsed().as_secs_f64() * 1_000.0)
}

/// Asks and answers, and returns the ids of the question and of the answer.
async fn talk(home: &McpClient, mesh: &McpClient) -> Result<(Value, Value)> {
    let waiting = mesh
        .begin_call("wait_for_message", json!({"timeout": WAIT}))
        .await?;
    let started = Instant::now();
    let arguments = json!({"target": "meshtastic", "title": "MQTT topics", "message": QUESTION});
    let sent = home.reply("send_message", arguments).await?;
    println!(
        "homeassistant -> send_message     {} ({})",
        stage(&sent),
        milliseconds(started)
    );
    let got = mesh.call_result(waiting, WAIT_END).await?.json()?;
    println!(
        "meshtastic    <- wait_for_message after {}",
        milliseconds(started)
    );
    say(&got["from_agent"], &got["message"])?;

    let arguments = json!({"message_id": sent["id"], "timeout": WAIT});
    let waiting = home.begin_call("wait_for_message", arguments).await?;
    let started = Instant::now();
    let reply = mesh
        .reply(
            "reply",
            json!({"message_id": got["id"], "response": ANSWER}),
        )
        .await?;
    println!(
        "meshtastic    -> reply            {} ({})",
        stage(&reply),
        milliseconds(started)
    );
    let answer = home.call_result(waiting, WAIT_END).await?.json()?;
    println!(
        "homeassistant <- wait_for_message after {}",
        milliseconds(started)
    );
    say(&answer["from_agent"], &answer["response"])?;
    Ok((sent["id"].clone(), reply["id"].clone()))
}

fn stage(sent: &Value) -> &str {
    sent["receipt"]["stage"]
        .as_str()
        .unwrap_or("without a receipt")
}

fn say(who: &Value, what: &Value) -> Result<()> {
    let (who, what) = (
        who.as_str().context("nobody said it")?,
        what.as_str().context("nothing was said")?,
    );
    println!("\n    {who}: {what}\n");
    Ok(())
}

/// Prints how far a message of this sender got, with the evidence.
async fn receipts(sender: &McpClient, name: &str, id: &Value) -> Result<()> {
    let status = sender
        .reply("message_status", json!({"message_id": id}))
        .await?;
    println!(
        "receipts of {name}, {}",
        id.as_str().context("a message without an id")?
    );
    for step in status["history"]
        .as_array()
        .context("a receipt without a history")?
    {
        let field = |name: &str| step[name].as_str().unwrap_or("-").to_owned();
        println!(
            "    {:<12} {}  via {}",
            field("stage"),
            field("at"),
            field("via")
        );
    }
    println!();
    Ok(())
}

async fn pings(agent: &McpClient) -> Result<()> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let started = Instant::now();
        agent.reply("ping", json!({})).await?;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    println!(
        "ping through proxy and coordinator, {PINGS} times: p50 {:?}, p99 {:?}",
        times[PINGS / 2],
        times[PINGS * 99 / 100]
    );
    Ok(())
}
