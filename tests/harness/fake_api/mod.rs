//! A scripted fake of the Messages API: the model for the real Claude Code in tests, on 127.0.0.1 only.

mod asked;
mod ending;
mod script;
mod stream;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::eventually::eventually;

pub use asked::Asked;
pub use ending::{Ending, Fate};
pub use script::{Block, Gate, Script};

/// A request may carry a whole conversation with long tool results.
const BODY_MAX: usize = 64 << 20;

/// A running fake API. Dropping it stops it.
#[derive(Debug)]
pub struct FakeApi {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    server: TaskTracker,
}

#[derive(Debug)]
struct Shared {
    script: Script,
    /// Whether requests are kept.
    keeps: bool,
    asked: Mutex<Vec<Asked>>,
    others: Mutex<Vec<String>>,
}

impl FakeApi {
    /// Starts one that plays `script`.
    ///
    /// Errors: there is no free port.
    pub async fn start(script: Script) -> Result<Self> {
        Self::begin(script, true).await
    }

    /// Starts one that plays `script` and keeps no requests: hours of whole conversations would not fit into memory.
    ///
    /// Errors: there is no free port.
    pub async fn start_forgetful(script: Script) -> Result<Self> {
        Self::begin(script, false).await
    }

    async fn begin(script: Script, keeps: bool) -> Result<Self> {
        let shared = Arc::new(Shared {
            script,
            keeps,
            asked: Mutex::default(),
            others: Mutex::default(),
        });
        let routes = Router::new()
            .route("/v1/messages", post(answer_messages))
            .route("/v1/messages/count_tokens", post(count_tokens))
            .route("/api/hello", get(async || StatusCode::OK))
            .fallback(refuse)
            .layer(axum::extract::DefaultBodyLimit::max(BODY_MAX))
            .with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("looking for a free port")?;
        let address = listener.local_addr().context("asking for the port")?;
        let (stop, server) = (CancellationToken::new(), TaskTracker::new());
        let stopped = stop.clone().cancelled_owned();
        server.spawn(async move {
            axum::serve(listener, routes)
                .with_graceful_shutdown(stopped)
                .await
        });
        Ok(Self {
            address,
            shared,
            stop,
            server,
        })
    }

    /// Returns the base URL for the client.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns every request for a message so far, in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits for a request that satisfies `wanted`, which may already have arrived.
    ///
    /// Errors: there is none `within` the time; the error shows the newest text of the last request.
    pub async fn wait_for(
        &self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&Asked) -> bool,
    ) -> Result<Asked> {
        let mut known = 0;
        let found = eventually(what, within, async || {
            // Each request is checked only once, because it contains a whole conversation.
            let asked = self
                .shared
                .asked
                .lock()
                .unwrap_or_else(PoisonError::into_inner)[known..]
                .to_vec();
            known += asked.len();
            asked.into_iter().find(&wanted)
        });
        found.await.with_context(|| {
            let asked = self.asked();
            let last = asked.last().map(Asked::new_text).unwrap_or_default();
            format!("{} requests, the last one said:\n{last}", asked.len())
        })
    }

    /// Returns the method and path of every request that is not scripted.
    pub fn others(&self) -> Vec<String> {
        self.shared
            .others
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Stops it; open answers end first.
    pub async fn stop(self) {
        self.stop.cancel();
        self.server.close();
        self.server.wait().await;
    }
}

