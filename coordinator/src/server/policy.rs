//! `GET /api/policy` and `/api/policy/check`: the present rules, and their verdict for a case.

use axum::Json;
use axum::extract::State;
use c3po_shared::policy::{PolicyAnswer, PolicyInForce, PolicyQuestion};

use super::AppState;
use super::endpoint::{Query, RestAnswer};
use crate::request;

/// Returns the verdict of the present rules.
pub(super) async fn check(
    State(server): State<AppState>,
    Query(question): Query<PolicyQuestion>,
) -> RestAnswer<PolicyAnswer> {
    Ok(Json(
        request::explain_policy(&server.services, question).await?,
    ))
}

/// Returns the present rules.
pub(super) async fn show(State(server): State<AppState>) -> RestAnswer<PolicyInForce> {
    Ok(Json(server.services.policies.in_force()))
}
