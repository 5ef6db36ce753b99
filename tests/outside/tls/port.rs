//! Clients of a port with TLS, and of one without.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use harness::coordinator::Coordinator;
use harness::entry::Entry;
use harness::http;
use harness::process::{command, program};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{SOON, coordinator, pinned, refusal, session};

/// After this time a rejected client has its answer, and an accepted one may still begin its handshake.
const TURNED_AWAY: Duration = Duration::from_secs(3);

#[tokio::test]
async fn plain_text_on_a_tls_port_and_tls_on_a_plain_port_are_explained() -> Result<()> {
    let work = TempDir::new()?;
    let with = coordinator(&work, "auto").await?;
    let answer = http::get(with.address(), "/api/health").await?;
    assert!(
        answer.status == 400 && answer.body.contains("https://"),
        "{answer:?}"
    );
    let url = format!("http://{}", with.address());
    let told = refusal(&session(work.path(), "plain", &url, &[]).await?).await?;
    ensure!(
        told["code"] == "INVALID_REQUEST"
            && told["suggestion"] == "Use https:// instead of http:// in the coordinator's URL.",
        "{told}"
    );

    let folder = TempDir::new()?;
    let without = Coordinator::start(folder.path()).await?;
    let url = format!("https://{}", without.address());
    let told = refusal(&session(folder.path(), "careful", &url, &[]).await?).await?;
    ensure!(
        told["code"] == "COORD_DOWN" && told.to_string().contains("it does not use TLS"),
        "{told}"
    );
    Ok(())
}

#[tokio::test]
async fn health_reports_a_coordinator_with_tls_as_healthy() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = coordinator(&work, "auto").await?;
    let mut health = command(program("c3po-coordinator")?, work.path());
    let said = health
        .args(["health", "--listen", &coordinator.address().to_string()])
        .output()
        .await?;
    assert!(
        said.status.success() && String::from_utf8_lossy(&said.stderr).contains("\"ok\""),
        "{said:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_long_request_right_behind_the_handshake_is_answered() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = coordinator(&work, "auto").await?;
    let entry = Entry::tls(coordinator.address())?;
    let text = "x".repeat(100_000);
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"text": text}}).to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        coordinator.address(),
        body.len()
    );
    // The system decides how much of it is read together with the end of the handshake.
    for number in 0..40 {
        let mut stream = entry.connect(number).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        let read = timeout(SOON, stream.read_to_end(&mut answer)).await?;
        ensure!(answer.starts_with(b"HTTP/1.1 "), "{number}: {read:?}");
    }
    Ok(())
}

#[tokio::test]
async fn unfinished_handshakes_end_and_do_not_delay_others() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = coordinator(&work, "auto").await?;
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(coordinator.address()).await?;
        // The start of a handshake.
        stream.write_all(&[0x16, 3, 1]).await?;
        waiting.push(stream);
    }
    let good = pinned(&work, "good", &coordinator, &coordinator.fingerprint()?).await?;
    timeout(Duration::from_secs(5), good.reply("ping", json!({}))).await??;
    for mut stream in waiting {
        let rest = timeout(SOON, stream.read_to_end(&mut Vec::new()))
            .await
            .context("the connection goes on")?;
        // A reset connection has ended too.
        ensure!(rest.unwrap_or(0) == 0, "nothing is answered");
    }
    good.reply("ping", json!({})).await?;
    Ok(())
}

/// Takes that many connection slots with silent connections until a further one is rejected. An earlier request may have held a
/// slot for a moment, so that one of them was rejected instead: another one takes its place.
async fn take_every_place(address: SocketAddr, places: usize) -> Result<Vec<TcpStream>> {
    let mut silent: Vec<TcpStream> = Vec::new();
    loop {
        let mut stream = TcpStream::connect(address).await?;
        // A rejected connection gets its answer within a second. An accepted one has ten seconds for its handshake.
        if silent.len() < places || timeout(TURNED_AWAY, stream.read_u8()).await.is_err() {
            silent.push(stream);
            continue;
        }
        silent.retain(is_open);
        if silent.len() >= places {
            return Ok(silent);
        }
    }
}

/// Returns whether nothing came on a connection, not even its end.
fn is_open(stream: &TcpStream) -> bool {
    let read = stream.try_read(&mut [0]);
    read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[tokio::test]
async fn a_connection_over_the_limit_is_refused_over_tls_too() -> Result<()> {
    let work = TempDir::new()?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?
        .over_tls("auto")
        .with_descriptors(100);
    coordinator.restart().await?;
    let silent = take_every_place(coordinator.address(), 50).await?;
    let session = pinned(&work, "late", &coordinator, &coordinator.fingerprint()?).await?;
    let told = refusal(&session).await?;
    ensure!(
        told["code"] == "COORD_DOWN" && told.to_string().contains("its limit of 50 connections"),
        "{told}"
    );
    drop(silent);
    Ok(())
}
