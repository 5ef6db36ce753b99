//! What an endpoint answers with, as its types say it.

use std::marker::PhantomData;

use axum::Json;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;

/// The media type of everything that is JSON.
pub(super) const JSON: &str = "application/json";

/// An answer that describes itself.
pub(in crate::server) trait Answer {
    /// Adds what it may be.
    fn describe(answers: &mut Answers);

    /// Returns it as it is sent.
    fn respond(self) -> Response;
}

/// What one endpoint may answer with, refusals aside.
#[derive(Debug, Default)]
pub(in crate::server) struct Answers(pub(super) Vec<Described>);

/// One answer of an endpoint.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) status: StatusCode,
    pub(super) about: &'static str,
    pub(super) media: &'static str,
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
}

impl Answers {
    /// Adds an answer in JSON.
    pub(in crate::server) fn json<T: JsonSchema>(&mut self, status: StatusCode, about: &'static str) {
        self.0.push(Described { status, about, media: JSON, schema: SchemaGenerator::subschema_for::<T> });
    }
}

impl<T: Serialize + JsonSchema> Answer for Json<T> {
    fn describe(answers: &mut Answers) {
        answers.json::<T>(StatusCode::OK, "What was asked for");
    }

    fn respond(self) -> Response {
        self.into_response()
    }
}

/// What a body is that is no JSON.
pub(in crate::server) trait Media {
    /// Its media type.
    const TYPE: &'static str;
}

/// A body of another media type.
#[derive(Debug)]
pub(in crate::server) struct Plain<M> {
    body: Body,
    media: PhantomData<M>,
}

impl<M> Plain<M> {
    /// Wraps a body.
    pub(in crate::server) fn new(body: impl Into<Body>) -> Self {
        Self { body: body.into(), media: PhantomData }
    }
}

impl<M: Media> Answer for Plain<M> {
    fn describe(answers: &mut Answers) {
        let schema = |_: &mut SchemaGenerator| json_schema!({});
        answers.0.push(Described { status: StatusCode::OK, about: "What was asked for", media: M::TYPE, schema });
    }

    fn respond(self) -> Response {
        ([(CONTENT_TYPE, M::TYPE)], self.body).into_response()
    }
}
