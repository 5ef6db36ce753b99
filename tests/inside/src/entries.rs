//! Every entry point for text from other parties, as a function that must not panic on any input.
//!
//! The property tests call these functions with generated texts, and each fuzz target (`fuzz/`) with those of its fuzzer.
//! Accepted input is written and parsed again if possible, and must be the same.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use axum::extract::Query;
use axum::http::Uri;
use c3po::config::Config;
use c3po::hook;
use c3po_coordinator::config::StoreAddress;
use c3po_coordinator::policy::{Party, Policy};
use c3po_shared::audit::LogQuery;
use c3po_shared::catalogue::Call;
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::join::JoinCode;
use c3po_shared::policy::{PolicyQuestion, Verb};
use c3po_shared::wire::{Frame, Outgoing, RequestId, ToCoordinator, ToProxy};
use serde_json::value::RawValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::served::Served;

/// The time limit of an answer. A call that waits for a message is abandoned.
const ANSWER: Duration = Duration::from_millis(500);
/// Header lines that the request sets itself. Others could make the coordinator wait for missing data.
const OWN_HEADERS: [&str; 6] = [
    "host",
    "content-length",
    "transfer-encoding",
    "expect",
    "upgrade",
    "connection",
];

/// Parses a frame on the link, in both directions.
pub fn acp_frame(text: &str) {
    match Frame::parse(text) {
        Ok(Frame::Request { id, method, params }) => {
            said(&method, params);
            let written = Outgoing::request(&id, "call", &params).text();
            let Ok(Frame::Request {
                id: again,
                params: same,
                ..
            }) = Frame::parse(&written)
            else {
                panic!("{text} was read, and then not as {written}")
            };
            assert_eq!(
                (again, same.map(RawValue::get)),
                (id, params.map(RawValue::get))
            );
        }
        Ok(Frame::Notification { method, params }) => said(&method, params),
        Ok(Frame::Response {
            id,
            outcome: Ok(result),
        }) => {
            let written = Outgoing::result(&id, &result).text();
            assert!(
                matches!(Frame::parse(&written), Ok(Frame::Response { id: again, .. }) if again == id),
                "{written}"
            );
        }
        Ok(Frame::Response {
            outcome: Err(error),
            ..
        }) => assert!(!error.message.is_empty() || error.data.is_none()),
        Err(error) => {
            // The error response is a valid frame.
            let answer = Outgoing::error(Some(&RequestId::Number(1)), &error.rpc_error()).text();
            assert!(
                matches!(
                    Frame::parse(&answer),
                    Ok(Frame::Response {
                        outcome: Err(_),
                        ..
                    })
                ),
                "{answer}"
            );
        }
    }
}

fn said(method: &str, params: Option<&RawValue>) {
    for refusal in [
        ToCoordinator::parse(method, params).err(),
        ToProxy::parse(method, params).err(),
    ] {
        assert!(refusal.is_none_or(|refusal| !refusal.error.is_empty()));
    }
    if let Ok(ToCoordinator::Call(call)) = ToCoordinator::parse(method, params) {
        tool_arguments(&call.tool, call.arguments.get());
    }
}

/// Parses the arguments of a tool.
pub fn tool_arguments(tool: &str, arguments: &str) {
    let Ok(raw) = serde_json::from_str::<&RawValue>(arguments) else {
        return;
    };
    if let Err(refusal) = Call::parse(tool, raw) {
        assert!(
            !refusal.error.is_empty() && refusal.suggestion.ends_with('.'),
            "{refusal:?}"
        );
    }
}

/// Parses a client's input to a hook.
pub fn hook_input(word: &str, input: &[u8]) {
    if let Some(event) = hook::name(word).and_then(|name| hook::event(name, input)) {
        assert!(
            serde_json::to_string(&event).is_ok_and(|line| !line.contains('\n')),
            "it is one line of the socket"
        );
    }
}

/// Parses a join code.
pub fn join_code(text: &str) {
    if let Ok(code) = text.parse::<JoinCode>() {
        let again: JoinCode = code.reveal().parse().expect("a code that was written");
        assert_eq!(again.reveal(), code.reveal());
    }
}

