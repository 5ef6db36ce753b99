//! The loop guard over HTTP: lists pairs of agents that write much without a person, and allows or stops them.

use axum::Json;
use axum::extract::State;
use c3po_shared::guard::{GuardList, GuardRequest, GuardedPair};

use super::AppState;
use super::endpoint::{Body, By, RestAnswer};
use crate::request;

/// `GET /api/guard`
pub(super) async fn list(State(server): State<AppState>) -> RestAnswer<GuardList> {
    Ok(Json(request::list_guarded(&server.services).await?))
}

/// `POST /api/guard/allow`
pub(super) async fn allow(
    State(server): State<AppState>,
    By(principal): By,
    Body(GuardRequest { agents }): Body<GuardRequest>,
) -> RestAnswer<GuardedPair> {
    Ok(Json(
        request::rule_guarded(&server.services, &principal, &agents, false).await?,
    ))
}

/// `POST /api/guard/stop`
pub(super) async fn stop(
    State(server): State<AppState>,
    By(principal): By,
    Body(GuardRequest { agents }): Body<GuardRequest>,
) -> RestAnswer<GuardedPair> {
    Ok(Json(
        request::rule_guarded(&server.services, &principal, &agents, true).await?,
    ))
}
