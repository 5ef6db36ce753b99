//! `c3po`: reads the command line and the configuration, and runs the command.

use std::process::ExitCode;

use clap::Parser;

use c3po::commands::{self, Cli};
use c3po::config::Config;

fn main() -> ExitCode {
    let cli = Cli::parse();
    commands::run(cli, Config::read())
}
