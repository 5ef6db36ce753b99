//! `GET /api/policy` and `/api/policy/check`: the rules in force, and what they say of a case.

use axum::Json;
use axum::extract::State;
use c3po_shared::policy::{PolicyAnswer, PolicyInForce, PolicyQuestion};

use super::Server;
use super::endpoint::{Answer, Query};
use crate::request;

/// Answers from the rules that hold now.
pub(super) async fn check(
    State(server): State<Server>,
    Query(question): Query<PolicyQuestion>,
) -> Answer<PolicyAnswer> {
    Ok(Json(request::explain_policy(&server.office, question).await?))
}

/// Shows the rules that hold now.
pub(super) async fn show(State(server): State<Server>) -> Answer<PolicyInForce> {
    Ok(Json(server.office.policies.in_force()))
}
