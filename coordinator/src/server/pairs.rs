//! The loop guard over HTTP: lists pairs of agents that write much without a person, and allows or stops them.

use axum::Json;
use axum::extract::State;
use c3po_shared::guard::{GuardList, GuardRequest, GuardedPair};
use c3po_shared::ids::AgentId;

use super::AppState;
use super::endpoint::{Body, By, RestAnswer};
use crate::auth::{Principal, issue};
use crate::request;

/// `GET /api/guard`
pub(super) async fn list(State(server): State<AppState>) -> RestAnswer<GuardList> {
    Ok(Json(request::list_guarded(&server.services).await?))
}

/// `POST /api/guard/allow`
pub(super) async fn allow(
    State(server): State<AppState>,
    By(principal): By,
    Body(GuardRequest { agents }, _held): Body<GuardRequest>,
) -> RestAnswer<GuardedPair> {
    rule(&server, &principal, &agents, false).await
}

/// `POST /api/guard/stop`
pub(super) async fn stop(
    State(server): State<AppState>,
    By(principal): By,
    Body(GuardRequest { agents }, _held): Body<GuardRequest>,
) -> RestAnswer<GuardedPair> {
    rule(&server, &principal, &agents, true).await
}

/// Allows or stops a pair, by a key that still stands in the store.
async fn rule(
    server: &AppState,
    principal: &Principal,
    agents: &[AgentId; 2],
    stops: bool,
) -> RestAnswer<GuardedPair> {
    let services = &server.services;
    issue::check_standing(services.store.as_ref(), principal).await?;
    let ruled = request::rule_guarded(services, principal, agents, stops).await?;
    Ok(Json(ruled))
}
