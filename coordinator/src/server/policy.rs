//! `GET /api/policy/check`: what the policy says of a case.

use axum::Json;
use c3po_shared::policy::{PolicyAnswer, PolicyQuestion};
use c3po_shared::refusal::Refusal;

use super::Server;
use super::endpoint::Query;
use crate::request;

/// Answers from the rules that hold now.
pub(super) async fn check(
    server: Server,
    Query(question): Query<PolicyQuestion>,
) -> Result<Json<PolicyAnswer>, Refusal> {
    request::explain_policy(&server.office, question).await.map(Json)
}
