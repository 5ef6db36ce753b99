//! `c3po completions`: what a shell needs to complete c3po's commands.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use super::failure::Failure;

/// For which shell.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "c3po", &mut script);
    std::io::stdout().write_all(&script).map_err(|error| Failure::of_output(&error))
}
