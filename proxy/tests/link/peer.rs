//! A peer with real frames in place of a coordinator, and a running link of a session.

use std::sync::Arc;
use std::time::Duration;

use c3po::config::{Config, Coordinators, Person, Places, Secret, Sockets};
use c3po::deliver::PersonInbox;
use c3po::link::{self, Link, State};
use c3po_shared::catalogue::Call;
use c3po_shared::refusal::Refusal;
use c3po_shared::wire::SUBPROTOCOL;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Deadline of all operations in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A listener in place of a coordinator.
pub(crate) struct Peer {
    pub(crate) listener: TcpListener,
}

/// One connection of a proxy.
pub(crate) struct Talk {
    pub(crate) socket: WebSocketStream<TcpStream>,
}

impl Peer {
    pub(crate) async fn listen() -> Self {
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("ws://{}/acp", self.listener.local_addr().unwrap())
    }

    /// Accepts a connection and its upgrade.
    pub(crate) async fn connection(&self) -> Talk {
        let agree =
            |request: &Request, mut response: Response| -> Result<Response, ErrorResponse> {
                assert_eq!(request.headers()["sec-websocket-protocol"], SUBPROTOCOL);
                response
                    .headers_mut()
                    .insert("sec-websocket-protocol", SUBPROTOCOL.parse().unwrap());
                Ok(response)
            };
        let (stream, _) = timeout(PATIENCE, self.listener.accept())
            .await
            .expect("a connection")
            .unwrap();
        Talk {
            socket: tokio_tungstenite::accept_hdr_async(stream, agree)
                .await
                .unwrap(),
        }
    }

    /// Accepts a connection and its `hello`, which it returns, and gives the agent its name.
    pub(crate) async fn welcome(&self, name: &str) -> (Talk, Value) {
        self.welcome_that_beats(name, 15).await
    }

    pub(crate) async fn welcome_that_beats(
        &self,
        name: &str,
        heartbeat_seconds: u64,
    ) -> (Talk, Value) {
        let mut talk = self.connection().await;
        let hello = talk.hear().await;
        assert_eq!(hello["method"], "hello");
        talk.answer(
            &hello,
            json!({
                "agent_id": name, "uid": "0191e6b0-0000-7000-8000-000000000001", "generation": 1,
                "heartbeat_seconds": heartbeat_seconds, "coordinator_version": "0.1.0", "pending": 0,
            }),
        )
        .await;
        (talk, hello["params"].clone())
    }
}

impl Talk {
    pub(crate) async fn hear(&mut self) -> Value {
        loop {
            match timeout(PATIENCE, self.socket.next())
                .await
                .expect("a frame")
                .expect("a connection")
                .unwrap()
            {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Close(_) => panic!("the proxy closed the connection"),
                _ => {}
            }
        }
    }

    pub(crate) async fn say(&mut self, frame: Value) {
        self.socket
            .send(Message::text(frame.to_string()))
            .await
            .unwrap();
    }

    pub(crate) async fn answer(&mut self, request: &Value, result: Value) {
        self.say(json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
            .await;
    }

    pub(crate) async fn refuse(&mut self, request: &Value, refusal: Refusal) {
        let error = json!({"code": -32000, "message": refusal.error, "data": refusal});
        self.say(json!({"jsonrpc": "2.0", "id": request["id"], "error": error}))
            .await;
    }

    pub(crate) async fn close(mut self, code: u16) {
        let frame = CloseFrame {
            code: code.into(),
            reason: "".into(),
        };
        self.socket.close(Some(frame)).await.unwrap();
    }
}

/// A running link of a session.
pub(crate) struct Running {
    pub(crate) link: Link,
    pub(crate) inbox: Arc<PersonInbox>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) state: tempfile::TempDir,
}

pub(crate) fn run(urls: Vec<String>) -> Running {
    run_with(urls, tempfile::tempdir().unwrap())
}

pub(crate) fn run_with(urls: Vec<String>, state: tempfile::TempDir) -> Running {
    run_as(urls, state, None)
}

pub(crate) fn run_as(
    urls: Vec<String>,
    state: tempfile::TempDir,
    token: Option<Secret>,
) -> Running {
    let config = Config {
        person: Person::default(),
        coordinators: Coordinators {
            urls,
            token,
            ..Coordinators::default()
        },
        client: std::os::unix::process::parent_id(),
        agent: "web".parse().unwrap(),
        host: "nas2".to_owned(),
        session_id: None,
        timeout: 60,
        state_dir: state.path().to_owned(),
        read_at: Default::default(),
        places: Places::in_home(state.path()),
        sockets: Sockets::default(),
        join_code: None,
        log: String::new(),
        log_file: None,
        colour: false,
        messaging_socket: None,
        messaging_token: None,
        channel: false,
        is_plugin: false,
        one_shot: false,
        desktop_notes: false,
        headless: false,
        problems: Vec::new(),
        warnings: Vec::new(),
    };
    let inbox = Arc::new(PersonInbox::default());
    let link = Link::of_session(config, inbox.clone());
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    tasks.spawn(link::run(link.clone(), stop.clone()));
    Running {
        link,
        inbox,
        stop,
        tasks,
        state,
    }
}

pub(crate) type Outcome = Result<Value, Refusal>;

impl Running {
    pub(crate) fn call(&self, tool: &'static str, arguments: Value) -> JoinHandle<Outcome> {
        let link = self.link.clone();
        self.tasks.spawn(async move {
            let call = Call::of_object(tool, arguments.as_object().cloned().unwrap()).unwrap();
            link.call(call).await.map(|reply| reply.into_value())
        })
    }

    pub(crate) async fn becomes(&self, state: State) {
        let mut status = self.link.status();
        timeout(PATIENCE, status.wait_for(|now| now.state == state))
            .await
            .expect("the state")
            .unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) async fn outcome(call: JoinHandle<Outcome>) -> Outcome {
    timeout(PATIENCE, call).await.expect("an outcome").unwrap()
}
