//! The plugin, its launcher, and `c3po install` with the real Claude Code.

mod files;
mod host;
mod install;
mod launcher;
mod settings;
mod skills;
mod uninstall;

use std::path::PathBuf;

use anyhow::{Context, Result};
use harness::project::root;

/// Returns the path of a folder or file of the project.
fn project(path: &str) -> PathBuf {
    root().join(path)
}

fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(project(path)).with_context(|| path.to_owned())
}
