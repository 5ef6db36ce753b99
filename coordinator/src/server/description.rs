//! `GET /api/openapi.json`: the description of REST.
//!
//! Everybody may read it: it holds what the source holds, and of this coordinator only whether it is open, which the next
//! request would show.

use axum::Extension;

use super::endpoint::{Description, Media, Plain};

/// The path of the description.
pub(super) const PATH: &str = "/api/openapi.json";

/// A description.
#[derive(Debug)]
pub(super) struct OpenApi;

impl Media for OpenApi {
    const TYPE: &'static str = "application/json";
}

/// `GET /api/openapi.json`
pub(super) async fn show(Extension(Description(text)): Extension<Description>) -> Plain<OpenApi> {
    Plain::new(text)
}
