//! Deadlines of connections: a slow, silent or oversized client is disconnected, and other clients are not delayed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use harness::coordinator::Coordinator;
use harness::eventually::eventually;
use harness::http;
use harness::proxy::session;
use harness::vitals::raise_descriptor_limit;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A head and an idle connection have a deadline of 10 s; the rest allows for a machine that builds at the same time.
const HEAD_LOST: Duration = Duration::from_secs(25);
/// A body has a deadline of 30 s.
const BODY_LOST: Duration = Duration::from_secs(50);
/// The number of connections opened at once …
const AT_ONCE: usize = 300;
/// … until this many silent connections are open.
const SILENT: usize = 3_000;

async fn said(coordinator: &Coordinator, text: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(coordinator.address()).await?;
    stream.write_all(text.as_bytes()).await?;
    Ok(stream)
}

/// Reads until the other side closes the connection.
async fn rest(stream: &mut TcpStream, within: Duration) -> Result<String> {
    let mut rest = Vec::new();
    // A reset connection has ended too.
    let _ = timeout(within, stream.read_to_end(&mut rest))
        .await
        .context("the connection goes on")?;
    Ok(String::from_utf8_lossy(&rest).into_owned())
}

async fn one_byte(coordinator: &Coordinator) -> Result<()> {
    let mut stream = said(coordinator, "G").await?;
    ensure!(
        rest(&mut stream, HEAD_LOST).await?.is_empty(),
        "there is nothing to answer"
    );
    Ok(())
}

async fn idle(coordinator: &Coordinator) -> Result<()> {
    let began = Instant::now();
    let mut stream = said(
        coordinator,
        "GET /api/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    .await?;
    let answer = rest(&mut stream, HEAD_LOST).await?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    ensure!(
        began.elapsed() > Duration::from_secs(5),
        "there is time for a second request: {:?}",
        began.elapsed()
    );
    Ok(())
}

/// Sends one byte of the head at a time, without end.
async fn dribbled_head(coordinator: &Coordinator) -> Result<()> {
    let (mut reading, mut writing) =
        said(coordinator, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
            .await?
            .into_split();
    eventually("the connection is lost", HEAD_LOST, async || {
        let written = writing.write_all(b"a").await;
        let over = matches!(reading.try_read(&mut [0; 64]), Ok(0)) || written.is_err();
        over.then_some(())
    })
    .await?;
    ensure!(
        reading.read(&mut [0]).await.unwrap_or(0) == 0,
        "nothing is answered"
    );
    Ok(())
}

async fn half_a_body(coordinator: &Coordinator) -> Result<()> {
    let head = "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Agent-ID: a\r\nContent-Type: application/json\r\n\
                Accept: application/json, text/event-stream\r\nContent-Length: 1000\r\n\r\n{\"jsonrpc\":";
    let began = Instant::now();
    let mut stream = said(coordinator, head).await?;
    let answer = rest(&mut stream, BODY_LOST).await?;
    ensure!(
        answer.starts_with("HTTP/1.1 408") && answer.contains("within 30 s"),
        "{answer}"
    );
    ensure!(
        began.elapsed() > Duration::from_secs(20),
        "a slow line is no reason: {:?}",
        began.elapsed()
    );
    Ok(())
}

async fn too_much(coordinator: &Coordinator) -> Result<()> {
    let address = coordinator.address();
    let long = format!(
        "GET /api/health HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n",
        "a".repeat(10_000)
    );
    ensure!(http::request(address, &long).await?.status == 431);
    let many: String = (0..100)
        .map(|number| format!("X-{number}: a\r\n"))
        .collect();
    ensure!(
        http::request(address, &format!("GET /api/health HTTP/1.1\r\n{many}\r\n"))
            .await?
            .status
            == 431
    );
    let big = "a".repeat((1 << 20) + 1);
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("X-Agent-ID", "a"),
    ];
    ensure!(http::post(address, "/mcp", &headers, &big).await?.status == 413);
    Ok(())
}

/// Starts downloads until all download slots are taken, and reads none of them.
async fn nothing_is_read(coordinator: &Coordinator) -> Result<()> {
    let fetch = format!(
        "GET /download/linux-{}/c3po HTTP/1.1\r\nHost: localhost\r\n\r\n",
        std::env::consts::ARCH
    );
    let mut fetching = Vec::new();
    let last = loop {
        let mut stream = said(coordinator, &fetch).await?;
        let mut status = [0; 12];
        timeout(HEAD_LOST, stream.read_exact(&mut status)).await??;
        if &status != b"HTTP/1.1 200" {
            break String::from_utf8_lossy(&status).into_owned();
        }
        fetching.push(stream);
        ensure!(fetching.len() < 20, "there is no end of places");
    };
    ensure!(last == "HTTP/1.1 429", "{last}");
    eventually("the places are free again", BODY_LOST, async || {
        let mut stream = said(coordinator, &fetch).await.ok()?;
        let mut status = [0; 12];
        timeout(HEAD_LOST, stream.read_exact(&mut status))
            .await
            .ok()?
            .ok()?;
        (&status == b"HTTP/1.1 200").then_some(())
    })
    .await
}

/// One test, because each part spends most of its time waiting.
#[tokio::test]
async fn slow_and_oversized_senders_lose_the_connection() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    tokio::try_join!(
        one_byte(&coordinator),
        idle(&coordinator),
        dribbled_head(&coordinator),
        half_a_body(&coordinator),
        nothing_is_read(&coordinator),
        too_much(&coordinator),
    )?;
    eventually("every place is free again", HEAD_LOST, async || {
        let metrics = http::get(coordinator.address(), "/metrics")
            .await
            .ok()?
            .body;
        ensure_limits(&metrics);
        metrics
            .lines()
            .any(|line| line == "c3po_connections 1")
            .then_some(())
    })
    .await
}

fn ensure_limits(metrics: &str) {
    for limit in [
        "head_seconds\"} 10",
        "body_seconds\"} 30",
        "head_bytes\"} 8192",
        "frame_bytes\"} 1048576",
    ] {
        assert!(metrics.contains(limit), "{limit} is not in\n{metrics}");
    }
}

#[tokio::test]
async fn thousands_of_silent_connections_do_not_delay_others() -> Result<()> {
    raise_descriptor_limit()?;
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let good = session(work.path(), "good", &coordinator.url()).await?;
    good.reply("ping", json!({})).await?;
    let mut silent = Vec::new();
    // Not more at once than the listener's backlog holds: the others would retry only seconds later.
    while silent.len() < SILENT {
        silent.extend(
            try_join_all((0..AT_ONCE).map(|_| TcpStream::connect(coordinator.address()))).await?,
        );
    }
    eventually("all of them are in", HEAD_LOST, async || {
        let metrics = http::get(coordinator.address(), "/metrics")
            .await
            .ok()?
            .body;
        let places = metrics
            .lines()
            .find_map(|line| line.strip_prefix("c3po_connections "))?;
        (places.parse::<usize>().ok()? > SILENT).then_some(())
    })
    .await?;
    let began = Instant::now();
    for _ in 0..20 {
        good.reply("ping", json!({})).await?;
    }
    let newcomer = session(work.path(), "newcomer", &coordinator.url()).await?;
    newcomer
        .reply(
            "send_message",
            json!({"target": "good", "message": "hello"}),
        )
        .await?;
    ensure!(
        good.reply("wait_for_message", json!({"timeout": 5}))
            .await?["message"]
            == "hello"
    );
    ensure!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    drop(silent);
    Ok(())
}
