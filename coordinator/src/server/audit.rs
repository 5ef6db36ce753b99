//! `GET /api/audit`: what happened, page by page; `GET /api/sent`: the messages that an agent sent lately.

use axum::Json;
use axum::extract::State;
use c3po_shared::audit::{AuditPage, AuditQuery};
use c3po_shared::sent::SentMessages;

use super::Server;
use super::endpoint::{Answer, Query, Speaker};
use crate::request;

/// Answers with the next entries of those that are wanted.
pub(super) async fn page(State(server): State<Server>, Query(query): Query<AuditQuery>) -> Answer<AuditPage> {
    Ok(Json(request::audit_page(&server.office, &query).await?))
}

/// Answers with the latest messages of the agent.
pub(super) async fn sent(State(server): State<Server>, Speaker(agent): Speaker) -> Answer<SentMessages> {
    Ok(Json(request::sent(&server.office, agent).await?))
}