impl Drop for FakeApi {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn answer_messages(State(shared): State<Arc<Shared>>, body: String) -> Response {
    let Ok(body) = serde_json::from_str::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let asked = Asked::new(body);
    // If the client disconnects, this future is dropped wherever it waits, and `open` with it.
    let open = asked.ending().open();
    let blocks = shared.script.answer(&asked);
    let message = stream::Message::new(&asked, &blocks);
    let streamed = asked.body()["stream"].as_bool().unwrap_or(false);
    if shared.keeps {
        shared
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(asked);
    }
    think(&blocks).await;
    if let Some(Block::Fail(status)) = blocks.iter().find(|block| matches!(block, Block::Fail(_))) {
        open.ends(Fate::Failed);
        let error = json!({"type": "error", "error": {"type": "api_error", "message": "scripted"}});
        let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        return (
            status,
            [(header::CONTENT_TYPE, "application/json")],
            error.to_string(),
        )
            .into_response();
    }
    open.ends(Fate::Answered);
    let (kind, text) = match streamed {
        true => ("text/event-stream; charset=utf-8", message.events()),
        false => ("application/json", message.whole().to_string()),
    };
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Waits as long as the scripted pauses and gates require.
async fn think(blocks: &[Block]) {
    for block in blocks {
        match block {
            Block::Pause(time) => sleep(*time).await,
            Block::Hold(gate) => gate.opened().await,
            Block::Text(_) | Block::Call { .. } | Block::Fail(_) => {}
        }
    }
}

async fn count_tokens(body: String) -> Response {
    let count = json!({"input_tokens": (body.len() / 4).max(1)});
    (
        [(header::CONTENT_TYPE, "application/json")],
        count.to_string(),
    )
        .into_response()
}

async fn refuse(State(shared): State<Arc<Shared>>, request: axum::extract::Request) -> Response {
    let line = format!("{} {}", request.method(), request.uri().path());
    shared
        .others
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(line);
    let error =
        json!({"type": "error", "error": {"type": "not_found_error", "message": "not scripted"}});
    (
        StatusCode::NOT_FOUND,
        [(header::CONTENT_TYPE, "application/json")],
        error.to_string(),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http;

    #[tokio::test]
    async fn a_request_is_waited_for_and_a_model_may_take_its_time() -> Result<()> {
        let gate = Gate::new();
        let answer = [
            Block::pause(300),
            Block::hold(&gate),
            Block::text("at last"),
        ];
        let api = FakeApi::start(Script::new().then(answer)).await?;
        let ask = json!({"model": "m", "tools": [{"name": "x"}], "messages": [{"role": "user", "content": "hurry"}]});
        let ask = ask.to_string();
        let answer = http::post(api.address, "/v1/messages", &[], &ask);
        let within = Duration::from_secs(20);
        let known = async {
            let asked = api
                .wait_for("hurry", within, |asked| asked.holds("hurry"))
                .await;
            gate.open();
            asked
        };
        let (answer, asked) = tokio::try_join!(answer, known)?;
        assert!(
            answer.body.contains("at last") && !answer.body.contains("Pause"),
            "{}",
            answer.body
        );
        assert!(
            asked.at().elapsed() >= Duration::from_millis(300),
            "the request is known before the answer"
        );
        let never = api
            .wait_for("rest", Duration::from_millis(20), |asked| {
                asked.holds("rest")
            })
            .await;
        assert!(format!("{:#}", never.expect_err("never")).contains("hurry"));
        Ok(())
    }

    #[tokio::test]
    async fn how_a_request_ended_is_known() -> Result<()> {
        let gate = Gate::new();
        let script = Script::new()
            .then([Block::text("hello")])
            .then([Block::Fail(529)])
            .then([Block::hold(&gate)]);
        let api = FakeApi::start(script).await?;
        let ask = json!({"model": "m", "tools": [{"name": "x"}], "messages": []}).to_string();
        assert_eq!(
            http::post(api.address, "/v1/messages", &[], &ask)
                .await?
                .status,
            200
        );
        assert_eq!(
            http::post(api.address, "/v1/messages", &[], &ask)
                .await?
                .status,
            529
        );
        let fate = |number: usize| {
            api.asked()
                .get(number)?
                .ending()
                .known()
                .map(|(fate, _)| fate)
        };
        {
            let third = http::post(api.address, "/v1/messages", &[], &ask);
            let comes = api.wait_for("a third request", Duration::from_secs(20), |_| {
                api.asked().len() == 3
            });
            tokio::select! { answer = third => drop(answer?), asked = comes => drop(asked?) }
            assert_eq!(fate(2), None, "it is open");
        }
        let end = eventually("its end", Duration::from_secs(20), async || fate(2)).await?;
        assert_eq!(
            (fate(0), fate(1), end),
            (Some(Fate::Answered), Some(Fate::Failed), Fate::CutOff)
        );
        Ok(())
    }

    #[tokio::test]
    async fn requests_are_kept_unless_nothing_is_to_be_kept() -> Result<()> {
        let api = FakeApi::start_forgetful(Script::new()).await?;
        let ask = json!({"model": "m", "messages": []}).to_string();
        assert_eq!(
            http::post(api.address, "/v1/messages", &[], &ask)
                .await?
                .status,
            200
        );
        assert!(api.asked().is_empty());
        Ok(())
    }

    #[tokio::test]
    async fn a_script_is_played_and_its_requests_are_kept() -> Result<()> {
        let api = FakeApi::start(
            Script::new()
                .then([Block::text("hello")])
                .otherwise([Block::text("done")]),
        )
        .await?;
        let ask = json!({"model": "m", "tools": [{"name": "x"}], "stream": true,
            "messages": [{"role": "user", "content": "who are you"}]});

        let first =
            http::post(api.address, "/v1/messages?beta=true", &[], &ask.to_string()).await?;
        assert_eq!(first.status, 200);
        assert!(
            first.body.contains("event: message_start") && first.body.contains("hello"),
            "{}",
            first.body
        );
        let second = http::post(api.address, "/v1/messages", &[], &ask.to_string()).await?;
        assert!(second.body.contains("done"), "{}", second.body);

        assert_eq!(api.asked().len(), 2);
        assert_eq!(api.asked()[0].last_user_text(), "who are you");
        assert_eq!(http::get(api.address, "/v1/models").await?.status, 404);
        assert_eq!(api.others(), ["GET /v1/models"]);
        api.stop().await;
        Ok(())
    }
}
