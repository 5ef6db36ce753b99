//! `c3po`: reads the command line and the configuration, and runs the command.

use std::process::ExitCode;

use clap::Parser;

use c3po::commands::{self, Cli};
use c3po::config::Config;
use c3po::hook;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os()
        .skip(1)
        .map(|word| word.into_string().unwrap_or_default())
        .collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        // Before everything else: a hook has two milliseconds, and parses neither the whole command line nor the
        // configuration.
        ["hook", rest @ ..] => {
            if let Some(code) = hook::run(rest.first().copied(), rest.get(1).copied()) {
                return code;
            }
        }
        // Every session has one, so it does not load the parser of the command line.
        ["proxy"] => return commands::run_proxy(Config::read()),
        _ => {}
    }
    commands::complete();
    commands::run(Cli::parse(), Config::read())
}
