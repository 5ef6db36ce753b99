//! `GET /api/openapi.json`: what all of REST takes and answers.
//!
//! It is for everybody: it says what the source says, and nothing of what this coordinator keeps but whether whoever
//! presents nothing is let in, which the next request would show.

use c3po_shared::refusal::Refusal;

use super::Server;
use super::endpoint::{Media, Plain};

/// Where the description stands.
pub(super) const PATH: &str = "/api/openapi.json";

/// A description.
#[derive(Debug)]
pub(super) struct OpenApi;

impl Media for OpenApi {
    const TYPE: &'static str = "application/json";
}

/// `GET /api/openapi.json`
pub(super) async fn show(server: Server, (): ()) -> Result<Plain<OpenApi>, Refusal> {
    Ok(Plain::new(server.description))
}
