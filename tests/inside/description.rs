//! The description of REST matches the server and docs/API.md: no path or method is missing or added.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use harness::http::{self, Answer};
use harness::project::root;
use inside::gate::Gate;
use inside::served::Served;
use serde_json::{Value, json};

/// The methods that a client may try. `HEAD` goes with `GET`.
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// The paths that are not REST.
const SESSIONS: [&str; 2] = ["/acp", "/mcp"];

/// A method of a path.
type Operation = (String, String);

async fn described(served: &Served) -> Result<Value> {
    let answer = http::get(served.address.parse()?, "/api/openapi.json").await?;
    assert_eq!(answer.status, 200, "{}", answer.head);
    Ok(serde_json::from_str(&answer.body)?)
}

fn operations(document: &Value) -> Result<BTreeSet<Operation>> {
    let paths = document["paths"].as_object().context("no paths")?;
    let each = paths.iter().flat_map(|(path, methods)| {
        methods
            .as_object()
            .into_iter()
            .flatten()
            .map(|(method, _)| (method.to_uppercase(), path.clone()))
    });
    Ok(each.collect())
}

async fn ask(gate: &Gate, method: &str, path: &str, key: &str) -> Result<Answer> {
    let address = gate.address()?;
    let path = path
        .replace("{id}", "00000000")
        .replace("{machine}", "none");
    let text = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {key}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    http::request(address, &text).await
}

#[tokio::test]
async fn only_described_methods_are_served_and_a_refusal_lists_them() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("admin", "*", &[]).await?;
    let described = operations(&described(&gate.served).await?)?;
    assert!(described.len() >= 18, "{described:?}");
    let paths: BTreeSet<&String> = described.iter().map(|(_, path)| path).collect();
    for path in paths {
        for method in METHODS {
            let answer = ask(&gate, method, path, &key).await?;
            let is_there = answer.status != 405 && !answer.body.contains("there is no path");
            let expected = described.contains(&(method.to_owned(), path.clone()));
            assert_eq!(
                is_there, expected,
                "{method} {path}: {} {}",
                answer.head, answer.body
            );
            if !expected {
                let allow = answer
                    .head
                    .lines()
                    .find_map(|line| line.strip_prefix("allow: "))
                    .context("no Allow")?;
                let allowed: BTreeSet<&str> = allow
                    .split(',')
                    .filter(|method| *method != "HEAD")
                    .collect();
                let methods: BTreeSet<&str> = described
                    .iter()
                    .filter(|(_, of)| of == path)
                    .map(|(method, _)| method.as_str())
                    .collect();
                assert_eq!(allowed, methods, "{path}");
                assert!(
                    answer.body.contains("\"code\":\"NOT_SUPPORTED\""),
                    "{}",
                    answer.body
                );
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_reference_names_exactly_the_described_operations() -> Result<()> {
    let text = std::fs::read_to_string(root().join("docs/API.md"))?;
    let rest = text
        .split("\n## ")
        .find(|part| part.starts_with("REST"))
        .context("the section REST is missing")?;
    let mut written = BTreeSet::new();
    for cell in rest
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split('|').nth(1))
    {
        for operation in cell.split('`').filter(|part| part.contains(" /")) {
            let (method, path) = operation.split_once(' ').context("no path")?;
            written.insert((
                method.to_owned(),
                path.replace("ID", "{id}").replace("OS-ARCH", "{machine}"),
            ));
        }
    }
    let described = operations(&described(&Served::start().await?).await?)?;
    assert_eq!(
        written, described,
        "docs/API.md, REST: left is what stands there, right what is described"
    );
    assert!(
        described
            .iter()
            .all(|(_, path)| !SESSIONS.contains(&path.as_str())),
        "{described:?}"
    );
    Ok(())
}

/// Calls `look` with every value in a document.
fn everywhere<'a>(value: &'a Value, look: &mut impl FnMut(&'a Value)) {
    look(value);
    match value {
        Value::Object(members) => members.values().for_each(|member| everywhere(member, look)),
        Value::Array(items) => items.iter().for_each(|item| everywhere(item, look)),
        _ => {}
    }
}

#[tokio::test]
async fn every_reference_in_the_description_resolves() -> Result<()> {
    let document = described(&Served::start().await?).await?;
    let (mut ids, mut names) = (BTreeSet::new(), 0);
    everywhere(&document, &mut |value| {
        if let Some(place) = value["$ref"].as_str() {
            let there = place
                .strip_prefix('#')
                .and_then(|place| document.pointer(place));
            assert!(there.is_some(), "{place} is not there");
        }
    });
    for operation in document["paths"]
        .as_object()
        .into_iter()
        .flatten()
        .flat_map(|(_, methods)| methods.as_object())
    {
        for operation in operation.values() {
            ids.insert(operation["operationId"].as_str());
            assert!(
                operation["responses"]["default"].is_object()
                    && ["200", "201"]
                        .iter()
                        .any(|code| operation["responses"][code].is_object()),
                "{operation}"
            );
            names += 1;
        }
    }
    assert_eq!(ids.len(), names, "each has a name of its own: {ids:?}");
    Ok(())
}

#[tokio::test]
async fn the_description_states_which_operations_need_a_key() -> Result<()> {
    let check = |document: &Value, path: &str, expected: Value| {
        assert_eq!(
            document["paths"][path]["get"]["security"], expected,
            "{path}"
        );
    };
    let looks = ["agent", "read", "operator", "admin"];
    let people = ["person", "operator", "admin"];
    let closed = described(&Gate::start().await?.served).await?;
    check(&closed, "/api/health", Value::Null);
    check(
        &closed,
        "/api/agents",
        json!([{"bearer": looks}, {"apiKey": looks}, {"login": people}]),
    );
    check(
        &closed,
        "/api/keys",
        json!([{"bearer": ["admin"]}, {"apiKey": ["admin"]}, {"login": ["admin"]}]),
    );
    let open = described(&Served::start().await?).await?;
    check(
        &open,
        "/api/agents",
        json!([{"bearer": looks}, {"apiKey": looks}, {"login": people}, {}]),
    );
    check(
        &open,
        "/api/keys",
        json!([{"bearer": ["admin"]}, {"apiKey": ["admin"]}, {"login": ["admin"]}]),
    );
    Ok(())
}

#[tokio::test]
async fn bodies_are_size_limited_objects() -> Result<()> {
    let gate = Gate::start().await?;
    let key = gate.key("admin", "*", &[]).await?;
    let headers = [("X-API-Key", key.as_str())];
    let large = format!(r#"{{"name": "{}"}}"#, "x".repeat(1 << 20));
    let answer = http::post(gate.address()?, "/api/keys", &headers, &large).await?;
    let body: Value = serde_json::from_str(&answer.body)?;
    assert_eq!(
        (answer.status, &body["code"]),
        (413, &json!("PAYLOAD_TOO_LARGE")),
        "{body}"
    );
    assert_eq!(
        body["details"],
        json!({"limit": 1 << 20, "count": large.len()})
    );
    for list in ["[]", r#"["x", "admin"]"#] {
        let answer = http::post(gate.address()?, "/api/invites", &headers, list).await?;
        assert_eq!(answer.status, 400, "{list}: {}", answer.body);
    }
    Ok(())
}
