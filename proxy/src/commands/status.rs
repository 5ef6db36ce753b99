//! `c3po status`: whether this host reaches a coordinator, and who is there.

use std::time::Duration;

use c3po_shared::agent::AgentRecord;
use c3po_shared::catalogue::{Agents, Pong};
use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::vocabulary::Status;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::print::{Printer, Tone, aligned};
use super::rest;
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
    let outcome = Session::with(config.clone(), false, async |session| look(session).await).await;
    match outcome {
        Err(Failure::Refused(refusal)) if refusal.code == ErrorCode::Forbidden => {
            from_outside(&config, printer, &refusal).await
        }
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

/// Says what a key sees that may look, and be nobody.
async fn from_outside(config: &Config, printer: &Printer, refusal: &Refusal) -> Result<(), Failure> {
    let began = Instant::now();
    let seen = rest::get::<Vec<AgentRecord>>(config, rest::AGENTS, &json!({})).await?;
    let round_trip = milliseconds(began.elapsed());
    let online: Vec<_> =
        seen.read.iter().filter(|agent| agent.status == Status::Online).map(|agent| agent.id.clone()).collect();
    if printer.json {
        let coordinator = &seen.coordinator;
        return printer.document(&json!({"link": State::Disconnected, "coordinator": coordinator, "error": refusal,
            "round_trip_ms": round_trip, "agents_online": online, "agents": seen.read.len()}));
    }
    let rows = [
        ("link", format!("none to {}, which answers: {}", seen.coordinator, refusal.error)),
        ("round trip", format!("{round_trip} ms, with a connection of its own")),
        ("online", listed(&online, seen.read.len())),
    ];
    in_rows(rows, printer)
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn print(report: &Report, printer: &Printer) -> Result<(), Failure> {
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
        ("online", listed(&report.agents_online, report.agents)),
    ];
    in_rows(rows, printer)
}

fn listed(online: &[AgentId], agents: usize) -> String {
    let names: Vec<_> = online.iter().map(AgentId::as_str).collect();
    let names = if names.is_empty() { "nobody".to_owned() } else { names.join(", ") };
    format!("{names} ({} of {agents})", online.len())
}

fn in_rows<const N: usize>(rows: [(&str, String); N], printer: &Printer) -> Result<(), Failure> {
    let rows: Vec<_> = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    aligned(&rows).iter().try_for_each(|line| printer.line(line))
}
