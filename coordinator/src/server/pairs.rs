//! The guard over HTTP: which pairs of agents write much without a person, and allowing or stopping one.

use axum::Json;
use axum::extract::State;
use c3po_shared::guard::{GuardList, GuardRequest, GuardedPair};

use super::Server;
use super::endpoint::{Answer, Body, By};
use crate::request;

/// `GET /api/guard`
pub(super) async fn list(State(server): State<Server>) -> Answer<GuardList> {
    Ok(Json(request::list_guarded(&server.office).await?))
}

/// `POST /api/guard/allow`
pub(super) async fn allow(
    State(server): State<Server>,
    By(principal): By,
    Body(GuardRequest { agents }): Body<GuardRequest>,
) -> Answer<GuardedPair> {
    Ok(Json(request::rule_guarded(&server.office, &principal, &agents, false).await?))
}

/// `POST /api/guard/stop`
pub(super) async fn stop(
    State(server): State<Server>,
    By(principal): By,
    Body(GuardRequest { agents }): Body<GuardRequest>,
) -> Answer<GuardedPair> {
    Ok(Json(request::rule_guarded(&server.office, &principal, &agents, true).await?))
}
