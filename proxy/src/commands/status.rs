//! `c3po status`: shows whether this host reaches a coordinator, and the connected agents.

use std::time::Duration;

use c3po_shared::agent::AgentRecord;
use c3po_shared::event::Envelope;
use c3po_shared::ids::AgentId;
use c3po_shared::question::{WAITING_PATH, Waiting};
use c3po_shared::refusal::Refusal;
use c3po_shared::text::harmless;
use c3po_shared::vocabulary::Status;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::failure::Failure;
use super::print::{Printer, Tone, aligned};
use super::{rest, statusline};
use crate::config::Config;
use crate::link::State;

/// The JSON output.
#[derive(Serialize)]
struct StatusReport {
    link: State,
    coordinator: String,
    round_trip_ms: f64,
    agent_id: AgentId,
    /// How many messages are in that agent's inbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<usize>,
    /// The questions that wait for people, if that agent is `human`.
    #[serde(skip_serializing_if = "Option::is_none")]
    questions: Option<Waiting>,
    /// Why this host's key does not cover that agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
    agents_online: Vec<AgentId>,
    agents: usize,
    /// `full` if the coordinator's store takes no new messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<String>,
}

/// The part of `GET /api/pending` that is shown.
#[derive(Deserialize)]
struct PendingCount {
    count: usize,
}

/// The part of `GET /api/health` that is shown.
#[derive(Deserialize)]
struct HealthPart {
    store: Option<String>,
}

pub(super) async fn run(config: Config, printer: &Printer) -> Result<(), Failure> {
    match look(config).await {
        Ok(report) if printer.json => printer.document(&report),
        Ok(report) => print(&report, printer),
        Err(Failure::NoCoordinator(refusal)) if printer.json => {
            let mut document = json!({"link": State::Disconnected});
            document["coordinator"] = refusal
                .details
                .get("coordinator")
                .cloned()
                .unwrap_or_default();
            document["error"] = json!(refusal);
            printer.document(&document)?;
            Err(Failure::NoCoordinator(refusal))
        }
        Err(failure) => Err(failure),
    }
}

async fn look(mut config: Config) -> Result<StatusReport, Failure> {
    let began = Instant::now();
    let agents = rest::get::<Vec<AgentRecord>>(&config, "/api/agents", &json!({})).await?;
    let round_trip = began.elapsed();
    // The list above is for the key of the host, the inbox for its person.
    if config.agent == AgentId::human() {
        config = config.of_person();
    }
    let mut pending = waiting(&config).await;
    if let Some(person) = pending.as_ref().err().and_then(rest::person) {
        config.agent = person;
        pending = waiting(&config).await;
    }
    let (pending, error) = match pending {
        Ok(answer) => (Some(answer.read.count), None),
        Err(Failure::Refused(refusal)) => (None, Some(refusal)),
        Err(failure) => return Err(failure),
    };
    let questions = match pending {
        Some(_) if config.agent == AgentId::human() => questions(&config).await,
        _ => None,
    };
    let health = rest::get::<HealthPart>(&config, "/api/health", &json!({})).await?;
    let online = agents
        .read
        .iter()
        .filter(|agent| agent.status == Status::Online)
        .map(|agent| agent.id.clone());
    Ok(StatusReport {
        link: if error.is_none() {
            State::Connected
        } else {
            State::Disconnected
        },
        coordinator: agents.coordinator,
        round_trip_ms: milliseconds(round_trip),
        agent_id: config.agent,
        pending,
        questions,
        error,
        agents_online: online.collect(),
        agents: agents.read.len(),
        store: health.read.store,
    })
}

async fn waiting(config: &Config) -> Result<rest::RestReply<PendingCount>, Failure> {
    rest::get(config, "/api/pending", &json!({"limit": 1})).await
}

/// Returns the questions that wait, unless the coordinator does not count them for us.
async fn questions(config: &Config) -> Option<Waiting> {
    let asked = rest::get::<Envelope<Waiting>>(config, WAITING_PATH, &json!({})).await;
    asked.ok().map(|answer| answer.read.data)
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

fn print(report: &StatusReport, printer: &Printer) -> Result<(), Failure> {
    let link = match &report.error {
        None => format!(
            "{} to {}",
            printer.tinted(Tone::Good, report.link.as_str()),
            report.coordinator
        ),
        Some(refusal) => format!(
            "none to {}; it answers: {}",
            report.coordinator,
            harmless(&refusal.error, false)
        ),
    };
    let rows = [
        ("link", Some(link)),
        (
            "round trip",
            Some(format!(
                "{} ms, on a separate connection",
                report.round_trip_ms
            )),
        ),
        ("agent", report.pending.map(|_| report.agent_id.to_string())),
        ("pending", report.pending.map(|pending| pending.to_string())),
        (
            "questions",
            report.questions.and_then(statusline::questions),
        ),
        ("online", Some(listed(&report.agents_online, report.agents))),
        ("store", report.store.as_deref().map(store)),
    ];
    let rows: Vec<_> = rows
        .into_iter()
        .filter_map(|(name, value)| Some(vec![name.to_owned(), value?]))
        .collect();
    aligned(&rows)
        .iter()
        .try_for_each(|line| printer.line(line))
}

/// Returns the state of the store, with its consequence.
fn store(word: &str) -> String {
    format!(
        "{}: new messages are refused, reading still works",
        harmless(word, false)
    )
}

fn listed(online: &[AgentId], agents: usize) -> String {
    let names: Vec<_> = online.iter().map(AgentId::as_str).collect();
    let names = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    format!("{names} ({} of {agents})", online.len())
}
