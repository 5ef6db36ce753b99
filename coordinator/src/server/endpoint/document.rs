//! The description of every endpoint, as OpenAPI 3.1.

use axum::http::StatusCode;
use c3po_shared::refusal::{ErrorCode, Refusal};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::answers::{Described, JSON};
use super::inputs::Inputs;
use super::{Endpoint, Link, status_of, word_of};
use crate::auth::{Principal, Right};

/// What is said of the whole.
const ABOUT: &str = "The REST paths of a c3po coordinator, for hooks, monitors and whoever administers it. Two paths are \
no REST and not described here: `/acp` is a WebSocket with JSON-RPC, `/mcp` is MCP over streamable HTTP, which describes \
itself (`tools/list`). Both, and every limit, are in docs/API.md. A head of more than 8,192 bytes is answered with 431, \
one that is no HTTP with 400, both without a body.";

/// Returns the description. Where whoever presents nothing is admitted, `anybody` is what they are.
pub(in crate::server) fn document(endpoints: &[Endpoint], anybody: Option<&Principal>) -> Value {
    let settings = |settings: &mut SchemaSettings| settings.definitions_path = "/components/schemas".into();
    let base = SchemaSettings::draft2020_12().with(settings);
    let mut taken = base.clone().for_deserialize().into_generator();
    let mut given = base.for_serialize().into_generator();
    let mut paths = Map::new();
    for endpoint in endpoints {
        let path = paths.entry(endpoint.path).or_insert_with(|| json!({}));
        path[endpoint.method.as_str().to_ascii_lowercase()] = operation(endpoint, anybody, &mut taken, &mut given);
    }
    given.subschema_for::<Refusal>();
    let mut schemas = given.take_definitions(true);
    schemas.extend(taken.take_definitions(true));
    schemas["Refusal"]["properties"]["code"]["enum"] = ErrorCode::ALL.iter().map(|code| word_of(*code)).collect();
    json!({
        "openapi": "3.1.0",
        "info": {"title": "c3po coordinator", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "A key of a host, or the coordinator's token."},
                "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same."},
            },
        },
    })
}

/// Returns the name of an endpoint: `DELETE /api/keys/{id}` is `delete_keys_id`.
fn name(method: &str, path: &str) -> String {
    let words = path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty() && *word != "api");
    [&method.to_ascii_lowercase()].into_iter().map(String::as_str).chain(words).collect::<Vec<_>>().join("_")
}

fn operation(
    endpoint: &Endpoint,
    anybody: Option<&Principal>,
    taken: &mut SchemaGenerator,
    given: &mut SchemaGenerator,
) -> Value {
    let mut operation = json!({
        "operationId": name(endpoint.method.as_str(), endpoint.path),
        "summary": endpoint.summary,
        "security": security(endpoint.right, anybody),
        "parameters": parameters(&endpoint.inputs, taken),
    });
    if let Some(body) = endpoint.inputs.body {
        operation["requestBody"] = json!({"required": true, "content": {JSON: {"schema": body(taken)}}});
    }
    let mut responses = Map::new();
    for answer in &endpoint.answers.0 {
        responses.insert(answer.status.as_str().to_owned(), answered(answer, &endpoint.links, given));
    }
    for status in statuses(&endpoint.refusals) {
        // What an answer describes by itself may also be one of the usual refusals.
        let entry = responses.entry(status.as_str());
        let refusal = refusals(endpoint.refusals.iter().copied().filter(|code| status_of(*code) == status));
        entry.and_modify(|answer| either(answer, &refusal)).or_insert(refusal);
    }
    operation["responses"] = Value::Object(responses);
    operation
}

/// Returns by what one of those credentials is presented; nothing at all is one of them where anybody may do it.
fn security(right: Option<Right>, anybody: Option<&Principal>) -> Value {
    let Some(right) = right else { return json!([]) };
    let scopes: Vec<_> = right.scopes().map(|scope| scope.as_str()).collect();
    let mut ways = vec![json!({"bearer": scopes}), json!({"apiKey": scopes})];
    if anybody.is_some_and(|anybody| anybody.check(right).is_ok()) {
        ways.push(json!({}));
    }
    Value::Array(ways)
}

fn parameters(inputs: &Inputs, taken: &mut SchemaGenerator) -> Value {
    let mut parameters = Vec::new();
    if let Some(part) = inputs.in_path {
        let name = inputs.path.split(['{', '}']).nth(1).expect("a path with a part that is taken has its name");
        parameters.push(json!({"name": name, "in": "path", "required": true, "schema": part(taken)}));
    }
    for (name, shape) in &inputs.headers {
        parameters.push(json!({"name": name, "in": "header", "required": true, "schema": shape(taken)}));
    }
    let query = inputs.query.map(|shape| Value::from(shape(taken))).unwrap_or_default();
    let required: Vec<&Value> = query["required"].as_array().into_iter().flatten().collect();
    for (name, schema) in query["properties"].as_object().into_iter().flatten() {
        let required = required.contains(&&Value::from(name.as_str()));
        parameters.push(json!({"name": name, "in": "query", "required": required, "schema": without_null(schema)}));
    }
    Value::Array(parameters)
}

/// What may be left out of a query cannot be null there: the word would be taken for a value.
fn without_null(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(types) = schema["type"].as_array_mut() {
        types.retain(|one| one != "null");
        if let [one] = types.as_slice() {
            schema["type"] = one.clone();
        }
    }
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.retain(|word| !word.is_null());
    }
    if let Some([only]) = schema.get_mut("anyOf").and_then(Value::as_array_mut).map(|options| {
        options.retain(|option| option["type"] != "null");
        options.as_slice()
    }) {
        return only.clone();
    }
    schema
}

fn answered(answer: &Described, links: &[Link], given: &mut SchemaGenerator) -> Value {
    let mut response =
        json!({"description": answer.about, "content": {answer.media: {"schema": (answer.schema)(given)}}});
    for Link { method, path, member } in links {
        let name = name(method.as_str(), path);
        let parameter = path.split(['{', '}']).nth(1).unwrap_or_default();
        response["links"][&name] =
            json!({"operationId": name, "parameters": {parameter: format!("$response.body#/{member}")}});
    }
    response
}

fn statuses(codes: &[ErrorCode]) -> Vec<StatusCode> {
    let mut statuses: Vec<_> = codes.iter().map(|code| status_of(*code)).collect();
    statuses.sort_unstable();
    statuses.dedup();
    statuses
}

fn refusals(codes: impl Iterator<Item = ErrorCode>) -> Value {
    let codes: Vec<_> = codes.collect();
    let said: Vec<_> = codes.iter().map(|code| format!("`{}`: {}", word_of(*code), code.suggestion())).collect();
    let words: Vec<_> = codes.iter().map(|code| word_of(*code)).collect();
    json!({"description": said.join(" "), "content": {JSON: {"schema": {
        "allOf": [{"$ref": "#/components/schemas/Refusal"}, {"properties": {"code": {"enum": words}}}],
    }}}})
}

fn either(answer: &mut Value, other: &Value) {
    let schema = |response: &Value| response["content"][JSON]["schema"].clone();
    let both = json!({"anyOf": [schema(answer), schema(other)]});
    answer["description"] = format!(
        "{}. {}",
        answer["description"].as_str().unwrap_or_default(),
        other["description"].as_str().unwrap_or_default()
    )
    .into();
    answer["content"][JSON]["schema"] = both;
}
