//! `GET /api/policy/check`: what the policy says of a case.

use axum::Json;
use axum::extract::State;
use c3po_shared::policy::{PolicyAnswer, PolicyQuestion};

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
