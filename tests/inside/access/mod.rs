//! Access control: keys, scopes and globs, on every endpoint of the coordinator.

mod as_human;
mod elsewhere;
mod former;
mod freed;
mod hosts;
mod invites;
mod join_codes;
mod joining;
mod keys;
mod links;
mod logins;
mod mail;
mod matrix;
mod meanwhile;
mod names;
mod no_login;
mod origins;
mod people;
mod person_commands;
mod person_queue;
mod places;
mod proofs;
mod quotas;
mod refused_file;
mod rights;
mod secrets;
mod settled;
mod stale;
mod status_line;
mod steered;
mod tenures;

pub(crate) use keys::linked;

use anyhow::{Context, Result};
use c3po_shared::catalogue::Tool;
use harness::http::{self, Answer};
use inside::gate::Gate;
use serde_json::{Value, json};

/// Returns arguments for a call of the tool, with that text, about these two messages.
fn arguments(tool: Tool, text: &str, [asked, told]: [&str; 2]) -> Value {
    match tool {
        Tool::SendMessage => json!({"target": "others", "message": text}),
        Tool::Reply => json!({"message_id": asked, "response": text}),
        Tool::AckMessages => json!({"message_ids": [told]}),
        Tool::GetThread | Tool::MessageStatus => json!({"message_id": asked}),
        Tool::GetAgentStatus => json!({"agent_id": "others"}),
        Tool::SetStatus => json!({"status": "busy", "current_task": text}),
        Tool::WaitForMessage => json!({"timeout": 1}),
        Tool::Broadcast => json!({"message": text}),
        Tool::GetMessages | Tool::ListAgents | Tool::RegisterAgent | Tool::Ping => json!({}),
        Tool::RequestPermission => {
            let part = json!({"id": "1", "text": text, "allow_text": true});
            let request = json!({"tool": "Bash", "input": "{}"});
            json!({"message": text,
                "question": {"kind": "permission", "parts": [part], "request": request}})
        }
        Tool::AskUser => json!({"question": text, "wait": false}),
        Tool::NotifyUser => json!({"message": text}),
        Tool::EscalateToHuman => json!({"reason": text}),
        Tool::AnswerInDialog => json!({"message_id": asked, "part": {"text": text}}),
        Tool::Conclude => {
            json!({"message_id": asked, "stage": "withdrawn", "via": "terminal"})
        }
    }
}

/// Sends a request for a path, with a credential and an agent name.
async fn ask(
    gate: &Gate,
    method: &str,
    path: &str,
    key: Option<&str>,
    agent: Option<&str>,
    body: &str,
) -> Result<Answer> {
    let address = gate.address()?;
    let key = key
        .map(|key| format!("Authorization: Bearer {key}\r\n"))
        .unwrap_or_default();
    let agent = agent
        .map(|agent| format!("X-Agent-ID: {agent}\r\n"))
        .unwrap_or_default();
    let length = body.len();
    http::request(
        address,
        &format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n{key}{agent}\r\n{body}"
        ),
    )
    .await
}

/// Calls a tool over `/mcp`. Returns the status, and the code if it is refused.
async fn call(
    gate: &Gate,
    key: Option<&str>,
    agent: &str,
    tool: &str,
    arguments: &Value,
) -> Result<(u16, Option<String>)> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": tool, "arguments": arguments}});
    let answer = ask(gate, "POST", "/mcp", key, Some(agent), &body.to_string()).await?;
    if answer.status != 200 {
        return Ok((answer.status, code(&answer)));
    }
    let reply: Value = serde_json::from_str(&answer.body).with_context(|| answer.body.clone())?;
    let said = &reply["result"]["structuredContent"]["code"];
    Ok((
        200,
        said.as_str()
            .filter(|_| reply["result"]["isError"] == true)
            .map(str::to_owned),
    ))
}

fn code(answer: &Answer) -> Option<String> {
    serde_json::from_str::<Value>(&answer.body).ok()?["code"]
        .as_str()
        .map(str::to_owned)
}
