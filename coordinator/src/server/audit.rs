//! `GET /api/audit`: what happened, page by page.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::response::Response;
use c3po_shared::audit::AuditQuery;
use c3po_shared::refusal::Refusal;

use super::Server;
use super::rest::answer;
use crate::auth::{Principal, Right};
use crate::request;

/// Answers with the next entries of those that are wanted.
pub(super) async fn page(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Response {
    let outcome = async {
        request::check_right(&server.office, &principal, Right::Operate)?;
        let Query(query) = query.map_err(|error| Refusal::invalid(error.body_text()))?;
        request::audit_page(&server.office, &query).await
    };
    answer(outcome.await)
}
