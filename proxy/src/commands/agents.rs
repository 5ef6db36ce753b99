//! `c3po agents`: lists agents, and forgets one of them.

use c3po_shared::agent::AgentRecord;
use c3po_shared::host::{AgentRemoval, RemovedAgent, after_at};
use c3po_shared::ids::AgentId;
use c3po_shared::text::harmless;
use c3po_shared::time::age;
use c3po_shared::vocabulary::Status;
use serde_json::json;

use super::completions;
use super::failure::Failure;
use super::hosts;
use super::print::Printer;
use super::rest::{self, RestReply};
use crate::config::Config;

/// The agents to list.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    action: Option<AgentsAction>,
    /// Only agents with a connected session
    #[arg(long)]
    online: bool,
}

/// Actions besides listing them.
#[derive(Debug, clap::Subcommand)]
enum AgentsAction {
    /// Delete an agent that no session holds, with its messages; its name becomes free
    Rm {
        /// Its name
        #[arg(add = completions::agents())]
        name: AgentId,
    },
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    if let Some(AgentsAction::Rm { name }) = arguments.action {
        return remove(&config, printer, name).await;
    }
    let online = arguments.online;
    let mut agents = rest::get::<Vec<AgentRecord>>(&config, "/api/agents", &json!({}))
        .await?
        .read;
    agents.retain(|agent| !online || agent.status == Status::Online);
    if printer.json {
        return printer.document(&json!({"agents": agents}));
    }
    if agents.is_empty() && online {
        return printer.line("No agent is online; `c3po agents` lists all agents.");
    }
    if agents.is_empty() {
        return printer.line("No agents yet: start a session that loads c3po.");
    }
    let rows: Vec<_> = agents.iter().map(|agent| row(printer, agent)).collect();
    printer.table(&rows)
}

async fn remove(config: &Config, printer: &Printer, agent_id: AgentId) -> Result<(), Failure> {
    let removal = AgentRemoval { agent_id };
    let RestReply {
        read: removed, raw, ..
    } = rest::post::<RemovedAgent>(config, "/api/agents/remove", &removal)
        .await
        .map_err(|failure| {
            hosts::with_the_way(failure, &format!("agents rm {}", removal.agent_id))
        })?;
    if printer.json {
        return printer.document(&raw);
    }
    let mail = match removed.expired {
        0 => String::new(),
        1 => " One message in its inbox has expired.".to_owned(),
        count => format!(" {count} messages in its inbox have expired."),
    };
    printer.line(&format!(
        "{} is deleted, and its name is free.{mail}",
        removed.agent_id
    ))
}

fn row(printer: &Printer, agent: &AgentRecord) -> Vec<String> {
    let state = match agent.status {
        Status::Online => agent.state.to_string(),
        Status::Offline => format!("last seen {}", printer.moment(agent.last_seen)),
    };
    let asking = agent.asking_seconds.map(age);
    let asking = asking.map_or_else(String::new, |age| format!(", asking people for {age}"));
    let host = agent
        .host
        .as_ref()
        .map(|host| after_at(&harmless(host, false)))
        .unwrap_or_default();
    let role = agent
        .role
        .as_ref()
        .map(|role| format!("@{} ", harmless(role, false)))
        .unwrap_or_default();
    let description = harmless(agent.description.as_deref().unwrap_or_default(), false);
    vec![
        agent.id.to_string(),
        agent.status.to_string(),
        format!("{state}{asking}"),
        host,
        format!("{role}{description}"),
    ]
}