/// Parses a host's configuration file.
pub fn host_file(text: &str) {
    let config = Config::of_file(text);
    assert!(
        !config.coordinators.urls.is_empty() || !config.problems.is_empty(),
        "it can be used, or says what is wrong"
    );
}

/// Parses a rules file.
pub fn policy_file(text: &str) {
    match Policy::parse(text) {
        Ok(policy) => {
            let party = |id| Party {
                id,
                role: Some("role"),
                host: Some("höst"),
            };
            for verb in Verb::ALL {
                let verdict = policy.decide(party("a"), party("b"), *verb);
                assert!(
                    verdict
                        .rule
                        .is_none_or(|rule| (1..=policy.len()).contains(&rule)),
                    "{verdict:?}"
                );
            }
        }
        Err(why) => assert!(!why.is_empty() && !why.contains('\n'), "{why}"),
    }
}

/// Parses the query of a path, and the names in headers.
pub fn rest_query(text: &str) {
    if let Ok(uri) = format!("/api/audit?{text}").parse::<Uri>() {
        if let Ok(Query(query)) = Query::<LogQuery>::try_from_uri(&uri) {
            let json = serde_json::to_string(&query).expect("a query is JSON");
            assert_eq!(
                serde_json::from_str::<LogQuery>(&json).ok(),
                Some(query),
                "{json}"
            );
        }
        // It may fail, but must not panic.
        let _ = Query::<PolicyQuestion>::try_from_uri(&uri);
    }
    if let Ok(agent) = text.parse::<AgentId>() {
        assert_eq!(agent.as_str(), text);
    }
    if let Ok(message) = text.parse::<MessageId>() {
        assert_eq!(message.as_str(), text);
        assert!(message.from().as_str().len() + message.to().as_str().len() < text.len());
    }
}

/// Parses the address of a store.
pub fn store_address(text: &str) {
    if let Ok(address) = text.parse::<StoreAddress>() {
        let shown = address.to_string();
        assert!(
            shown.parse::<StoreAddress>().is_ok(),
            "{text} is shown as {shown}"
        );
    }
}

/// A coordinator in this process without access control, for whole requests.
#[derive(Debug)]
pub struct Rest {
    runtime: Runtime,
    served: Served,
    address: SocketAddr,
}

impl Rest {
    /// Starts it.
    ///
    /// Errors: it does not start.
    pub fn start() -> Result<Self> {
        let runtime = Runtime::new()?;
        let served = runtime.block_on(Served::start())?;
        let address = served.address.parse()?;
        Ok(Self {
            runtime,
            served,
            address,
        })
    }

    /// Sends the request in a text: method and path in the first line, then header lines, an empty line, the body. The
    /// coordinator must not answer 500, and must be able to answer the next request.
    pub fn ask(&self, text: &str) {
        let Some(request) = request(text) else { return };
        let answer = self
            .runtime
            .block_on(async { timeout(ANSWER, self.exchange(request.as_bytes())).await });
        // If it closes the connection before the end of the request, that is an error here, but it may do so.
        if let Ok(Ok(answer)) = answer {
            let status = answer
                .strip_prefix("HTTP/1.1 ")
                .and_then(|rest| rest.get(..3));
            assert!(
                status.is_some_and(|status| status != "500"),
                "{request}\n{answer}"
            );
        }
    }

    async fn exchange(&self, request: &[u8]) -> Result<String> {
        let mut stream = TcpStream::connect(self.address).await?;
        stream.write_all(request).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Stops it.
    ///
    /// Errors: a part of it panicked.
    pub fn stop(self) -> Result<()> {
        let Self {
            runtime, served, ..
        } = self;
        runtime.block_on(served.stop()).map(drop)
    }
}

/// Returns the HTTP request for a text.
fn request(text: &str) -> Option<String> {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.lines();
    let (method, path) = lines.next()?.split_once(' ')?;
    let is_own = |line: &str| {
        let name = line
            .split(':')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase();
        OWN_HEADERS.contains(&name.as_str())
    };
    let headers: String = lines
        .filter(|line| !is_own(line))
        .map(|line| format!("{line}\r\n"))
        .collect();
    let length = body.len();
    Some(format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    ))
}
