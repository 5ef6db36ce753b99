//! `c3po status`: whether this host reaches a coordinator, and who is there.

use std::time::Duration;

use c3po_shared::catalogue::{Agents, Pong};
use c3po_shared::ids::AgentId;
use c3po_shared::vocabulary::Status;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::print::{Printer, Tone, aligned};
use super::session::{Failure, Session};
use crate::config::Config;
use crate::link::State;

/// What the command prints as JSON.
#[derive(Serialize)]
struct Report {
    link: State,
    coordinator: String,
    coordinator_version: String,
    round_trip_ms: f64,
    agent_id: AgentId,
    pending: usize,
    agents_online: Vec<AgentId>,
    agents: usize,
}

pub(super) async fn run(config: Config, printer: &Printer) -> Result<(), Failure> {
    let outcome = Session::with(config, false, async |session| look(session).await).await;
    match outcome {
        Ok(report) if printer.json => printer.document(&report),
        Ok(report) => print(&report, printer),
        Err(Failure::NoCoordinator(refusal)) if printer.json => {
            let mut document = json!({"link": State::Disconnected});
            document["coordinator"] = refusal.details.get("coordinator").cloned().unwrap_or_default();
            document["error"] = json!(refusal);
            printer.document(&document)?;
            Err(Failure::NoCoordinator(refusal))
        }
        Err(failure) => Err(failure),
    }
}

async fn look(session: &Session) -> Result<Report, Failure> {
    let began = Instant::now();
    let (pong, _) = session.call::<Pong>("ping", &json!({})).await?;
    let round_trip = began.elapsed();
    let (agents, _) = session.call::<Agents>("list_agents", &json!({"limit": 1_000})).await?;
    let standing = session.standing();
    let welcome = standing.welcome;
    let online = agents.agents.iter().filter(|agent| agent.status == Status::Online).map(|agent| agent.id.clone());
    Ok(Report {
        link: standing.state,
        coordinator: standing.coordinator,
        coordinator_version: welcome.as_ref().map(|welcome| welcome.coordinator_version.clone()).unwrap_or_default(),
        round_trip_ms: milliseconds(round_trip),
        agent_id: pong.agent_id,
        pending: welcome.map_or(0, |welcome| welcome.pending),
        agents_online: online.collect(),
        agents: agents.agents.len(),
    })
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn print(report: &Report, printer: &Printer) -> Result<(), Failure> {
    let online: Vec<_> = report.agents_online.iter().map(AgentId::as_str).collect();
    let online = match online.as_slice() {
        [] => "nobody".to_owned(),
        names => names.join(", "),
    };
    let link = format!(
        "{} to {} (version {})",
        printer.tinted(Tone::Good, report.link.as_str()),
        report.coordinator,
        report.coordinator_version
    );
    let rows = [
        ("link", link),
        ("round trip", format!("{} ms", report.round_trip_ms)),
        ("agent", report.agent_id.to_string()),
        ("pending", report.pending.to_string()),
        ("online", format!("{online} ({} of {})", report.agents_online.len(), report.agents)),
    ];
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    aligned(&rows).iter().try_for_each(|line| printer.line(line))
}
