//! A real proxy with a test client, in its own project folder.

use std::fs;
use std::path::Path;
use std::process::{self, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::mcp::McpClient;
use crate::process::{command, program};

/// Returns the command that a client runs for the session of `project`. Creates its folder `work/project`.
///
/// Errors: the folder cannot be created, or the program is not built.
pub fn proxy_command(work: &Path, project: &str, coordinator: &str) -> Result<Command> {
    let folder = work.join(project);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut proxy = command(program("c3po")?, work);
    proxy
        .arg("proxy")
        .current_dir(&folder)
        .env("CLAUDE_PROJECT_DIR", &folder);
    proxy
        .env("C3PO_COORDINATOR_URL", coordinator)
        .env("XDG_RUNTIME_DIR", work);
    Ok(proxy)
}

/// Starts a session: the proxy of `project`, after the handshake.
///
/// Errors: it does not start or does not respond.
pub async fn session(work: &Path, project: &str, coordinator: &str) -> Result<McpClient> {
    let command = proxy_command(work, project, coordinator)?;
    let client = McpClient::start(command, &work.join(format!("{project}.log")))?;
    client
        .initialize()
        .await
        .with_context(|| format!("the proxy of {project}"))?;
    Ok(client)
}

/// Runs the hook of a prompt, as the client of the session in that folder does.
///
/// Errors: it does not start, or exits with a code other than 0.
pub async fn prompt(work: &Path, text: &str) -> Result<()> {
    let mut hook = command(program("c3po")?, work);
    hook.args(["hook", "user-prompt-submit"])
        .env("XDG_RUNTIME_DIR", work);
    hook.env("CLAUDE_PID", process::id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut hook = hook.spawn()?;
    let input = json!({"session_id": "s1", "prompt_id": "p1", "prompt": text}).to_string();
    hook.stdin
        .take()
        .context("its input")?
        .write_all(input.as_bytes())
        .await?;
    ensure!(hook.wait().await?.success(), "a hook ends with 0");
    Ok(())
}
