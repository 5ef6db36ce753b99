//! The plugin, its launcher, and `c3po install` with the real Claude Code.

mod files;
mod host;
mod install;
mod launcher;
mod settings;
mod skills;
mod uninstall;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder or a file of the project.
fn project(path: &str) -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the tests have no parent folder")?;
    Ok(root.join(path))
}

fn text(path: &str) -> Result<String> {
    std::fs::read_to_string(project(path)?).with_context(|| path.to_owned())
}
