//! `c3po man`: the manual pages, generated from `--help`.

use std::path::PathBuf;

use clap::CommandFactory;

use super::Cli;
use super::failure::Failure;
use super::print::Printer;

/// The folder of the pages.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The folder, such as ~/.local/share/man/man1; it is created if missing
    folder: PathBuf,
}

pub(super) fn run(printer: &Printer, arguments: &Arguments) -> Result<(), Failure> {
    let folder = &arguments.folder;
    let written = std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), folder));
    written.map_err(|error| {
        Failure::Usage(format!("cannot write to {}: {error}", folder.display()))
    })?;
    printer.line(&format!(
        "The manual pages are in {}: man c3po",
        folder.display()
    ))
}
