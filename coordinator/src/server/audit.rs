//! `GET /api/audit`: what happened, page by page; `GET /api/sent`: the messages that an agent sent lately.

use axum::Json;
use axum::extract::State;
use c3po_shared::audit::{AuditPage, AuditQuery};
use c3po_shared::sent::SentMessages;

use super::AppState;
use super::endpoint::{Query, RestAnswer, Speaker};
use crate::request;

/// Answers with the next entries of those that are wanted.
pub(super) async fn page(State(server): State<AppState>, Query(query): Query<AuditQuery>) -> RestAnswer<AuditPage> {
    Ok(Json(request::audit_page(&server.office, &query).await?))
}

/// Answers with the latest messages of the agent.
pub(super) async fn sent(State(server): State<AppState>, Speaker(agent): Speaker) -> RestAnswer<SentMessages> {
    Ok(Json(request::sent(&server.office, agent).await?))
}
