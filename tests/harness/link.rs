//! A hand-written client of the link protocol: an agent without a proxy, over a real WebSocket.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use c3po_shared::ids::CallId;
use c3po_shared::wire::SUBPROTOCOL;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use uuid::Uuid;

/// The deadline from a request to its answer, on a machine that builds at the same time.
const ANSWER: Duration = Duration::from_secs(20);

/// One link, with the frames that have arrived but have not been read by the test.
#[derive(Debug)]
pub struct Link {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    next_id: i64,
    answers: HashMap<i64, Result<Value, Value>>,
    /// Notifications and requests from the coordinator, in order.
    pub heard: Vec<Value>,
    /// Whether `deliver` is answered.
    pub accepts: bool,
    /// The close code, once the coordinator has closed the link.
    pub closed: Option<u16>,
}

/// The sender of a `hello`.
#[derive(Debug, Clone)]
pub struct Who {
    /// The desired name.
    pub name: String,
    /// The id of the process, as `hello` sends it.
    pub instance: Uuid,
    /// Additional members of `hello`.
    pub more: Value,
}

impl Who {
    /// Creates a new process that asks for this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            instance: Uuid::new_v4(),
            more: json!({}),
        }
    }

    /// Creates a person's command.
    pub fn person(name: &str) -> Self {
        Self {
            more: json!({"person": true}),
            ..Self::new(name)
        }
    }
}

impl Link {
    /// Opens a link without sending `hello`. `address` is the coordinator's, such as `127.0.0.1:8420`.
    pub async fn open(address: &str) -> Result<Self> {
        Self::open_with(address, None).await
    }

    /// Opens a link with that key.
    pub async fn open_with(address: &str, key: Option<&str>) -> Result<Self> {
        let mut request = format!("ws://{address}/acp").into_client_request()?;
        if let Some(key) = key {
            request
                .headers_mut()
                .insert("Authorization", format!("Bearer {key}").parse()?);
        }
        request
            .headers_mut()
            .insert("Sec-WebSocket-Protocol", SUBPROTOCOL.parse()?);
        let (socket, _) = timeout(ANSWER, connect_async(request))
            .await
            .context("no upgrade in time")??;
        Ok(Self {
            socket,
            next_id: 0,
            answers: HashMap::new(),
            heard: Vec::new(),
            accepts: true,
            closed: None,
        })
    }

    /// Opens a link and sends `hello` as a new process with that name. Returns the link and the welcome.
    pub async fn join(address: &str, name: &str) -> Result<(Self, Value)> {
        Self::join_as(address, &Who::new(name)).await
    }

    /// Opens a link and sends `hello`. Returns the link and the welcome.
    pub async fn join_as(address: &str, who: &Who) -> Result<(Self, Value)> {
        let mut link = Self::open(address).await?;
        match link.hello(who).await? {
            Ok(welcome) => Ok((link, welcome)),
            Err(error) => bail!("hello was refused: {error}"),
        }
    }

    /// Sends `hello`. Returns the welcome, or the error.
    pub async fn hello(&mut self, who: &Who) -> Result<Result<Value, Value>> {
        let mut hello = json!({
            "protocol_version": "1.0", "name": who.name, "host": "testhost", "instance": who.instance,
            "client": {"name": "test", "version": "0"},
        });
        if let (Some(hello), Some(more)) = (hello.as_object_mut(), who.more.as_object()) {
            hello.extend(more.clone());
        }
        self.request("hello", hello).await
    }

    /// Calls a tool and waits for its reply, or for the `data` of its refusal.
    pub async fn try_call(&mut self, tool: &str, arguments: Value) -> Result<Result<Value, Value>> {
        let id = self.begin(CallId::fresh(), tool, arguments).await?;
        Ok(self.end(id).await?.map_err(|error| error["data"].clone()))
    }

