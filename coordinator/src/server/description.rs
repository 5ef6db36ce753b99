//! `GET /api/openapi.json`: the OpenAPI document of REST.
//!
//! It needs no credential. It shows only public information and whether the coordinator is open, which the next request would
//! show anyway.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;

use super::AppState;
use super::endpoint::{Description, Media, Plain};

/// The path of the document.
pub(super) const PATH: &str = "/api/openapi.json";

/// The media type of the document.
#[derive(Debug)]
pub(super) struct OpenApi;

impl Media for OpenApi {
    const TYPE: &'static str = "application/json";
}

/// `GET /api/openapi.json`
pub(super) async fn show(
    State(server): State<AppState>,
    Extension(description): Extension<Arc<Description>>,
) -> Plain<OpenApi> {
    Plain::new(description.text(server.auth.anybody()))
}
