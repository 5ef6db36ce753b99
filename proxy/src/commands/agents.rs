//! `c3po agents`: who there is.

use c3po_shared::agent::AgentRecord;
use c3po_shared::vocabulary::Status;
use serde_json::json;

use super::failure::Failure;
use super::print::{Printer, aligned, harmless};
use super::rest;
use crate::config::Config;

/// Which agents.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only those with a connected session
    #[arg(long)]
    online: bool,
}

pub(super) async fn run(config: Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let online = arguments.online;
    let mut agents = rest::get::<Vec<AgentRecord>>(&config, "/api/agents", &json!({})).await?.read;
    agents.retain(|agent| !online || agent.status == Status::Online);
    if printer.json {
        return printer.document(&json!({"agents": agents}));
    }
    if agents.is_empty() && online {
        return printer.line("Nobody is online; `c3po agents` lists those who were.");
    }
    if agents.is_empty() {
        return printer.line("No agents yet: start a session with c3po in it.");
    }
    let rows: Vec<_> = agents.iter().map(|agent| row(printer, agent)).collect();
    aligned(&rows).iter().try_for_each(|line| printer.line(line))
}

fn row(printer: &Printer, agent: &AgentRecord) -> Vec<String> {
    let state = match agent.status {
        Status::Online => agent.state.to_string(),
        Status::Offline => format!("last seen {}", printer.moment(agent.last_seen)),
    };
    let host = agent.host.as_ref().map(|host| format!("@{}", harmless(host, false))).unwrap_or_default();
    let role = agent.role.as_ref().map(|role| format!("@{} ", harmless(role, false))).unwrap_or_default();
    let description = harmless(agent.description.as_deref().unwrap_or_default(), false);
    vec![agent.id.to_string(), agent.status.to_string(), state, host, format!("{role}{description}")]
}
