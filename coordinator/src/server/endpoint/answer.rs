//! The responses of REST. Each describes itself for the OpenAPI document.

use std::marker::PhantomData;

use aide::generate::GenContext;
use aide::openapi::{
    MediaType, Operation, Response as Described, SchemaObject, StatusCode as Code,
};
use aide::operation::OperationOutput;
use axum::Json;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use c3po_shared::refusal::{ErrorCode, Refusal};
use http_body::Body as _;
use schemars::{JsonSchema, Schema, json_schema};
use serde::Serialize;
use serde_json::{Value, json};

use crate::server::written::Paid;
use crate::unfinished::Charge;

/// The media type of JSON.
pub(super) const JSON: &str = "application/json";

/// A JSON response, or a refusal.
pub(in crate::server) type RestAnswer<T> = Result<Json<T>, Refused>;

/// A JSON response with its charge, which [`until_written`](crate::server::written::until_written) holds.
#[derive(Debug)]
pub(in crate::server) struct Charged<T>(pub(in crate::server) T, pub(in crate::server) Charge);

impl<T: JsonSchema> OperationOutput for Charged<T> {
    type Inner = T;

    fn inferred_responses(
        context: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<Code>, Described)> {
        Json::<T>::inferred_responses(context, operation)
    }
}

impl<T: Serialize> IntoResponse for Charged<T> {
    fn into_response(self) -> Response {
        let Self(value, mut charge) = self;
        let response = Json(value).into_response();
        charge.shrink(usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX));
        Paid::mark(Some(charge), response)
    }
}

/// A refusal, with its HTTP status.
#[derive(Debug)]
pub(in crate::server) struct Refused {
    status: StatusCode,
    refusal: Box<Refusal>,
}

impl Refused {
    /// Returns a refusal with an HTTP status other than that of its code.
    pub(in crate::server) fn with(status: StatusCode, refusal: Refusal) -> Self {
        Self {
            status,
            refusal: Box::new(refusal),
        }
    }
}

impl<E: Into<Refusal>> From<E> for Refused {
    fn from(error: E) -> Self {
        let refusal: Refusal = error.into();
        Self::with(status_of(refusal.code), refusal)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut body = json!(self.refusal);
        body["code"] = Value::from(word_of(self.refusal.code));
        (self.status, retry_after(&self.refusal), Json(body)).into_response()
    }
}

impl OperationOutput for Refused {
    type Inner = Refusal;

    fn operation_response(context: &mut GenContext, _: &mut Operation) -> Option<Described> {
        let schema = context.schema.subschema_for::<Refusal>();
        Some(described("A refusal", JSON, schema))
    }
}

/// Returns the HTTP status of a refusal with that code.
pub(in crate::server) fn status_of(code: ErrorCode) -> StatusCode {
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Returns the `Retry-After` header, if the refusal has a retry time.
pub(in crate::server) fn retry_after(refusal: &Refusal) -> Option<[(HeaderName, String); 1]> {
    let seconds = refusal
        .details
        .get("retry_after_seconds")
        .and_then(Value::as_u64)?;
    Some([(RETRY_AFTER, seconds.to_string())])
}

/// Returns the name of an error code. REST keeps the older name for an unavailable store.
pub(super) fn word_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::StoreUnavailable => "REDIS_UNAVAILABLE",
        code => code.as_str(),
    }
}

/// Describes a response.
pub(in crate::server) fn described(about: &str, media: &str, json_schema: Schema) -> Described {
    let schema = Some(SchemaObject {
        json_schema,
        external_docs: None,
        example: None,
    });
    let content = [(
        media.to_owned(),
        MediaType {
            schema,
            ..MediaType::default()
        },
    )]
    .into();
    Described {
        description: about.to_owned(),
        content,
        ..Described::default()
    }
}

/// The media type of a body other than JSON.
pub(in crate::server) trait Media {
    /// The name of the media type.
    const TYPE: &'static str;
}

/// A body of a media type other than JSON.
#[derive(Debug)]
pub(in crate::server) struct Plain<M> {
    body: Body,
    media: PhantomData<M>,
}

impl<M> Plain<M> {
    /// Wraps a body.
    pub(in crate::server) fn new(body: impl Into<Body>) -> Self {
        Self {
            body: body.into(),
            media: PhantomData,
        }
    }
}

impl<M: Media> IntoResponse for Plain<M> {
    fn into_response(self) -> Response {
        ([(CONTENT_TYPE, M::TYPE)], self.body).into_response()
    }
}

impl<M: Media> OperationOutput for Plain<M> {
    type Inner = Self;

    fn inferred_responses(_: &mut GenContext, _: &mut Operation) -> Vec<(Option<Code>, Described)> {
        vec![(
            Some(Code::Code(200)),
            described("The answer", M::TYPE, json_schema!({})),
        )]
    }
}
