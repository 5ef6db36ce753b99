//! A client as in the first API reference: it identifies itself by headers, calls tools over `/mcp`, and uses REST.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use harness::http::{self, Answer};
use inside::served::Served;
use serde_json::{Value, json};

/// A client, with its headers.
pub(super) struct Client {
    address: SocketAddr,
    headers: Vec<(&'static str, String)>,
}

impl Client {
    /// Creates a client that sends `X-Agent-ID`.
    pub(super) fn of(served: &Served, agent: &str) -> Result<Self> {
        Ok(Self {
            address: served.address.parse()?,
            headers: vec![("X-Agent-ID", agent.to_owned())],
        })
    }

    /// Creates a client that sends its name and its session id.
    pub(super) fn of_session(served: &Served, agent: &str, session: &str) -> Result<Self> {
        let mut client = Self::of(served, agent)?;
        client.headers.push(("X-Session-ID", session.to_owned()));
        Ok(client)
    }

    /// Creates a client that does not identify itself.
    pub(super) fn nameless(served: &Served) -> Result<Self> {
        Ok(Self {
            address: served.address.parse()?,
            headers: Vec::new(),
        })
    }

    /// Calls a tool. Returns its reply, or its refusal.
    pub(super) async fn try_call(
        &self,
        tool: &str,
        arguments: Value,
    ) -> Result<Result<Value, Value>> {
        let body = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments},
        });
        let mut headers = vec![("Accept", "application/json, text/event-stream")];
        headers.extend(
            self.headers
                .iter()
                .map(|(name, value)| (*name, value.as_str())),
        );
        let answer = http::post(self.address, "/mcp", &headers, &body.to_string()).await?;
        let answer: Value =
            serde_json::from_str(&answer.body).with_context(|| format!("not JSON: {answer:?}"))?;
        let result = &answer["result"];
        let text = result["content"][0]["text"]
            .as_str()
            .with_context(|| format!("no text in {answer}"))?;
        let content = result["structuredContent"].clone();
        assert_eq!(
            serde_json::from_str::<Value>(text)?,
            content,
            "the text and the object are the same"
        );
        Ok(if result["isError"] == true {
            Err(content)
        } else {
            Ok(content)
        })
    }

    /// Calls a tool that must succeed.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        match self.try_call(tool, arguments).await? {
            Ok(reply) => Ok(reply),
            Err(refusal) => bail!("{tool} was refused: {refusal}"),
        }
    }

    /// Calls a tool that must be refused. Returns the refusal.
    pub(super) async fn refused(&self, tool: &str, arguments: Value) -> Result<Value> {
        match self.try_call(tool, arguments).await? {
            Ok(reply) => bail!("{tool} was not refused: {reply}"),
            Err(refusal) => Ok(refusal),
        }
    }

    /// Sends a message. Returns its id.
    pub(super) async fn send(&self, target: &str, message: &str) -> Result<String> {
        let sent = self
            .call(
                "send_message",
                json!({"target": target, "message": message}),
            )
            .await?;
        Ok(sent["id"]
            .as_str()
            .context("a message without an id")?
            .to_owned())
    }

    /// Sends a REST request. Returns the status and the body.
    pub(super) async fn rest(&self, method: &str, path: &str) -> Result<(u16, Value)> {
        let headers: String = self
            .headers
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let address = self.address;
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n"
        );
        let Answer { status, body, .. } = http::request(address, &request).await?;
        Ok((
            status,
            serde_json::from_str(&body).with_context(|| format!("not JSON: {body}"))?,
        ))
    }
}
