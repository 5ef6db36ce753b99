//! Checks whether Claude Code is installed and loads our plugin.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::timeout;

use super::report::Report;
use crate::commands::claude_code::MARKETPLACE;
use crate::commands::claude_code::bundle::Bundle;
use crate::commands::claude_code::client::{ClaudeCommand, Installed};
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
    let bundle = Bundle::in_data(&config.places.data_dir);
    let other = plugin
        .as_ref()
        .and_then(|plugin| other_folder(plugin, config, &bundle))
        .filter(|other| bundle.program().exists() || !other.exists());
    match (&plugin, other) {
        (None, _) => report.warn("plugin", format!("{found} does not have it"), INSTALL),
        (Some(plugin), _) if !plugin.enabled => report.warn(
            "plugin",
            format!("{found} has it, disabled"),
            "Enable it with /plugin in a session, or run `c3po install` again.",
        ),
        (_, Some(other)) => elsewhere(&claude, &other, &bundle, report),
        (Some(_), None) if is_gone(config, &bundle) => report.fail(
            "plugin",
            format!(
                "{found} has it, but its files in {} are gone",
                bundle.folder().display()
            ),
            INSTALL,
        ),
        (Some(_), None) if is_outdated(&bundle) => report.warn(
            "plugin",
            format!("{found} has it from another build of c3po"),
            INSTALL,
        ),
        (Some(_), None) => report.ok("plugin", format!("{found} has it, enabled")),
    }
}

/// Returns the folder from which sessions load the plugin, if it is another one. `claude` names none that is gone, but the
/// settings do.
fn other_folder(plugin: &Installed, config: &Config, bundle: &Bundle) -> Option<PathBuf> {
    if let Some(other) = bundle.replaced_by(plugin) {
        return Some(other.to_owned());
    }
    let members = SettingsFile::in_folder(&config.places.claude_dir).read();
    settings::foreign_folder(&members.ok()?, bundle.folder())
}

/// Reports that sessions load the plugin from another folder than that of `c3po install`.
fn elsewhere(
    claude: &ClaudeCommand,
    other: &Path,
    bundle: &Bundle,
    report: &mut Report<'_>,
) -> Result<(), Failure> {
    let (program, own) = (claude.typed(&[]), bundle.folder().display());
    let found = format!(
        "{} loads it from {}, not from {own}",
        program.trim(),
        other.display()
    );
    let remove = claude.typed(&["plugin", "marketplace", "remove", MARKETPLACE]);
    let next =
        format!("Another program may run in your sessions. Run `{remove}`, then `c3po install`.");
    report.fail("plugin", found, &next)
}

/// Returns whether the settings name the plugin's folder of `c3po install`, but the plugin is not there any more.
fn is_gone(config: &Config, bundle: &Bundle) -> bool {
    let Ok(members) = SettingsFile::in_folder(&config.places.claude_dir).read() else {
        return false;
    };
    settings::is_marketplace(&members, bundle.folder()) && !bundle.program().exists()
}

/// Returns whether `c3po install` was run by another build than this one.
fn is_outdated(bundle: &Bundle) -> bool {
    // A plugin that was installed from elsewhere is not compared.
    let (true, Ok(this)) = (bundle.program().exists(), std::env::current_exe()) else {
        return false;
    };
    bundle
        .changes(&this)
        .map_or(true, |changes| !changes.is_empty())
}
