//! The one port: which path leads where, and what stands before all of them.

mod acp;
mod admission;
mod audit;
mod evidence;
mod health;
mod http_session;
mod mcp;
mod policy;
mod rest;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use c3po_shared::refusal::Refusal;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::admission::Admission;
pub(crate) use self::admission::raise_descriptor_limit;
pub(crate) use self::health::ask as ask_health;
use self::http_session::HttpSessions;
use crate::auth::Auth;
use crate::config::Config;
use crate::request::Office;

/// How long everything may take to end once the coordinator stops.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// What every path works with.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    office: Arc<Office>,
    auth: Arc<Auth>,
    http_sessions: Arc<HttpSessions>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Serves until `stop` is cancelled, then drains: links are told, calls under way end, everything within five seconds.
pub(crate) async fn serve(
    listener: TcpListener,
    config: &Config,
    office: Arc<Office>,
    tasks: TaskTracker,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let listener =
        Admission::new(listener, admission::bound(config.max_connections), Arc::clone(&office), tasks.clone());
    let server = Server {
        office,
        auth: Arc::new(Auth::new(config.token.clone())),
        http_sessions: Arc::new(HttpSessions::default()),
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    let routes = routes(&server, config);
    let serving = axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    let ended = async {
        let outcome = serving.await.context("serving connections");
        tasks.close();
        tasks.wait().await;
        outcome
    };
    tokio::select! {
        outcome = ended => outcome,
        () = overdue(&stop) => {
            tracing::warn!("some connections did not end within {STOP_DEADLINE:?} and were cut");
            Ok(())
        }
    }
}

async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    sleep(STOP_DEADLINE).await;
}

fn routes(server: &Server, config: &Config) -> Router {
    let guarded = Router::new()
        .route(c3po_shared::wire::PATH, get(acp::upgrade))
        .route("/api/pending", get(rest::pending))
        .route("/api/agents", get(rest::agents))
        .route("/api/unregister", post(rest::unregister))
        .route("/api/policy/check", get(policy::check))
        .route("/api/audit", get(audit::page))
        .route("/metrics", get(rest::metrics))
        .nest_service("/mcp", mcp::service(server, config))
        .layer(middleware::from_fn_with_state(server.clone(), guard));
    Router::new()
        .route("/api/health", get(rest::health))
        .merge(guarded)
        .fallback(rest::nowhere)
        .with_state(server.clone())
}

/// Nothing of a request is read before it is admitted.
async fn guard(State(server): State<Server>, request: Request, next: Next) -> Response {
    match server.auth.admit(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => {
            let before = server.office.metrics.connections_refused.inc();
            // The 1st, 2nd, 4th, 8th, …: whoever knocks without end does not fill the disk.
            if (before + 1).is_power_of_two() {
                tracing::warn!("{} requests were refused so far: {refusal}", before + 1);
            }
            refused(&refusal)
        }
    }
}

/// Returns the refusal as REST says it.
fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(refusal)).into_response()
}
