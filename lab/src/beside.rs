//! `lab beside COMMAND…`: runs a command beside a coordinator, and finds both programs for it.

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use harness::coordinator::Coordinator;
use harness::process::program;
use tokio::process::Command;
use tokio::time::timeout;

/// Deadline of the command. The slowest one starts thirty programs one after the other.
const COMMAND: Duration = Duration::from_secs(300);

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Returns the exit code of the command. Its environment also has C3PO_PROGRAM and C3PO_WORK, a folder.
pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let (program_to_run, arguments) = options.command.split_first().context("no command")?;
    let mut command = Command::new(program_to_run);
    let work = tempfile::tempdir().context("making a folder")?;
    let store = format!("sqlite:{}", work.path().join("c3po.db").display());
    let mut coordinator = Coordinator::absent(work.path(), &store)?.quietly();
    coordinator.restart().await?;

    command.args(arguments).kill_on_drop(true);
    command
        .env("C3PO_COORDINATOR_URL", coordinator.url())
        .env("C3PO_PROGRAM", program("c3po")?);
    command.env("C3PO_WORK", work.path());
    let mut child = command.spawn().context("starting the command")?;
    let status = timeout(COMMAND, child.wait())
        .await
        .context("the command does not end")?
        .context("waiting for it")?;
    if !status.success() {
        eprintln!("the coordinator's log:\n{}", coordinator.process()?.log());
    }
    coordinator.stop().await?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}
