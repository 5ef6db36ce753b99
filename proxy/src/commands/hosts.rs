//! `c3po hosts`: moves the agents and keys of a host to another name of it.

use c3po_shared::host::{HostRenaming, RenamedHost};
use c3po_shared::refusal::ErrorCode;
use c3po_shared::text::harmless;
use clap::Subcommand;

use super::failure::Failure;
use super::print::Printer;
use super::rest::{self, RestReply};
use crate::config::Config;

/// Actions on hosts.
#[derive(Debug, Subcommand)]
pub(super) enum HostsAction {
    /// Move the agents of a host, their messages and its keys to another name; needs an admin key
    Rename {
        /// Its present name
        old: String,
        /// Its new name
        new: String,
        /// Also if the new name has keys, invites or agents: both become one host, whose keys get all the agents
        #[arg(long)]
        merge: bool,
    },
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    action: HostsAction,
) -> Result<(), Failure> {
    let HostsAction::Rename { old, new, merge } = action;
    let renaming = HostRenaming {
        from: old,
        to: new,
        merge,
    };
    let option = if merge { " --merge" } else { "" };
    let typed = format!("hosts rename {} {}{option}", renaming.from, renaming.to);
    let asked = rest::post::<RenamedHost>(&config, "/api/hosts/rename", &renaming).await;
    let RestReply {
        read: renamed, raw, ..
    } = asked.map_err(|failure| with_the_way(failure, &typed))?;
    if printer.json {
        return printer.document(&raw);
    }
    let RenamedHost {
        from,
        to,
        agents,
        keys,
    } = renamed;
    let (from, to) = (harmless(&from, false), harmless(&to, false));
    printer.line(&format!(
        "{from} is renamed to {to}, with {agents} agents and {keys} keys."
    ))?;
    if keys > 0 {
        return Ok(());
    }
    printer.line(&format!(
        "No key authenticates it: start its sessions with C3PO_HOST={to}, or they use the name {from} again."
    ))
}

/// Adds the command for the coordinator's machine to a denial.
pub(super) fn with_the_way(failure: Failure, typed: &str) -> Failure {
    match failure {
        Failure::Refused(refusal) if refusal.code == ErrorCode::Forbidden => {
            Failure::Refused(refusal.suggest(format!(
                "Run `c3po-coordinator {typed}` on the coordinator's machine, or use an admin key."
            )))
        }
        failure => failure,
    }
}
