//! `GET /api/audit`: pages of the audit; `GET /api/sent`: the latest messages that an agent sent.

use axum::Json;
use axum::extract::State;
use c3po_shared::audit::{AuditPage, LogQuery};
use c3po_shared::sent::SentMessages;

use super::AppState;
use super::endpoint::{By, Charged, Query, Refused, RestAnswer, Speaker};
use crate::request;

/// Returns the next entries that match the query.
pub(super) async fn page(
    State(server): State<AppState>,
    By(principal): By,
    Query(query): Query<LogQuery>,
) -> Result<Charged<AuditPage>, Refused> {
    let (page, charge) = request::audit_page(&server.services, &principal, &query).await?;
    Ok(Charged(page, charge))
}

/// Returns the latest messages of the agent.
pub(super) async fn sent(
    State(server): State<AppState>,
    By(principal): By,
    Speaker(agent): Speaker,
) -> RestAnswer<SentMessages> {
    Ok(Json(
        request::sent(&server.services, &principal, agent).await?,
    ))
}
