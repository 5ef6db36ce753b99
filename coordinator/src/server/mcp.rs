//! `/mcp`: the same tools and rules for clients without a proxy, over streamable HTTP without MCP sessions.

use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use c3po_shared::catalogue::{Call, INSTRUCTIONS, Listing, Received, Tool, listing, presented_via};
use c3po_shared::ids::CallId;
use c3po_shared::receipt::{Stage, Via};
use c3po_shared::refusal::{ErrorCode, Refusal};
use futures_util::poll;
use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities,
    ServerConfig, Tool as ListedTool,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio::time::{Instant, interval_at, timeout};

use super::accept::BODY_MAX;
use super::endpoint::read_body;
use super::entrance::{self, Place};
use super::evidence::{self, Presentation};
use super::http_waits::HttpWaits;
use super::request_turns::RequestTurns;
use super::written::Paid;
use super::{AppState, http_session, http_session::HttpSessions, refused};
use crate::auth::Principal;
use crate::json::values_in;
use crate::request::{self, CALL_DEADLINE, Services};
use crate::unfinished::Charge;

/// The JSON values of a body, an object counted as several. rmcp keeps each in about 140 bytes, for as long as the call lasts.
const VALUES_MAX: usize = 1_000;
/// The largest body of a wait, in bytes and JSON values: its request is kept for up to an hour and is not charged.
const WAIT_BODY_MAX: BodySize = BodySize {
    bytes: 4 << 10,
    values: 300,
};
/// How many characters of an unknown tool's name are repeated.
const NAME_SHOWN: usize = 100;
/// The interval of progress notifications to a client that requested them.
const PROGRESS: Duration = Duration::from_secs(25);

/// The permitted origins: pages of this machine on any port. All others are rejected.
const LOOPBACK_ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];

/// Returns the service for `/mcp`.
///
/// Unlike other paths, it accepts requests from pages of this machine, because some MCP clients are such pages.
pub(super) fn service(server: &AppState) -> Router {
    let handler = Handler {
        services: Arc::clone(&server.services),
        sessions: Arc::clone(&server.http_sessions),
    };
    let settings = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_cancellation_token(server.stop.clone())
        .with_allowed_origins(LOOPBACK_ORIGINS)
        .enforce_origin_validation()
        // `Host` has already been checked.
        .with_allowed_hosts(Vec::<String>::new());
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        settings,
    );
    Router::new()
        .fallback_service(service)
        .layer(middleware::from_fn_with_state(
            server.clone(),
            evidence::layer,
        ))
        .layer(middleware::from_fn_with_state(server.clone(), read_first))
}

/// The size of a body.
#[derive(Debug, Clone, Copy)]
struct BodySize {
    bytes: usize,
    values: usize,
}

/// Refuses a wait with a body that is too large to be kept.
fn check_wait(body: BodySize) -> Result<(), Refusal> {
    let (BodySize { bytes, values }, most) = (body, WAIT_BODY_MAX);
    if bytes <= most.bytes && values <= most.values {
        return Ok(());
    }
    let error = format!(
        "the request of a wait has {bytes} bytes and {values} JSON values; at most {} and {} are allowed",
        most.bytes, most.values
    );
    Err(Refusal::new(ErrorCode::PayloadTooLarge, error).suggest("Send it without metadata."))
}

/// Reads the body before rmcp does. rmcp would wait for the rest of the body even while the coordinator stops.
async fn read_first(State(server): State<AppState>, mut request: Request, next: Next) -> Response {
    let read = read_body(&server, &mut request, BODY_MAX).await;
    let entered = Box::pin(entrance::entered(request.extensions(), read));
    let (body, held) = match entered.await {
        Ok(read) => read,
        Err(refusal) => return refused(refusal),
    };
    let turns = request.extensions().get::<RequestTurns>().cloned();
    let turn = match &turns {
        Some(turns) => turns.turns().next_if_busy().await,
        None => None,
    };
    let values = values_in(&body);
    if values > VALUES_MAX {
        return refused(Refusal::new(
            ErrorCode::PayloadTooLarge,
            format!("the body has {values} JSON values; at most {VALUES_MAX} are allowed"),
        ));
    }
    let effect = Arc::new(Effect::default());
    request.extensions_mut().insert(Arc::clone(&effect));
    request.extensions_mut().insert(BodySize {
        bytes: body.len(),
        values,
    });
    let mut answering = pin!(next.run(request.map(|_| Body::from(body))));
    // rmcp parses it in the first step, and waits for something only after that.
    let answered = poll!(&mut answering);
    drop(turn);
    let answered = match answered {
        Poll::Ready(answer) => Ok(answer),
        Poll::Pending => timeout(CALL_DEADLINE, &mut answering).await,
    };
    let (answer, held) = match answered {
        Ok(answer) => (answer, held),
        Err(_) => {
            // A wait lasts longer than a charge may be held.
            drop(held);
            (answering.await, None)
        }
    };
    match effect.take() {
        Some(of_answer) => Paid::mark(of_answer.or(held), answer),
        None => answer,
    }
}

