//! `c3po agents`: who there is.

use c3po_shared::agent::AgentRecord;
use c3po_shared::catalogue::Agents;
use c3po_shared::vocabulary::Status;
use serde_json::{Value, json};

use super::print::{Printer, aligned, harmless, moment};
use super::rest;
use super::session::{Failure, Session};
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
    let agents = match Session::with(config.clone(), false, async |session| every_agent(session, online).await).await {
        Err(failure) if failure.is_forbidden() => those_seen(&config, online).await?,
        outcome => outcome?,
    };
    if printer.json {
        return printer.document(&json!({"agents": agents}));
    }
    if agents.is_empty() && online {
        return printer.line("Nobody is online; `c3po agents` lists those who were.");
    }
    if agents.is_empty() {
        return printer.line("No agents yet: start a session with c3po in it.");
    }
    let rows: Vec<_> = agents.iter().map(row).collect();
    aligned(&rows).iter().try_for_each(|line| printer.line(line))
}

async fn every_agent(session: &Session, online: bool) -> Result<Vec<AgentRecord>, Failure> {
    let mut agents = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut arguments = json!({"limit": 1_000});
        if online {
            arguments["status"] = Value::from(Status::Online.as_str());
        }
        if let Some(cursor) = cursor {
            arguments["cursor"] = Value::from(cursor);
        }
        let (page, _) = session.call::<Agents>("list_agents", &arguments).await?;
        agents.extend(page.agents);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(agents);
        }
    }
}

/// Returns the same for a key that may look, and be nobody.
async fn those_seen(config: &Config, online: bool) -> Result<Vec<AgentRecord>, Failure> {
    let mut agents = rest::get::<Vec<AgentRecord>>(config, rest::AGENTS, &json!({})).await?.read;
    agents.retain(|agent| !online || agent.status == Status::Online);
    Ok(agents)
}

fn row(agent: &AgentRecord) -> Vec<String> {
    let state = match agent.status {
        Status::Online => agent.state.to_string(),
        Status::Offline => format!("last seen {}", moment(agent.last_seen)),
    };
    let host = agent.host.as_ref().map(|host| format!("@{}", harmless(host, false))).unwrap_or_default();
    let role = agent.role.as_ref().map(|role| format!("@{} ", harmless(role, false))).unwrap_or_default();
    let description = harmless(agent.description.as_deref().unwrap_or_default(), false);
    vec![agent.id.to_string(), agent.status.to_string(), state, host, format!("{role}{description}")]
}
