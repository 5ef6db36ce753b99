//! The envelope of REST v1: a result in `data` beside `meta`, and errors with the same `meta`.

use aide::openapi::PathItem;
use aide::util::iter_operations_mut;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use c3po_shared::event::Meta;
use c3po_shared::refusal::{ErrorCode, Refusal};
use schemars::json_schema;
use serde_json::{Value, json};
use uuid::Uuid;

use super::endpoint::Refused;
use crate::clock;

/// The beginning of the paths of REST v1.
pub(super) const PREFIX: &str = "/api/v1/";
/// The header with the id of a request, which its client may choose.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest body that is put into an envelope: longer than any answer.
const BODY_MAX: usize = 64 << 20;

/// Returns whether the answers of this path have an envelope.
pub(super) fn has_envelope(path: &str) -> bool {
    path.starts_with(PREFIX)
}

/// The id of a request.
#[derive(Debug, Clone, Copy)]
struct ClientRequestId(Uuid);

/// Marks an answer that is in its envelope.
#[derive(Debug, Clone, Copy)]
struct Wrapped;

/// Puts the answers of a path of REST v1 into envelopes. Streams stay as they are.
///
/// It is used twice: around each handler, so that the whole answer is charged to its key until it is read, and around all
/// paths, for refusals before any handler.
pub(super) async fn layer(mut request: Request, next: Next) -> Response {
    if !has_envelope(request.uri().path()) {
        return next.run(request).await;
    }
    let given = request.headers().get(REQUEST_ID);
    let given = given.and_then(|id| id.to_str().ok()?.parse().ok());
    let known = request
        .extensions()
        .get::<ClientRequestId>()
        .map(|known| known.0);
    let request_id: Uuid = known.or(given).unwrap_or_else(Uuid::new_v4);
    request.extensions_mut().insert(ClientRequestId(request_id));
    let response = next.run(request).await;
    if response.extensions().get::<Wrapped>().is_some() {
        return response;
    }
    let meta = Meta {
        request_id,
        timestamp: clock::now(),
    };
    let mut response = wrapped(response, &meta).await;
    response.extensions_mut().insert(Wrapped);
    if let Ok(id) = HeaderValue::from_str(&request_id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

async fn wrapped(response: Response, meta: &Meta) -> Response {
    let is_json = response.headers().get(CONTENT_TYPE);
    if is_json.is_none_or(|media| media != "application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, BODY_MAX).await else {
        let error = "the answer could not be read";
        return Refused::from(Refusal::new(ErrorCode::Internal, error)).into_response();
    };
    let text = String::from_utf8_lossy(&body);
    let text = if parts.status.is_success() {
        format!(r#"{{"data":{text},"meta":{}}}"#, json!(meta))
    } else {
        with_meta(&text, &json!(meta))
    };
    parts.headers.remove(CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(text))
}

/// Adds a member to an error, which is an object that is not empty.
fn with_meta(error: &str, meta: &Value) -> String {
    let members = error.trim_end();
    let members = members.strip_suffix('}').unwrap_or(members);
    format!(r#"{members},"meta":{meta}}}"#)
}

/// Describes the envelope of a path of REST v1 in the OpenAPI document.
pub(super) fn describe(item: &mut PathItem) {
    for (_, operation) in iter_operations_mut(item) {
        let responses = operation.responses.iter_mut();
        let responses = responses.flat_map(|responses| responses.responses.values_mut());
        let content = responses
            .filter_map(|response| response.as_item_mut())
            .flat_map(|response| response.content.values_mut());
        for schema in content.filter_map(|media| media.schema.as_mut()) {
            let data = std::mem::take(&mut schema.json_schema);
            schema.json_schema = json_schema!({
                "type": "object",
                "properties": {
                    "data": data,
                    "meta": {
                        "type": "object",
                        "properties": {
                            "request_id": {"type": "string", "format": "uuid"},
                            "timestamp": {"type": "string"},
                        },
                        "required": ["request_id", "timestamp"],
                    },
                },
                "required": ["data", "meta"],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_keeps_its_details_beside_the_meta() {
        let error = r#"{"error":"no","details":{"by":{"name":"ann"}}}"#;
        let text = with_meta(error, &json!({"request_id": 7}));
        let value: Value = serde_json::from_str(&text).expect("an object");
        assert_eq!(value["details"]["by"]["name"], "ann");
        assert_eq!(value["meta"]["request_id"], 7);
    }
}
