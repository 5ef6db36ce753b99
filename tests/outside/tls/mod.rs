//! TLS between hosts and coordinator: the certificates that a host trusts, its errors about others, and the port's behaviour.

mod files;
mod logout;
mod port;
mod trust;
mod turned;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::coordinator::Coordinator;
use harness::mcp::McpClient;
use harness::proxy::proxy_command;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long a connection with a deadline of 10 s may last, on a machine that builds at the same time.
const SOON: Duration = Duration::from_secs(30);

async fn coordinator(work: &TempDir, tls: &str) -> Result<Coordinator> {
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.over_tls(tls);
    coordinator.restart().await?;
    Ok(coordinator)
}

/// Starts a session with additional variables.
async fn session(
    work: &Path,
    project: &str,
    url: &str,
    variables: &[(&str, &str)],
) -> Result<McpClient> {
    let mut command = proxy_command(work, project, url)?;
    command.envs(variables.iter().copied());
    let client = McpClient::start(command, &work.join(format!("{project}.log")))?;
    client
        .initialize()
        .await
        .with_context(|| format!("the proxy of {project}"))?;
    Ok(client)
}

/// Starts a session that trusts one certificate.
async fn pinned(
    work: &TempDir,
    project: &str,
    coordinator: &Coordinator,
    fingerprint: &str,
) -> Result<McpClient> {
    session(
        work.path(),
        project,
        &coordinator.url(),
        &[("C3PO_FINGERPRINT", fingerprint)],
    )
    .await
}

/// Returns the refusal that a session without a link gets.
async fn refusal(session: &McpClient) -> Result<Value> {
    let refused = session.call("ping", json!({})).await?;
    anyhow::ensure!(refused.is_error, "{:?}", refused.json()?);
    refused.json()
}
