//! What an endpoint takes, as its types say it: each is read of a request, or refused in our own words.

use std::future::Future;
use std::mem;
use std::sync::Arc;

use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, FromRequest as _, Path, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::{Json, RequestExt as _};
use bytes::Bytes;
use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use http_body::Body as _;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use super::admitted;
use super::answers::JSON;
use crate::auth::Principal;
use crate::request::check_name;
use crate::server::Server;
use crate::server::accept::BODY_MAX;
use crate::server::http_session::{AGENT_HEADER, agent_header};

/// Something that is read of a request.
pub(in crate::server) trait Input: Sized + Send {
    /// Reads it.
    fn read(server: &Server, request: &mut Request) -> impl Future<Output = Result<Self, Refusal>> + Send;

    /// Adds what it is.
    fn describe(inputs: &mut Inputs);
}

/// How something that is taken looks.
type Shape = fn(&mut SchemaGenerator) -> Schema;

/// Everything that one endpoint takes.
#[derive(Debug)]
pub(in crate::server) struct Inputs {
    pub(super) path: &'static str,
    pub(super) in_path: Option<Shape>,
    pub(super) headers: Vec<(&'static str, Shape)>,
    pub(super) query: Option<Shape>,
    pub(super) body: Option<Shape>,
}

impl Inputs {
    /// Nothing but the path.
    pub(super) fn new(path: &'static str) -> Self {
        Self { path, in_path: None, headers: Vec::new(), query: None, body: None }
    }

    /// Returns what may be refused because of them.
    pub(super) fn refusals(&self) -> &'static [ErrorCode] {
        match self {
            Self { body: Some(_), .. } => &[ErrorCode::InvalidRequest, ErrorCode::PayloadTooLarge, ErrorCode::Timeout],
            Self { in_path: None, query: None, headers, .. } if headers.is_empty() => &[],
            _ => &[ErrorCode::InvalidRequest],
        }
    }
}

impl Input for () {
    async fn read(_: &Server, _: &mut Request) -> Result<Self, Refusal> {
        Ok(())
    }

    fn describe(_: &mut Inputs) {}
}

impl<A: Input, B: Input> Input for (A, B) {
    async fn read(server: &Server, request: &mut Request) -> Result<Self, Refusal> {
        Ok((A::read(server, request).await?, B::read(server, request).await?))
    }

    fn describe(inputs: &mut Inputs) {
        A::describe(inputs);
        B::describe(inputs);
    }
}

/// Whoever asks.
#[derive(Debug)]
pub(in crate::server) struct By(pub(in crate::server) Arc<Principal>);

impl Input for By {
    async fn read(_: &Server, request: &mut Request) -> Result<Self, Refusal> {
        Ok(Self(Arc::clone(admitted(request)?)))
    }

    fn describe(_: &mut Inputs) {}
}

/// The agent that the request names in its header, as which whoever asks may speak.
#[derive(Debug)]
pub(in crate::server) struct Speaker(pub(in crate::server) AgentId);

impl Input for Speaker {
    async fn read(server: &Server, request: &mut Request) -> Result<Self, Refusal> {
        // In the words of the first API reference where it names none.
        let missing = || Refusal::invalid(format!("Missing {AGENT_HEADER} header"));
        let agent = agent_header(request.headers())?.ok_or_else(missing)?;
        check_name(&server.office, admitted(request)?, &agent)?;
        Ok(Self(agent))
    }

    fn describe(inputs: &mut Inputs) {
        inputs.headers.push((AGENT_HEADER, SchemaGenerator::subschema_for::<AgentId>));
    }
}

/// What stands behind the question mark.
#[derive(Debug)]
pub(in crate::server) struct Query<T>(pub(in crate::server) T);

impl<T: DeserializeOwned + JsonSchema + Send> Input for Query<T> {
    async fn read(_: &Server, request: &mut Request) -> Result<Self, Refusal> {
        let query = axum::extract::Query::try_from_uri(request.uri());
        query.map(|query| Self(query.0)).map_err(|error| Refusal::invalid(error.body_text()))
    }

    fn describe(inputs: &mut Inputs) {
        inputs.query = Some(T::json_schema);
    }
}

/// The part of the path that has a name.
#[derive(Debug)]
pub(in crate::server) struct InPath<T>(pub(in crate::server) T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Input for InPath<T> {
    async fn read(_: &Server, request: &mut Request) -> Result<Self, Refusal> {
        let part = request.extract_parts::<Path<T>>().await;
        part.map(|part| Self(part.0)).map_err(|error| Refusal::invalid(error.body_text()))
    }

    fn describe(inputs: &mut Inputs) {
        inputs.in_path = Some(T::json_schema);
    }
}

/// The body, as a JSON object of at most `MAX` bytes.
#[derive(Debug)]
pub(in crate::server) struct Body<T, const MAX: usize = BODY_MAX>(pub(in crate::server) T);

impl<T: DeserializeOwned + JsonSchema + Send, const MAX: usize> Input for Body<T, MAX> {
    async fn read(_: &Server, request: &mut Request) -> Result<Self, Refusal> {
        let media = request.headers().get(CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
        if !media.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(JSON) {
            return Err(Refusal::invalid(format!("the body has to be JSON: send it with Content-Type: {JSON}")));
        }
        DefaultBodyLimit::max(MAX).apply(request);
        let count = request.body().size_hint().lower();
        let bytes = Bytes::from_request(mem::take(request), &()).await.map_err(|error| unread(&error, count, MAX))?;
        // A list would be read as the members of an object in their order.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Refusal::invalid("the body has to be a JSON object"));
        }
        Json::from_bytes(&bytes).map(|Json(body)| Self(body)).map_err(|error| Refusal::invalid(error.body_text()))
    }

    fn describe(inputs: &mut Inputs) {
        inputs.body = Some(SchemaGenerator::subschema_for::<T>);
    }
}

/// `count` is what the request says of its length, where it does.
fn unread(error: &BytesRejection, count: u64, limit: usize) -> Refusal {
    if error.status() != StatusCode::PAYLOAD_TOO_LARGE {
        return Refusal::invalid("the body did not come whole");
    }
    let refusal = Refusal::new(ErrorCode::PayloadTooLarge, format!("the body has more than the {limit} bytes allowed"))
        .suggest("Say less in one request.")
        .detail("limit", limit);
    if count > 0 { refusal.detail("count", count) } else { refusal }
}
