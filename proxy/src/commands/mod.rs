//! What people type: one file for each command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::Config;
use crate::{logs, proxy};

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "c3po", version, about = "Messages between agents, on hosts and containers of your own")]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP on standard input and output (what a client starts beside a session)
    Proxy,
}

/// Runs a command and returns how it ended.
pub fn run(cli: Cli, config: Config) -> ExitCode {
    logs::start(&config);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("c3po: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = match cli.command {
        Command::Proxy => match runtime.block_on(proxy::run(config)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("c3po: {error:#}");
                ExitCode::FAILURE
            }
        },
    };
    // A thread that reads a terminal cannot be stopped, and nothing else is left to wait for.
    runtime.shutdown_background();
    code
}
