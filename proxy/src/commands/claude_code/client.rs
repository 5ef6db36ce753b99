//! The `claude` command: finding it, and calling it to add and remove the plugin.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use c3po_shared::text::shell_word;
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

use super::PLUGIN;
use crate::commands::failure::Failure;
use crate::config::Places;

/// A call usually takes about 0.3 s; a slow disk and a first start may take longer.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Where it is installed if it is not in `PATH`, relative to the home folder.
const USUAL: &[&str] = &[".local/bin/claude", ".claude/local/claude"];

/// The command.
#[derive(Debug)]
pub(in crate::commands) struct ClaudeCommand {
    program: PathBuf,
}

/// Its report of an installed plugin.
#[derive(Debug, Deserialize)]
pub(in crate::commands) struct Installed {
    id: String,
    /// Whether sessions load it.
    pub(in crate::commands) enabled: bool,
    /// The folder from which sessions load it, if its marketplace is a folder.
    #[serde(rename = "readFromFolder")]
    pub(in crate::commands) folder: Option<PathBuf>,
}

/// Its reply to a call.
#[derive(Debug)]
pub(in crate::commands) struct Said {
    /// Whether it succeeded.
    pub(in crate::commands) done: bool,
    /// Its output.
    pub(in crate::commands) text: String,
}

impl ClaudeCommand {
    /// Finds it: at the given path, else in `PATH`, else where it is usually installed.
    pub(in crate::commands) fn find(named: Option<&Path>, places: &Places) -> Option<Self> {
        let usual = places
            .home
            .iter()
            .flat_map(|home| USUAL.iter().map(|place| home.join(place)));
        let program = match named {
            Some(named) => Some(named.to_owned()).filter(|path| path.is_file()),
            None => places
                .path
                .iter()
                .map(|folder| folder.join("claude"))
                .chain(usual)
                .find(|path| path.is_file()),
        };
        program.map(|program| Self { program })
    }

    /// Returns a call as a person would type it.
    pub(in crate::commands) fn typed(&self, arguments: &[&str]) -> String {
        let program = self.program.display().to_string();
        [program.as_str()]
            .iter()
            .chain(arguments)
            .map(|word| shell_word(word))
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Calls it.
    pub(in crate::commands) async fn call(&self, arguments: &[&str]) -> Result<Said, Failure> {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let failed = |why: String| Failure::Stopped {
            why: format!("`{}` {why}", self.typed(arguments)),
            advice: "Run that command yourself to see its output, then run this again.".to_owned(),
        };
        let output = match timeout(CALL_MAX, command.output()).await {
            Ok(output) => output.map_err(|error| failed(format!("cannot be started: {error}")))?,
            Err(_) => {
                return Err(failed(format!(
                    "did not end within {} s",
                    CALL_MAX.as_secs()
                )));
            }
        };
        let (said, complained) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        let text = if output.status.success() {
            said.trim()
        } else {
            complained.trim()
        };
        Ok(Said {
            done: output.status.success(),
            text: text.to_owned(),
        })
    }

    /// Makes a call that has to succeed.
    pub(in crate::commands) async fn must(&self, arguments: &[&str]) -> Result<(), Failure> {
        let answer = self.call(arguments).await?;
        if answer.done {
            return Ok(());
        }
        Err(Failure::Stopped {
            why: format!("`{}` failed:\n{}", self.typed(arguments), answer.text),
            advice:
                "Fix the problem that it names and run this again; it continues where it stopped."
                    .to_owned(),
        })
    }

    /// Returns its report of our plugin.
    pub(in crate::commands) async fn plugin(&self) -> Result<Option<Installed>, Failure> {
        let arguments = ["plugin", "list", "--json"];
        let answer = self.call(&arguments).await?;
        let listed: Vec<Installed> =
            serde_json::from_str(&answer.text).map_err(|error| Failure::Stopped {
                why: format!(
                    "cannot read the output of `{}`: {error}",
                    self.typed(&arguments)
                ),
                advice: "Update Claude Code; c3po is tested with 2.1.329.".to_owned(),
            })?;
        Ok(listed.into_iter().find(|plugin| plugin.id == PLUGIN))
    }

    /// Returns whether it knows a marketplace of that name.
    pub(in crate::commands) async fn knows_marketplace(&self, name: &str) -> Result<bool, Failure> {
        let answer = self.call(&["plugin", "marketplace", "list"]).await?;
        Ok(answer
            .text
            .lines()
            .any(|line| line.split_whitespace().last() == Some(name)))
    }
}

/// Returns a call as a person types it, even if there is no `claude` here.
pub(in crate::commands) fn typed(client: Option<&ClaudeCommand>, arguments: &[&str]) -> String {
    let elsewhere = ClaudeCommand {
        program: PathBuf::from("claude"),
    };
    client.unwrap_or(&elsewhere).typed(arguments)
}

/// Returns the failure of a missing `claude`, with the next step.
pub(in crate::commands) fn missing(named: Option<&Path>) -> Failure {
    let why = match named {
        Some(named) => format!("there is no program {}", named.display()),
        None => "the claude command is neither in PATH nor in ~/.local/bin".to_owned(),
    };
    let advice = "Install Claude Code, or pass its path: --claude /path/to/claude.".to_owned();
    Failure::Stopped { why, advice }
}
