//! The HTTP server of the one port: its routes, and the checks before them.

mod accept;
mod acp;
mod admission;
mod admitted;
mod audit;
mod certificate;
mod checkup;
mod control;
mod credential;
mod description;
mod download;
mod endpoint;
mod entrance;
mod envelope;
mod events;
mod evidence;
mod handshake;
mod hosts;
mod http_session;
mod http_waits;
mod invites;
mod join;
mod keys;
mod logins;
mod mcp;
mod metered;
mod origins;
mod pages;
mod pairs;
mod policy;
mod questions;
mod request_turns;
mod rest;
mod routes;
mod tls;
mod v1;
mod written;
mod wrong_codes;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use c3po_shared::refusal::Refusal;
use tokio::net::TcpListener;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use self::accept::listen;
use self::accept::{Door, Serving};
use self::admission::Admission;
pub(crate) use self::admission::raise_descriptor_limit;
use self::checkup::Checkup;
pub(crate) use self::control::{PrintedCommand, place as control_socket, this_program};
use self::credential::Credential;
use self::download::Downloads;
use self::endpoint::{retry_after, status_of};
use self::entrance::Entrance;
use self::http_session::HttpSessions;
use self::join::Joins;
use self::tls::Transport;
use self::written::until_written;
use self::wrong_codes::WrongCodes;
use crate::auth::{Auth, Principal, Stay};
use crate::config::Config;
use crate::memory;
use crate::notify::Notifier;
use crate::request::Services;

/// The path of MCP for clients without a proxy.
const MCP_PATH: &str = "/mcp";
/// The deadline for everything to end once the coordinator stops.
const STOP_DEADLINE: Duration = Duration::from_secs(5);

/// The state shared by all routes.
#[derive(Debug, Clone)]
pub(crate) struct AppState {
    services: Arc<Services>,
    auth: Arc<Auth>,
    notifier: Arc<Notifier>,
    http_sessions: Arc<HttpSessions>,
    checkup: Arc<Checkup>,
    joins: Arc<Joins>,
    wrong_logins: Arc<WrongCodes>,
    downloads: Arc<Downloads>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Serves until `stop` is cancelled, then drains: links are notified, running calls end, all within five seconds.
pub(crate) async fn serve(
    listener: TcpListener,
    config: &Config,
    notifier: Arc<Notifier>,
    auth: Arc<Auth>,
    tasks: TaskTracker,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let services = notifier.shared_services();
    let address = listener.local_addr().context("reading the address")?;
    let transport = Transport::open(&config.tls, address.ip(), &config.data_dir)?;
    if let Some(fingerprint) = transport.fingerprint() {
        tracing::info!(
            "clients use TLS ({}://); the certificate's fingerprint is {fingerprint}",
            transport.scheme()
        );
    }
    tasks.spawn(transport.clone().follow_files(stop.clone()));
    let bound = admission::bound(
        config.max_connections,
        memory::limit(),
        admission::dearest(&transport),
    );
    let admission = Admission::new(
        bound,
        Arc::clone(&services),
        transport.clone(),
        tasks.clone(),
    );
    accept::publish_limits(&services.metrics, &services.unfinished);
    let server = AppState {
        services,
        auth,
        notifier,
        joins: Arc::new(Joins::new(config, address, transport.clone())),
        wrong_logins: Arc::new(WrongCodes::new("login code", logins::NEW_CODE)),
        downloads: Arc::new(Downloads::new(&config.data_dir)),
        http_sessions: Arc::new(HttpSessions::within(memory::limit())),
        checkup: Arc::default(),
        tasks: tasks.clone(),
        stop: stop.clone(),
    };
    let names = origins::Names::new(config, transport.scheme(), address);
    let routes = routes(&server, names, transport.acceptor().is_some());
    let control = control::ControlSocket::bind(&config.data_dir, address.port())?;
    tasks.spawn(control.serve(routes.clone(), stop.clone()));
    join::announce(&server).await;
    let serving = Serving::new(routes, transport, Arc::clone(&server.services));
    let door = Door::new(listener, admission, serving);
    let ended = async {
        door.accept(&tasks, &stop).await;
        tasks.close();
        tasks.wait().await;
    };
    tokio::select! {
        () = ended => {}
        () = overdue(&stop) => {
            tracing::warn!("some connections did not end within {STOP_DEADLINE:?} and were cut");
        }
    }
    Ok(())
}

async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    sleep(STOP_DEADLINE).await;
}

fn routes(server: &AppState, names: origins::Names, has_tls: bool) -> Router {
    let sessions = Router::new()
        .route(c3po_shared::wire::PATH, get(acp::upgrade))
        .method_not_allowed_fallback(rest::no_such_method)
        .nest_service(MCP_PATH, mcp::service(server))
        .layer(middleware::from_fn_with_state(
            server.clone(),
            guard_sessions,
        ));
    routes::router(server)
        .merge(pages::router(has_tls))
        .method_not_allowed_fallback(rest::no_such_method)
        .merge(sessions)
        .fallback(rest::nowhere)
        .layer(middleware::from_fn_with_state(names, origins::layer))
        .layer(middleware::from_fn(pages::end_workers))
        .layer(middleware::from_fn_with_state(
            Entrance::new(server),
            entrance::layer,
        ))
        .layer(middleware::from_fn(envelope::layer))
        .with_state(server.clone())
}

async fn guard_sessions(
    State(server): State<AppState>,
    mut request: Request,
    next: Next,
) -> Response {
    let stay = match guard(&server, &mut request) {
        Ok(stay) => stay,
        Err(refusal) => return refused(refusal),
    };
    let answered = async {
        let response = stay.principal().unless_ended(next.run(request)).await?;
        until_written(&server.services.unfinished, stay, response)
    };
    answered.await.unwrap_or_else(refused)
}

/// Returns a refusal for proxies and MCP clients. They use the newer error code for an unavailable store.
fn refused(refusal: Refusal) -> Response {
    (
        status_of(refusal.code),
        retry_after(&refusal),
        Json(refusal),
    )
        .into_response()
}

/// Admits a request before any of its body is read.
fn guard(server: &AppState, request: &mut Request) -> Result<Arc<Stay>, Refusal> {
    let principal = Credential::of(request.extensions()).inspect_err(|refusal| {
        let before = server.services.metrics.connections_refused.inc();
        // Logged for the 1st, 2nd, 4th, 8th, … rejection, so that a client that never stops cannot fill the disk.
        if (before + 1).is_power_of_two() {
            tracing::warn!("{} requests were refused so far: {refusal}", before + 1);
        }
    })?;
    // Counted until the response is written and all work on the request has ended; a link is counted separately.
    let stay = Arc::new(Principal::enter(&principal)?);
    request.extensions_mut().insert(Arc::clone(&stay));
    request.extensions_mut().insert(principal);
    Ok(stay)
}