    /// Calls a tool that must succeed.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        match self.try_call(tool, arguments).await? {
            Ok(reply) => Ok(reply),
            Err(refusal) => bail!("{tool} was refused: {refusal}"),
        }
    }

    /// Calls a tool that must be refused. Returns the refusal's code.
    pub async fn refusal(&mut self, tool: &str, arguments: Value) -> Result<String> {
        match self.try_call(tool, arguments).await? {
            Ok(reply) => bail!("{tool} was not refused: {reply}"),
            Err(refusal) => Ok(refusal["code"]
                .as_str()
                .context("a refusal without a code")?
                .to_owned()),
        }
    }

    /// Sends a call, and returns the id with which [`end`](Self::end) waits for its answer.
    pub async fn begin(&mut self, call: CallId, tool: &str, arguments: Value) -> Result<i64> {
        self.send_request(
            "call",
            json!({"call_id": call, "tool": tool, "arguments": arguments}),
        )
        .await
    }

    /// Sends WebSocket pings and reads no answers.
    pub async fn ping(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.socket.feed(Message::Ping(vec![0; 125].into())).await?;
        }
        Ok(self.socket.flush().await?)
    }

    /// Waits for the answer to a request that was sent earlier.
    pub async fn end(&mut self, id: i64) -> Result<Result<Value, Value>> {
        self.end_within(id, ANSWER)
            .await?
            .context("no answer in time")
    }

    /// Waits for an answer, at most that long; `None` if there was none.
    pub async fn end_within(
        &mut self,
        id: i64,
        within: Duration,
    ) -> Result<Option<Result<Value, Value>>> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return Ok(Some(answer));
            }
            match timeout_at(deadline, self.receive()).await {
                Err(_) => return Ok(None),
                Ok(received) => received?,
            }
        }
    }

    /// Sends a request and waits for its answer.
    pub async fn request(&mut self, method: &str, params: Value) -> Result<Result<Value, Value>> {
        let id = self.send_request(method, params).await?;
        self.end(id).await
    }

    /// Reports a stage of messages.
    pub async fn receipt(&mut self, ids: &[&str], stage: &str, via: &str) -> Result<()> {
        self.receipt_in(0, ids, stage, via).await
    }

    /// Reports a stage of messages in that context of the session.
    pub async fn receipt_in(
        &mut self,
        context: u64,
        ids: &[&str],
        stage: &str,
        via: &str,
    ) -> Result<()> {
        let receipt = json!({"message_ids": ids, "stage": stage, "via": via, "context": context});
        match self.request("receipt", receipt).await? {
            Ok(_) => Ok(()),
            Err(error) => bail!("the receipt was refused: {error}"),
        }
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) -> Result<()> {
        self.send_text(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
            .await
    }

    /// Sends any text.
    pub async fn send_text(&mut self, text: &str) -> Result<()> {
        Ok(self.socket.send(Message::text(text)).await?)
    }

    /// Waits for an unsolicited frame that satisfies `wanted`, and takes it.
    pub async fn hear(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        let deadline = Instant::now() + ANSWER;
        loop {
            if let Some(index) = self.heard.iter().position(&wanted) {
                return Ok(self.heard.remove(index));
            }
            timeout_at(deadline, self.receive())
                .await
                .context("nothing of that was heard in time")??;
        }
    }

    /// Receives frames until the coordinator closes the link. Returns the close code.
    pub async fn hear_close(&mut self) -> Result<u16> {
        let deadline = Instant::now() + ANSWER;
        loop {
            if let Some(code) = self.closed {
                return Ok(code);
            }
            if timeout_at(deadline, self.receive())
                .await
                .context("not closed in time")?
                .is_err()
                && self.closed.is_none()
            {
                bail!("the link broke without a close frame");
            }
        }
    }

    async fn send_request(&mut self, method: &str, params: Value) -> Result<i64> {
        self.next_id += 1;
        let id = self.next_id;
        self.send_text(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await?;
        Ok(id)
    }

    async fn receive(&mut self) -> Result<()> {
        let message = self.socket.next().await.context("the link ended")??;
        let text = match message {
            Message::Text(text) => text,
            Message::Close(frame) => {
                self.closed = Some(frame.map_or(1005, |frame| frame.code.into()));
                bail!("the link was closed");
            }
            _ => return Ok(()),
        };
        let frame: Value =
            serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))?;
        match (frame["method"].as_str(), frame["id"].as_i64()) {
            (None, Some(id)) => {
                let answer = match frame.get("error") {
                    Some(error) => Err(error.clone()),
                    None => Ok(frame["result"].clone()),
                };
                self.answers.insert(id, answer);
            }
            (Some("deliver"), Some(id)) if self.accepts => {
                self.send_text(&json!({"jsonrpc": "2.0", "id": id, "result": {}}).to_string())
                    .await?;
                self.heard.push(frame);
            }
            _ => self.heard.push(frame),
        }
        Ok(())
    }
}
