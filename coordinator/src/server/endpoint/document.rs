//! The OpenAPI 3.1 document of all paths: aide derives it from the types of the handlers, and this adds the rest.

use std::sync::OnceLock;

use aide::axum::ApiRouter;
use aide::generate::in_context;
use aide::openapi::{OpenApi, PathItem, SecurityRequirement, Server as Address};
use aide::util::iter_operations_mut;
use bytes::Bytes;
use c3po_shared::refusal::ErrorCode;
use schemars::generate::SchemaSettings;
use serde_json::json;

use super::Needs;
use super::answer::{Refused, word_of};
use super::method::Describe;
use crate::auth::{Principal, Right};
use crate::server::{AppState, envelope};

/// The description of the whole API.
const ABOUT: &str = "The REST paths of a c3po coordinator, for hooks, monitors and administrators. Two paths are not \
                     REST and not described here: `/acp` is a WebSocket with JSON-RPC, `/mcp` is MCP over streamable \
                     HTTP, which describes itself (`tools/list`). Both, and every limit and error code, are in \
                     docs/API.md. A request head of more than 8,192 bytes is answered with 431, and one that is not \
                     HTTP with 400, both without a body.";

/// The document, which the first request for it makes.
///
/// Made at the start, it took two fifths of the time until the first answer, and a third of the heap.
pub(in crate::server) struct Description {
    rows: Vec<Row>,
    text: OnceLock<Bytes>,
}

/// One method of a path in the document.
pub(super) struct Row {
    pub(super) path: String,
    pub(super) summary: &'static str,
    pub(super) needs: Needs,
    pub(super) describe: Describe,
}

impl Description {
    /// Returns the description of these methods.
    pub(super) const fn of(rows: Vec<Row>) -> Self {
        let text = OnceLock::new();
        Self { rows, text }
    }

    /// Returns the document as JSON. If the coordinator is open, `anybody` is the principal of requests without a credential.
    pub(in crate::server) fn text(&self, anybody: Option<&Principal>) -> Bytes {
        self.text
            .get_or_init(|| document(&self.rows, anybody))
            .clone()
    }
}

/// Makes the document.
fn document(rows: &[Row], anybody: Option<&Principal>) -> Bytes {
    begin();
    let router = rows.iter().fold(ApiRouter::new(), |router, row| {
        router.api_route_with(&row.path, (row.describe)(), |mut item| {
            describe(item.inner_mut(), row, anybody);
            item
        })
    });
    let text = finish(router);
    in_context(|context| context.schema = SchemaSettings::default().into_generator());
    c3po_allocator::release_free_memory();
    text
}

/// Sets how this thread makes schemas: for OpenAPI 3.1, and for serialized outputs.
fn begin() {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let settings =
        settings.with(|settings| settings.definitions_path = "/components/schemas".into());
    in_context(|context| context.schema = settings.into_generator());
}

/// Describes the methods of a path.
fn describe(item: &mut PathItem, row: &Row, anybody: Option<&Principal>) {
    let security = security(row.needs, anybody);
    for (method, operation) in iter_operations_mut(item) {
        operation.operation_id = Some(name(method, &row.path));
        operation.summary = Some(row.summary.to_owned());
        operation.security = security.clone();
        for response in operation
            .responses
            .iter_mut()
            .flat_map(|responses| responses.responses.values_mut())
        {
            if let Some(response) = response
                .as_item_mut()
                .filter(|response| response.description.is_empty())
            {
                response.description = row.summary.to_owned();
            }
        }
    }
    if envelope::has_envelope(&row.path) {
        envelope::describe(item);
    }
}

/// Returns the alternative credentials of a path: each a scheme with the scopes that suffice.
fn security(needs: Needs, anybody: Option<&Principal>) -> Vec<SecurityRequirement> {
    let right = match needs {
        Needs::Nothing => return Vec::new(),
        Needs::Admission => None,
        Needs::Right(right) => Some(right),
    };
    let of_keys = words(right.map(Right::scopes));
    let of_logins = words(right.map(Right::login_scopes));
    let suffices = |scopes: &[String]| right.is_none() || !scopes.is_empty();
    let mut security = Vec::new();
    if suffices(&of_keys) {
        security.extend(
            ["bearer", "apiKey"].map(|scheme| [(scheme.to_owned(), of_keys.clone())].into()),
        );
    }
    if suffices(&of_logins) {
        security.push([("login".to_owned(), of_logins)].into());
    }
    if anybody.is_some_and(|anybody| right.is_none_or(|right| anybody.check(right).is_ok())) {
        security.push([].into());
    }
    security
}

fn words<T: ToString>(scopes: Option<impl Iterator<Item = T>>) -> Vec<String> {
    scopes
        .into_iter()
        .flatten()
        .map(|scope| scope.to_string())
        .collect()
}

/// Returns the name of an operation: `DELETE /api/keys/{id}` is `delete_keys_id`.
fn name(method: &str, path: &str) -> String {
    let words = path
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty() && *word != "api");
    [method]
        .into_iter()
        .chain(words)
        .collect::<Vec<_>>()
        .join("_")
}

/// Adds what is common to all paths, and returns the document.
fn finish(router: ApiRouter<AppState>) -> Bytes {
    let mut document = OpenApi::default();
    let _ = router.finish_api_with(&mut document, |document| {
        document
            .title("c3po coordinator")
            .version(env!("CARGO_PKG_VERSION"))
            .description(ABOUT)
            .server(Address {
                url: "/".into(),
                ..Address::default()
            })
            .default_response::<Refused>()
    });
    let mut document = json!(document);
    document["components"]["securitySchemes"] = json!({
        "bearer": {"type": "http", "scheme": "bearer", "description": "The key of a host, or the coordinator's token."},
        "login": {"type": "http", "scheme": "bearer", "description": "The token of a person's login."},
        "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same, in another header."},
    });
    let words = ErrorCode::ALL.iter().map(|code| word_of(*code)).collect();
    document["components"]["schemas"]["Refusal"]["properties"]["code"]["enum"] = words;
    Bytes::from(document.to_string())
}