/// Returns the tools as clients list them. Made once.
fn listed() -> &'static [ListedTool] {
    static LISTED: OnceLock<Vec<ListedTool>> = OnceLock::new();
    LISTED.get_or_init(|| {
        let tools = listing().iter().map(Listing::wire);
        tools
            .map(|tool| serde_json::from_value(tool).expect("a tool of the catalogue"))
            .collect()
    })
}

/// Set when the call of a request has changed something, so that its answer may not be refused: to the charge of that answer,
/// if it has one.
#[derive(Debug, Default)]
struct Effect(Mutex<Option<Option<Charge>>>);

impl Effect {
    fn set(&self, charge: Option<Charge>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(charge);
    }

    fn take(&self) -> Option<Option<Charge>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[derive(Debug, Clone)]
struct Handler {
    services: Arc<Services>,
    sessions: Arc<HttpSessions>,
}

impl ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("c3po", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(listed().to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(parts) = context.extensions.get::<Parts>() else {
            return Err(ErrorData::internal_error(
                "the request's headers are missing",
                None,
            ));
        };
        if Tool::named(&request.name).is_none() {
            let name: String = request.name.chars().take(NAME_SHOWN).collect();
            return Err(ErrorData::invalid_params(
                format!("Unknown tool: {name}"),
                None,
            ));
        }
        let shown = parts
            .extensions
            .get::<Presentation>()
            .cloned()
            .unwrap_or_default();
        let call = self.call(
            parts,
            &request.name,
            request.arguments.unwrap_or_default(),
            &shown,
        );
        let outcome = tokio::select! {
            outcome = call => outcome,
            () = tell_progress(&context) => Err(Refusal::new(ErrorCode::Internal, "progress ended")),
            // The client has disconnected. A message that its wait still took would arrive late elsewhere.
            () = context.ct.cancelled() => Err(Refusal::new(ErrorCode::Internal, "the client has gone")),
        };
        let result = match outcome {
            Ok(reply) => CallToolResult::structured(reply.into_value()),
            Err(refusal) => {
                CallToolResult::structured_error(serde_json::to_value(&refusal).unwrap_or_default())
            }
        };
        Ok(result.into())
    }
}

impl Handler {
    async fn call(
        &self,
        parts: &Parts,
        name: &str,
        arguments: JsonObject,
        shown: &Presentation,
    ) -> Result<Received, Refusal> {
        let call = Call::of_object(name, arguments)?;
        let Some(principal) = parts.extensions.get::<Arc<Principal>>() else {
            return Err(Refusal::new(ErrorCode::Internal, "nobody was admitted"));
        };
        let caller = self
            .sessions
            .caller(&self.services, principal, &parts.headers)
            .await?;
        let tool = call.tool();
        if let (true, Some(size)) = (call.waits(), parts.extensions.get::<BodySize>()) {
            check_wait(*size)?;
        }
        // Only a call that names a message proves that the model read it: other calls may have been made with the one that
        // showed it.
        http_session::note(
            &self.services,
            &caller,
            call.settles(),
            Stage::Seen,
            Via::ToolCall,
        )
        .await;
        // A parsed request may take fifty times as much memory as its text, so only waits, whose requests are small, have no place.
        if let (true, Some(place)) = (call.waits(), parts.extensions.get::<Arc<Place>>()) {
            place.leave();
        }
        let waits = call
            .waits()
            .then(|| HttpWaits::begin(&self.sessions.waits, principal));
        let _wait = waits.transpose()?;
        // The protocol has no call ids, so each request is a call of its own.
        let done = tokio::select! {
            done = request::perform(&self.services, &caller, CallId::fresh(), call, None) => done?,
            lost = self.sessions.stay_online(&self.services, &caller) => return Err(lost.into()),
            () = principal.ended() => return Err(principal.ending()),
        };
        let reply = Received::of(&done.reply);
        if let Some(effect) = parts
            .extensions
            .get::<Arc<Effect>>()
            .filter(|_| !tool.only_reads())
        {
            effect.set(done.held);
        }
        if let Some(via) = presented_via(tool) {
            let own = reply
                .presented(tool)
                .into_iter()
                .filter(|id| id.to() == caller.agent)
                .collect();
            let handed = if tool == Tool::WaitForMessage {
                reply.shown(tool)
            } else {
                Vec::new()
            };
            shown.set(caller, own, handed, via);
        }
        Ok(reply)
    }
}

/// Sends progress notifications to a client that requested them. Never resolves.
async fn tell_progress(context: &RequestContext<RoleServer>) {
    let Some(token) = context.meta.get_progress_token() else {
        return std::future::pending().await;
    };
    let mut ticks = interval_at(Instant::now() + PROGRESS, PROGRESS);
    let mut seconds = 0.0;
    loop {
        ticks.tick().await;
        seconds += PROGRESS.as_secs_f64();
        let progress =
            ProgressNotificationParam::new(token.clone(), seconds).with_message("still waiting");
        if context.peer.notify_progress(progress).await.is_err() {
            // The client has gone; the call ends with its connection.
            return std::future::pending().await;
        }
    }
}
