//! `GET /api/policy/check`: what the policy says of a case.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::response::Response;
use c3po_shared::policy::PolicyQuestion;
use c3po_shared::refusal::Refusal;

use super::Server;
use super::rest::answer;
use crate::auth::{Principal, Right};
use crate::request;

/// Answers from the rules that hold now.
pub(super) async fn check(
    State(server): State<Server>,
    Extension(principal): Extension<Arc<Principal>>,
    question: Result<Query<PolicyQuestion>, QueryRejection>,
) -> Response {
    let outcome = async {
        request::check_right(&server.office, &principal, Right::Operate)?;
        let Query(question) = question.map_err(|error| Refusal::invalid(error.body_text()))?;
        request::explain_policy(&server.office, question).await
    };
    answer(outcome.await)
}
