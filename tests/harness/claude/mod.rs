//! The real Claude Code, pinned, in a home made for one run, asking a model of ours and nobody else.
//!
//! - [`options`]: where it runs and with what; [`home`]: what makes it start without questions
//! - [`print`]: `claude -p`; [`conversation`]: the same with prompts as JSON; [`interactive`]: a session in a terminal
//! - [`plugin`]: ours, with the program as built

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

pub use conversation::Conversation;
pub use interactive::{Interactive, said};
pub use options::Options;
pub use plugin::plugin_copy;
pub use print::{Finished, Run};

/// The version that the tests are written against: what it does at the edges differs from one to the next.
pub const VERSION: &str = "2.1.329";
/// An older one that users still have: without an inbox socket, and without the question before the handshake.
pub const OLDER: &str = "2.1.240";

/// It says its version in a tenth of a second.
const VERSION_ASKED: Duration = Duration::from_secs(30);

/// An installed Claude Code.
#[derive(Debug, Clone)]
pub struct ClaudeCode {
    program: PathBuf,
}

impl ClaudeCode {
    /// Finds the one that `C3PO_TEST_CLAUDE` names, or the pinned one in the tests' cache folder.
    ///
    /// Errors: there is none. The error is the reason for a skipped test, unless a named one is missing, which panics.
    pub fn find() -> Result<Self> {
        if let Some(named) = env::var_os("C3PO_TEST_CLAUDE") {
            let program = PathBuf::from(named);
            assert!(program.is_file(), "C3PO_TEST_CLAUDE names {}, which is no file", program.display());
            return Ok(Self { program });
        }
        Self::find_version(VERSION)
    }

    /// Finds that very version in the tests' cache folder.
    ///
    /// Errors: it is not there. The error is the reason for a skipped test.
    pub fn find_version(version: &str) -> Result<Self> {
        let program = cache()?.join(format!("claude-{version}/node_modules/.bin/claude"));
        if !program.is_file() {
            let target = if version == VERSION { "test" } else { "claude-e2e" };
            bail!("Claude Code {version} is not installed; `make {target}` installs it where npm is there");
        }
        Ok(Self { program })
    }

    /// Returns where its program is.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns whether its sessions have an inbox socket without asking anybody on the network for it.
    ///
    /// Errors: it cannot be started.
    pub async fn has_inbox(&self) -> Result<bool> {
        let asked = Command::new(&self.program).arg("--version").env_clear().kill_on_drop(true).output();
        let said = timeout(VERSION_ASKED, asked).await.context("it does not say its version")??;
        Ok(!String::from_utf8_lossy(&said.stdout).starts_with(OLDER))
    }
}

/// Returns where the tests keep what they download.
///
/// Errors: there is no home.
pub(crate) fn cache() -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")));
    Ok(cache.context("neither XDG_CACHE_HOME nor HOME is set")?.join("c3po-tests"))
}
