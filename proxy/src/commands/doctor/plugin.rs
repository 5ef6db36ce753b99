//! Checks whether Claude Code is installed and loads our plugin.

use std::time::Duration;

use tokio::time::timeout;

use super::report::Report;
use crate::commands::claude_code::bundle::Bundle;
use crate::commands::claude_code::client::ClaudeCommand;
use crate::commands::claude_code::settings::{self, SettingsFile};
use crate::commands::failure::Failure;
use crate::config::Config;

/// How long the `claude` command may take to list its plugins.
const LIST_MAX: Duration = Duration::from_secs(15);

const INSTALL: &str = "Run `c3po install`.";

pub(super) async fn examine(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    let Some(claude) = ClaudeCommand::find(None, &config.places) else {
        let found = "no claude command in PATH or ~/.local/bin";
        return report.warn(
            "plugin",
            found,
            "Only Claude Code needs it. Other clients run `c3po proxy` as a server.",
        );
    };
    let plugin = match timeout(LIST_MAX, claude.plugin()).await {
        Ok(Ok(plugin)) => plugin,
        Ok(Err(Failure::Stopped { why, advice })) => return report.warn("plugin", why, &advice),
        Ok(Err(failure)) => return Err(failure),
        Err(_) => {
            let typed = claude.typed(&["plugin", "list"]);
            let found = format!("`{typed}` did not end within {} s", LIST_MAX.as_secs());
            return report.warn(
                "plugin",
                found,
                "Run that command yourself to see its output.",
            );
        }
    };
    let found = claude.typed(&[]).trim().to_owned();
    match plugin {
        None => report.warn("plugin", format!("{found} does not have it"), INSTALL),
        Some(plugin) if !plugin.enabled => report.warn(
            "plugin",
            format!("{found} has it, disabled"),
            "Enable it with /plugin in a session, or run `c3po install` again.",
        ),
        Some(_) if is_gone(config) => {
            let folder = Bundle::in_data(&config.places.data_dir)
                .folder()
                .display()
                .to_string();
            report.fail(
                "plugin",
                format!("{found} has it, but its files in {folder} are gone"),
                INSTALL,
            )
        }
        Some(_) if is_outdated(config) => report.warn(
            "plugin",
            format!("{found} has it from another build of c3po"),
            INSTALL,
        ),
        Some(_) => report.ok("plugin", format!("{found} has it, enabled")),
    }
}

/// Returns whether the settings name the plugin's folder of `c3po install`, but the plugin is not there any more.
fn is_gone(config: &Config) -> bool {
    let bundle = Bundle::in_data(&config.places.data_dir);
    let Ok(members) = SettingsFile::in_folder(&config.places.claude_dir).read() else {
        return false;
    };
    settings::is_marketplace(&members, bundle.folder()) && !bundle.program().exists()
}

/// Returns whether `c3po install` was run by another build than this one.
fn is_outdated(config: &Config) -> bool {
    let bundle = Bundle::in_data(&config.places.data_dir);
    // A plugin that was installed from elsewhere is not compared.
    let (true, Ok(this)) = (bundle.program().exists(), std::env::current_exe()) else {
        return false;
    };
    bundle
        .changes(&this)
        .map_or(true, |changes| !changes.is_empty())
}
