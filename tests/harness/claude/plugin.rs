//! A copy of the project's plugin for one test, with the program that was just built.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::process::program;

/// The plugin as users install it, except for its program.
const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugin");

/// Copies the plugin to `work/plugin`, with the built program as its `bin/c3po`, and returns that folder.
///
/// Errors: a file cannot be read or written, or the program is not built.
pub fn plugin_copy(work: &Path) -> Result<PathBuf> {
    let folder = work.join("plugin");
    copy(Path::new(PLUGIN), &folder)?;
    let within = folder.join("bin/c3po");
    fs::create_dir_all(folder.join("bin")).context("making the plugin's bin")?;
    if within.exists() {
        fs::remove_file(&within).context("taking the plugin's program away")?;
    }
    symlink(program("c3po")?, &within).context("putting the program into the plugin")?;
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry.context("reading a folder")?;
        let target = to.join(entry.file_name());
        if entry
            .file_type()
            .context("asking for a file's type")?
            .is_dir()
        {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| entry.path().display().to_string())?;
        }
    }
    Ok(())
}
