//! `c3po`: reads the command line and the configuration, and runs the command.

use std::process::ExitCode;

use clap::Parser;

use c3po::commands::{self, Cli};
use c3po::config::Config;
use c3po::hook;

fn main() -> ExitCode {
    // Before everything else: a hook has two milliseconds, and reads neither the whole command line nor the configuration.
    let mut arguments = std::env::args_os().skip(1).map(|argument| argument.into_string().unwrap_or_default());
    if arguments.next().is_some_and(|first| first == "hook")
        && let Some(code) = hook::run(arguments.next().as_deref(), arguments.next().as_deref())
    {
        return code;
    }
    let cli = Cli::parse();
    commands::run(cli, Config::read())
}
