//! Requests from web pages: a browser sends them to this machine too, and the coordinator rejects all of them.

use anyhow::{Result, ensure};
use harness::coordinator::Coordinator;
use harness::http::{self, Answer};
use tempfile::TempDir;

const CLOSE: &str = "Connection: close\r\n";
/// The requests that a page may make, with the headers that they need.
const ASKED: [(&str, &str); 8] = [
    (
        "GET /acp",
        "Connection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: c3po.acp.v1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    ),
    ("GET /api/agents", CLOSE),
    ("GET /api/pending", "Connection: close\r\nX-Agent-ID: a\r\n"),
    ("GET /api/audit", CLOSE),
    (
        "POST /api/unregister",
        "Connection: close\r\nX-Agent-ID: a\r\n",
    ),
    ("GET /metrics", CLOSE),
    ("GET /api/health", CLOSE),
    ("GET /join.sh", CLOSE),
];

async fn ask(
    coordinator: &Coordinator,
    asked: (&str, &str),
    host: &str,
    more: &str,
) -> Result<Answer> {
    let (line, needs) = asked;
    let text = format!("{line} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n{needs}{more}\r\n");
    http::request(coordinator.address(), &text).await
}

#[tokio::test]
async fn pages_of_other_sites_and_foreign_host_names_are_refused() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let own = coordinator.address().to_string();
    for asked in ASKED {
        for (host, more) in [
            (own.as_str(), "Origin: http://evil.example\r\n"),
            (own.as_str(), "Origin: null\r\n"),
            // DNS rebinding: the page's own name now resolves to this machine, so the browser treats the request as
            // same-origin.
            ("evil.example:8420", "Origin: http://evil.example:8420\r\n"),
            ("evil.example:8420", ""),
            // Any device on the network may claim such a name and make it resolve to this machine.
            ("evil.local:8420", ""),
            ("evil", ""),
            (own.as_str(), "Sec-Fetch-Site: cross-site\r\n"),
        ] {
            let answer = ask(&coordinator, asked, host, more).await?;
            ensure!(
                answer.status == 403 && answer.body.contains("FORBIDDEN"),
                "{asked:?} {host} {more}: {answer:?}"
            );
        }
    }
    for asked in &ASKED[1..] {
        for host in [own.as_str(), "localhost:1", "[::1]:8420"] {
            let answer = ask(&coordinator, *asked, host, "").await?;
            ensure!(answer.status == 200, "{asked:?} {host}: {answer:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn mcp_is_there_for_pages_of_this_machine_alone() -> Result<()> {
    let work = TempDir::new()?;
    let coordinator = Coordinator::start(work.path()).await?;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let accept = ("Accept", "application/json, text/event-stream");
    for (origin, status) in [
        ("http://localhost:6274", 200),
        ("http://evil.example", 403),
        ("null", 403),
    ] {
        let headers = [accept, ("X-Agent-ID", "a"), ("Origin", origin)];
        let answer = http::post(coordinator.address(), "/mcp", &headers, body).await?;
        ensure!(answer.status == status, "{origin}: {answer:?}");
    }
    let rebound = format!(
        "POST /mcp HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nX-Agent-ID: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    ensure!(http::request(coordinator.address(), &rebound).await?.status == 403);
    Ok(())
}
