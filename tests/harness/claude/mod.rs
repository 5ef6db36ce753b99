//! The real Claude Code at a pinned version, in a temporary home, with the fake API as its only model.
//!
//! - [`options`]: its folders and settings; [`home`]: files that prevent questions at startup
//! - [`print`]: `claude -p`; [`conversation`]: the same with prompts as JSON; [`interactive`]: a session in a terminal
//! - [`plugin`]: c3po's plugin, with the program as built

mod background;
mod conversation;
mod home;
mod interactive;
mod options;
mod plugin;
mod print;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::process::Command;
use tokio::time::timeout;

pub use background::Background;
pub use conversation::Conversation;
pub use interactive::{Interactive, said};
pub use options::Options;
pub use plugin::plugin_copy;
pub use print::{Finished, Run};

/// The version that the tests are written for: edge cases differ between versions.
pub const VERSION: &str = "2.1.329";
/// An older version that users still have: without an inbox socket, and without the query before the handshake.
pub const OLDER: &str = "2.1.240";

/// The time limit of `--version`, which takes a tenth of a second.
const VERSION_ASKED: Duration = Duration::from_secs(30);

/// An installation of Claude Code.
#[derive(Debug, Clone)]
pub struct ClaudeCode {
    program: PathBuf,
}

impl ClaudeCode {
    /// Finds the installation that `C3PO_TEST_CLAUDE` names, or the pinned version in the tests' cache folder.
    ///
    /// Errors: there is none. The error is the reason for a skipped test. If `C3PO_TEST_CLAUDE` names a missing file, this
    /// panics.
    pub fn find() -> Result<Self> {
        if let Some(named) = env::var_os("C3PO_TEST_CLAUDE") {
            let program = PathBuf::from(named);
            assert!(
                program.is_file(),
                "C3PO_TEST_CLAUDE names {}, which is no file",
                program.display()
            );
            return Ok(Self { program });
        }
        Self::find_version(VERSION)
    }

    /// Finds exactly that version in the tests' cache folder.
    ///
    /// Errors: it is not there. The error is the reason for a skipped test.
    pub fn find_version(version: &str) -> Result<Self> {
        let program = cache()?.join(format!("claude-{version}/node_modules/.bin/claude"));
        if !program.is_file() {
            let target = if version == VERSION {
                "test"
            } else {
                "claude-e2e"
            };
            bail!(
                "Claude Code {version} is not installed; `make {target}` installs it where npm is there"
            );
        }
        Ok(Self { program })
    }

    /// Returns the path of its program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns whether its sessions have an inbox socket without a query over the network.
    ///
    /// Errors: it cannot be started.
    pub async fn has_inbox(&self) -> Result<bool> {
        let asked = Command::new(&self.program)
            .arg("--version")
            .env_clear()
            .kill_on_drop(true)
            .output();
        let said = timeout(VERSION_ASKED, asked)
            .await
            .context("it does not say its version")??;
        Ok(!String::from_utf8_lossy(&said.stdout).starts_with(OLDER))
    }
}

/// Returns the folder in which the tests cache downloads.
///
/// Errors: there is no home.
pub(crate) fn cache() -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    Ok(cache
        .context("neither XDG_CACHE_HOME nor HOME is set")?
        .join("c3po-tests"))
}
