//! The requests of commands, and the texts of their answers.

use std::fmt;

use anyhow::Context;
use axum::http::Method;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::tables::plain;

pub(super) fn get(path: &str) -> (Method, String, String) {
    (Method::GET, path.to_owned(), String::new())
}

pub(super) fn post(path: &str, body: &Value) -> (Method, String, String) {
    (Method::POST, path.to_owned(), body.to_string())
}

pub(super) fn delete(path: String) -> (Method, String, String) {
    (Method::DELETE, path, String::new())
}

/// Escapes an id for a path. A malformed id cannot lead to another path.
pub(super) fn in_path(id: &str) -> impl fmt::Display {
    utf8_percent_encode(id, NON_ALPHANUMERIC)
}

/// Returns a text of the answer, harmless in a terminal.
pub(super) fn required(answer: &Value, name: &str) -> anyhow::Result<String> {
    plain(answer, name).with_context(|| format!("the answer has no {name}"))
}
