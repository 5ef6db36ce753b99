//! `GET /api/audit`: what happened, page by page.

use axum::Json;
use c3po_shared::audit::{AuditPage, AuditQuery};
use c3po_shared::refusal::Refusal;

use super::Server;
use super::endpoint::Query;
use crate::request;

/// Answers with the next entries of those that are wanted.
pub(super) async fn page(server: Server, Query(query): Query<AuditQuery>) -> Result<Json<AuditPage>, Refusal> {
    request::audit_page(&server.office, &query).await.map(Json)
}
