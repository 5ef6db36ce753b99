//! A hostile coordinator: answers every request and every call of a link with a prepared text.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::wire::{CLOSE_REFUSED, PATH, SUBPROTOCOL};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::accept_hdr_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_util::task::TaskTracker;

/// How long one connection is served.
const CONNECTION_MAX: Duration = Duration::from_secs(60);
/// The largest request that is read.
const REQUEST_MAX: usize = 64 << 10;

/// The answers of a hostile coordinator.
#[derive(Debug, Clone, Default)]
pub struct Answers {
    /// The results as JSON, by the path of a request or the name of a tool. `hello` is the answer to a link, and `deliver` the
    /// parameters of the frame after it. Everything else is refused.
    pub results: BTreeMap<String, String>,
    /// The refusal, as JSON.
    pub refusal: String,
    /// The reason with which links are closed instead of an answer to `hello`.
    pub close: Option<String>,
    /// All bytes of the answer to any connection, as of another program.
    pub raw: Option<String>,
}

/// A running hostile coordinator. Dropping it ends it.
#[derive(Debug)]
pub struct Impostor {
    url: String,
    serving: JoinHandle<()>,
}

impl Impostor {
    /// Starts one on a free port.
    ///
    /// Errors: there is no free port.
    pub async fn start(answers: Answers) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("a free port")?;
        let url = format!("http://{}", listener.local_addr()?);
        let serving = TaskTracker::new().spawn(serve(listener, Arc::new(answers)));
        Ok(Self { url, serving })
    }

    /// Returns its URL for hosts.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, answers: Arc<Answers>) {
    let connections = TaskTracker::new();
    while let Ok((stream, _)) = listener.accept().await {
        let answers = Arc::clone(&answers);
        // A client notices the end of its connection, whatever the reason.
        connections.spawn(async move {
            timeout(CONNECTION_MAX, answer(stream, &answers))
                .await
                .is_ok()
        });
    }
}

async fn answer(mut stream: TcpStream, answers: &Answers) -> Result<()> {
    if let Some(raw) = &answers.raw {
        // A connection that ends with unread bytes is reset, and the answer lost.
        if stream.read(&mut vec![0; REQUEST_MAX]).await? > 0 {
            stream.write_all(raw.as_bytes()).await?;
        }
        return Ok(());
    }
    let (mut begin, upgrade) = ([0; 64], format!("GET {PATH} "));
    let count = stream.peek(&mut begin).await?;
    if begin[..count].starts_with(upgrade.as_bytes()) {
        return link(stream, answers).await;
    }
    let mut asked = vec![0; REQUEST_MAX];
    let count = stream.read(&mut asked).await?;
    let head = String::from_utf8_lossy(&asked[..count]);
    let path = head.split([' ', '?']).nth(1).unwrap_or_default();
    let (status, body) = match answers.results.get(path) {
        Some(result) => ("200 OK", result),
        None => ("403 Forbidden", &answers.refusal),
    };
    let head = format!(
        "HTTP/1.0 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await?;
    // The body may come after the head, and a connection that ends with unread bytes is reset, and the answer lost.
    stream.shutdown().await?;
    while stream.read(&mut asked).await? > 0 {}
    Ok(())
}

async fn link(stream: TcpStream, answers: &Answers) -> Result<()> {
    let agree = |_: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
        response.headers_mut().insert(
            "sec-websocket-protocol",
            SUBPROTOCOL.parse().expect("a header value"),
        );
        Ok(response)
    };
    let mut socket = accept_hdr_async(stream, agree).await?;
    while let Some(Ok(message)) = socket.next().await {
        let Message::Text(text) = message else {
            continue;
        };
        let frame: Value = serde_json::from_str(&text)?;
        let (Some(method), Some(id)) = (frame["method"].as_str(), frame.get("id")) else {
            continue;
        };
        if let (Some(reason), "hello") = (&answers.close, method) {
            let frame = CloseFrame {
                code: CLOSE_REFUSED.into(),
                reason: reason.as_str().into(),
            };
            return Ok(socket.close(Some(frame)).await?);
        }
        let outcome = match method {
            "hello" => answers.outcome("hello"),
            "call" => answers.outcome(frame["params"]["tool"].as_str().unwrap_or_default()),
            _ => r#""result": {}"#.to_owned(),
        };
        socket
            .send(Message::text(format!(
                r#"{{"jsonrpc": "2.0", "id": {id}, {outcome}}}"#
            )))
            .await?;
        if let (Some(deliver), "hello") = (answers.results.get("deliver"), method) {
            let frame = format!(
                r#"{{"jsonrpc": "2.0", "id": 1, "method": "deliver", "params": {deliver}}}"#
            );
            socket.send(Message::text(frame)).await?;
        }
    }
    Ok(())
}

impl Answers {
    /// Returns the last member of a response.
    fn outcome(&self, asked: &str) -> String {
        match self.results.get(asked) {
            Some(result) => format!(r#""result": {result}"#),
            None => format!(
                r#""error": {{"code": -32003, "message": "refused", "data": {}}}"#,
                self.refusal
            ),
        }
    }
}
