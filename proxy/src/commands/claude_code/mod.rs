//! c3po inside Claude Code: the plugin's files on this host, the `claude` command, and the user's settings.

pub(super) mod bundle;
pub(super) mod client;
pub(super) mod host_file;
pub(super) mod permissions;
pub(super) mod settings;
pub(super) mod status_line;
pub(super) mod steps;

use super::failure::Failure;

/// The name of the marketplace in its manifest.
pub(super) const MARKETPLACE: &str = "c3po";
/// The name of the plugin in Claude Code.
pub(super) const PLUGIN: &str = "c3po@c3po";

/// Returns the failure by which either command stopped.
pub(super) fn stopped(error: anyhow::Error) -> Failure {
    Failure::Stopped {
        why: format!("{error:#}"),
        advice: "Fix that and run this again.".to_owned(),
    }
}
