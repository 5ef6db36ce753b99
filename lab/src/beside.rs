//! Runs a command beside a coordinator: `with_coordinator COMMAND…`, which finds both programs in its environment.

use std::env;
use std::process::exit;
use std::time::Duration;

use anyhow::{Context, Result};
use harness::coordinator::Coordinator;
use harness::process::program;
use tokio::process::Command;
use tokio::time::timeout;

/// The slowest of the commands starts thirty programs one after the other.
const COMMAND: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = env::args_os().skip(1);
    let mut command = Command::new(arguments.next().context("no command")?);
    let work = tempfile::tempdir().context("making a folder")?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.quietly();
    coordinator.restart().await?;

    command.args(arguments).kill_on_drop(true);
    command.env("C3PO_COORDINATOR_URL", coordinator.url()).env("C3PO_PROGRAM", program("c3po")?);
    command.env("C3PO_WORK", work.path());
    let mut child = command.spawn().context("starting the command")?;
    let status = timeout(COMMAND, child.wait()).await.context("the command does not end")?.context("waiting for it")?;
    if !status.success() {
        eprintln!("the coordinator's log:\n{}", coordinator.process()?.log());
    }
    coordinator.stop().await?;
    drop(work);
    exit(status.code().unwrap_or(1))
}
