//! No key of any scope, nor the token, nor a client without a credential makes a login: over every path, tool and frame.

use anyhow::{Context, Result, ensure};
use c3po_shared::catalogue::Tool;
use harness::http;
use harness::link::{Link, Who};
use inside::gate::Gate;
use serde_json::{Value, json};

use super::{arguments, ask};

const TOKEN: &str = "a token of everybody";
const FRAMES: [&str; 7] = [
    "hello",
    "call",
    "cancel",
    "goodbye",
    "session",
    "receipt",
    "heartbeat",
];

/// Bodies by which a path might be led to make a login.
fn bodies(code: &str) -> [Value; 5] {
    [
        json!({"name": "ann", "scope": "admin"}),
        json!({"name": "ann", "scope": "person", "agents": ["human"]}),
        json!({"code": code, "device": "phone", "host": "nas"}),
        json!({"code": "abcdefghijklmnopqrstuvwxyz", "scope": "admin"}),
        json!({"answers": [{"text": "yes"}]}),
    ]
}

async fn tried_paths(gate: &Gate, key: Option<&str>, heard: &mut Vec<String>) -> Result<()> {
    let document = http::get(gate.address()?, "/api/openapi.json").await?;
    let document: Value = serde_json::from_str(&document.body)?;
    let invite = ask(gate, "POST", "/api/invites", key, None, "{}").await?;
    let invite: Value = serde_json::from_str(&invite.body).unwrap_or_default();
    let line = invite["line"].as_str().unwrap_or_default();
    let code = line.split(['=', ' ']).nth(1).unwrap_or("none").to_owned();
    for (path, methods) in document["paths"].as_object().context("no paths")? {
        for method in methods
            .as_object()
            .into_iter()
            .flatten()
            .map(|(method, _)| method)
        {
            for (body, of) in bodies(&code)
                .into_iter()
                .zip(["00000000", "human::web::0000000a"].iter().cycle())
            {
                let path = path.replace("{id}", of).replace("{machine}", "none");
                let method = method.to_uppercase();
                let answer =
                    ask(gate, &method, &path, key, Some("human"), &body.to_string()).await?;
                if !path.ends_with("openapi.json") {
                    heard.push(answer.head + &answer.body);
                }
            }
        }
    }
    Ok(())
}

async fn tried_link(gate: &Gate, key: Option<&str>, heard: &mut Vec<String>) -> Result<()> {
    for who in [Who::new("web"), Who::person("human"), Who::new("human")] {
        let Ok(mut link) = Link::open_with(&gate.served.address, key).await else {
            continue;
        };
        heard.push(format!("{:?}", link.hello(&who).await?));
        for tool in Tool::ALL
            .iter()
            .filter(|tool| tool.name() != "wait_for_message")
        {
            let arguments = arguments(*tool, "/api/v1/logins", ["human::web::0000000a"; 2]);
            let Ok(answer) = link.try_call(tool.name(), arguments).await else {
                break;
            };
            heard.push(format!("{answer:?}"));
        }
        for frame in FRAMES {
            let Ok(mut link) = Link::open_with(&gate.served.address, key).await else {
                continue;
            };
            heard.push(format!("{:?}", link.hello(&who).await?));
            for params in [
                json!({}),
                json!({"name": "ann", "scope": "admin"}),
                json!({"id": "00000000", "tool": "login", "arguments": {"name": "ann"}}),
            ] {
                let text = json!({"jsonrpc": "2.0", "id": 7, "method": frame, "params": params});
                // The coordinator may close the link instead.
                if link.send_text(&text.to_string()).await.is_err() {
                    break;
                }
            }
            let after = link.try_call("ping", json!({})).await;
            heard.push(format!("{after:?}"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn no_key_makes_a_login_over_any_path_tool_or_frame() -> Result<()> {
    let token = |config: &mut c3po_coordinator::config::Config| config.token = TOKEN.parse().ok();
    for open in [false, true] {
        let gate = if open {
            Gate::start_with(|config| config.is_open = true).await?
        } else {
            Gate::start_with(token).await?
        };
        let mut keys = vec![None, Some(TOKEN.to_owned())];
        for scope in ["agent", "read", "operator", "admin"] {
            keys.push(Some(gate.key(scope, "*", &[]).await?));
        }
        let mut heard = Vec::new();
        for key in &keys {
            tried_paths(&gate, key.as_deref(), &mut heard).await?;
            tried_link(&gate, key.as_deref(), &mut heard).await?;
        }
        ensure!(heard.len() > 900, "{} answers", heard.len());
        let spilt = heard.iter().find(|text| {
            text.contains("c3po-login_") || text.contains("/login/") || text.contains("\"link\"")
        });
        assert_eq!(spilt, None);
        let store = &gate.served.store;
        assert!(store.logins().await?.is_empty() && store.login_codes().await?.is_empty());
        assert_eq!(store.login_changes().await?, 0);
    }
    Ok(())
}
