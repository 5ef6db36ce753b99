//! The REST paths for hooks and monitors: health, pending, agents, unregister, and the metrics.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use c3po_shared::agent::AgentRecord;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::{PAGE_DEFAULT, PAGE_MAX};
use c3po_shared::message::Message;
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::http_session::{AGENT_HEADER, agent_header};
use super::{Server, refused};
use crate::auth::{Principal, Right};
use crate::request::{check_name, check_right};
use crate::store::{Agent, Selection};

/// The media type of Prometheus' text format.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /api/health`
pub(super) async fn health(State(server): State<Server>) -> Response {
    let store = &server.office.store;
    match store.check().await {
        Ok(()) => {
            let online = server.office.presence.connected() + server.http_sessions.online();
            Json(json!({"status": "ok", "agents_online": online})).into_response()
        }
        Err(error) => {
            tracing::warn!("unhealthy: {error}");
            let body = Json(json!({
                "status": "error", "error": "Store connection failed", "code": "REDIS_UNAVAILABLE",
                "suggestion": ErrorCode::StoreUnavailable.suggestion(),
            }));
            (StatusCode::INTERNAL_SERVER_ERROR, body).into_response()
        }
    }
}

/// How much of an inbox is wanted.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    limit: Option<usize>,
}

#[derive(Serialize)]
struct PendingMessages {
    count: usize,
    messages: Vec<Message>,
}

/// `GET /api/pending`
pub(super) async fn pending(
    State(server): State<Server>,
    page: Result<Query<Page>, QueryRejection>,
    Extension(principal): Extension<Arc<Principal>>,
    headers: HeaderMap,
) -> Response {
    let outcome = async {
        let agent = named(&server, &headers, &principal)?;
        let Query(page) = page.map_err(|error| Refusal::invalid(error.body_text()))?;
        let limit = page.limit.unwrap_or(PAGE_DEFAULT);
        if !(1..=PAGE_MAX).contains(&limit) {
            return Err(Refusal::invalid(format!("limit is {limit}; it must be from 1 to {PAGE_MAX}")));
        }
        let store = &server.office.store;
        let selection = Selection { limit, ..Selection::default() };
        let (placed, pending) = futures_util::try_join!(store.inbox(&agent, selection), store.pending(&agent))?;
        let messages = placed.into_iter().map(|placed| placed.message).collect();
        Ok(PendingMessages { count: pending.count, messages })
    };
    answer(outcome.await)
}

/// `GET /api/agents`: all of them, for people who look.
pub(super) async fn agents(State(server): State<Server>, Extension(principal): Extension<Arc<Principal>>) -> Response {
    let outcome = async {
        check_right(&server.office, &principal, Right::Look)?;
        let now = Timestamp::now();
        let mut records: Vec<AgentRecord> = Vec::new();
        loop {
            let after = records.last().map(|record| record.id.clone());
            let page = server.office.store.agents(after.as_ref(), PAGE_MAX).await?;
            let complete = page.len() < PAGE_MAX;
            records.extend(page.iter().map(|agent: &Agent| agent.record(now)));
            if complete {
                return Ok(records);
            }
        }
    };
    answer(outcome.await)
}

/// `POST /api/unregister`
pub(super) async fn unregister(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    headers: HeaderMap,
) -> Response {
    let outcome = async {
        let agent = named(&server, &headers, &principal)?;
        let known = server.office.store.agent(&agent).await?;
        let linked = known.is_some_and(|known| {
            known.is_online(Timestamp::now()) && !server.http_sessions.holds(&agent, known.instance)
        });
        if linked {
            let error = format!("{agent} is a connected session, which ends by itself");
            return Err(Refusal::new(ErrorCode::Conflict, error).suggest("End the session; its proxy says goodbye."));
        }
        let known = server.office.store.unregister(&agent).await?;
        let said = if known { "unregistered" } else { "was not registered" };
        server.http_sessions.forget(&agent);
        if known {
            let entry = Entry::new(Event::SessionEnded).by(&agent).verb(said);
            server.office.audit.note(principal.sign(entry));
        }
        Ok(json!({"status": "ok", "message": format!("Agent '{agent}' {said}")}))
    };
    answer(outcome.await)
}

/// Every path that leads nowhere.
pub(super) async fn nowhere(uri: Uri) -> Response {
    let refusal = Refusal::new(ErrorCode::NotSupported, format!("there is nothing at {}", uri.path()))
        .suggest("See /api/health, /api/agents, /api/pending, /api/policy/check, /api/audit, /mcp, /acp and /metrics.");
    (StatusCode::NOT_FOUND, Json(refusal)).into_response()
}

/// `GET /metrics`
pub(super) async fn metrics(State(server): State<Server>, Extension(principal): Extension<Arc<Principal>>) -> Response {
    if let Err(refusal) = check_right(&server.office, &principal, Right::Look) {
        return refused(&refusal);
    }
    let presence = &server.office.presence;
    let text = server.office.metrics.text(presence.connected(), presence.listening());
    ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response()
}

/// Returns the agent that the request names, in the words of the first API reference where it names none.
///
/// Errors: `FORBIDDEN` where the credential may not speak as that one, whether or not there is such an agent.
fn named(server: &Server, headers: &HeaderMap, principal: &Principal) -> Result<AgentId, Refusal> {
    check_right(&server.office, principal, Right::Speak)?;
    let agent = agent_header(headers)?.ok_or_else(|| Refusal::invalid(format!("Missing {AGENT_HEADER} header")))?;
    check_name(&server.office, principal, &agent)?;
    Ok(agent)
}

/// REST keeps the older name of the code that says that the store is away.
pub(super) fn answer<T: Serialize>(outcome: Result<T, Refusal>) -> Response {
    match outcome {
        Ok(body) => Json(body).into_response(),
        Err(refusal) if refusal.code == ErrorCode::StoreUnavailable => {
            let body = json!({"error": refusal.error, "code": "REDIS_UNAVAILABLE", "suggestion": refusal.suggestion});
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
        Err(refusal) => refused(&refusal),
    }
}
