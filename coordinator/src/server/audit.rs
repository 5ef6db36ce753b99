//! `GET /api/audit`: what happened, page by page.

use axum::Json;
use axum::extract::State;
use c3po_shared::audit::{AuditPage, AuditQuery};

use super::Server;
use super::endpoint::{Answer, Query};
use crate::request;

/// Answers with the next entries of those that are wanted.
pub(super) async fn page(State(server): State<Server>, Query(query): Query<AuditQuery>) -> Answer<AuditPage> {
    Ok(Json(request::audit_page(&server.office, &query).await?))
}
