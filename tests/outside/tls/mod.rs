//! TLS between hosts and coordinator: whom a host trusts, what it says of others, and what the port makes of whoever comes.

mod files;
mod port;
mod trust;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::coordinator::Coordinator;
use harness::mcp::McpClient;
use harness::proxy::proxy_command;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What ends by a deadline of 10 s is over by then, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

async fn coordinator(work: &TempDir, tls: &str) -> Result<Coordinator> {
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.over_tls(tls);
    coordinator.restart().await?;
    Ok(coordinator)
}

/// Starts a session with further variables.
async fn session(work: &Path, project: &str, url: &str, variables: &[(&str, &str)]) -> Result<McpClient> {
    let mut command = proxy_command(work, project, url)?;
    command.envs(variables.iter().copied());
    let client = McpClient::start(command, &work.join(format!("{project}.log")))?;
    client.initialize().await.with_context(|| format!("the proxy of {project}"))?;
    Ok(client)
}

/// Starts a session that trusts one certificate.
async fn pinned(work: &TempDir, project: &str, coordinator: &Coordinator, fingerprint: &str) -> Result<McpClient> {
    session(work.path(), project, &coordinator.url(), &[("C3PO_FINGERPRINT", fingerprint)]).await
}

/// Returns what a session is told that has no link.
async fn refusal(session: &McpClient) -> Result<Value> {
    let refused = session.call("ping", json!({})).await?;
    anyhow::ensure!(refused.is_error, "{:?}", refused.json()?);
    refused.json()
}
