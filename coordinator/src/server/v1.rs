//! REST v1 about agents, messages and threads: the calls of the tools, for clients that act as an agent without a session.

use std::sync::Arc;

use aide::generate::GenContext;
use aide::openapi::{Operation, Response as Described, StatusCode as Code};
use aide::operation::{OperationInput, OperationOutput};
use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use c3po_shared::catalogue::{
    self as tools, Acked, AgentDetails, Agents, Call, Copies, Inbox, Reply, Sent, Thread, Tracked,
};
use c3po_shared::ids::{AgentId, CallId, MessageId};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::vocabulary::ReplyStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use uuid::Uuid;

use super::AppState;
use super::endpoint::{
    Access, Body, By, Charged, InPath, Query, Refused, RestAnswer, Speaker, Table, get, post,
};
use super::http_session::{agent_header, host_header};
use crate::auth::Principal;
use crate::auth::Right::{Look, Speak};
use crate::limit::RateAllowance;
use crate::request::{self, Caller, PersonWish, act_as};

/// The header by which a repeated request is recognized.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The longest such key, in characters.
const KEY_MAX: usize = 200;
/// The namespace of the call ids that are derived from them: a constant random UUID.
const NAMESPACE: Uuid = Uuid::from_u128(0x9a3e_51c7_04f2_4d1e_b6a8_2c71_d05e_0001);

/// Adds the paths about agents, messages and threads.
pub(super) fn routes(table: Table) -> Table {
    const SPEAKS: Access = Access::by(Speak);
    let inbox = "The inbox of an agent, oldest first; it stays unchanged";
    let stages = "How far a message got, with the evidence of each stage";
    table
        .row(
            "/api/v1/agents",
            Access::by(Look),
            "Agents, in pages",
            get(agents),
        )
        .row(
            "/api/v1/agents/{id}",
            Access::by(Look),
            "One agent",
            get(agent),
        )
        .row("/api/v1/messages", SPEAKS, inbox, get(messages))
        .row("/api/v1/messages", SPEAKS, "Send a message", post(send))
        .row(
            "/api/v1/messages/acknowledge",
            SPEAKS,
            "Take messages out of the inbox",
            post(acknowledge),
        )
        .row(
            "/api/v1/messages/{id}/receipt",
            SPEAKS,
            stages,
            get(receipt),
        )
        .row(
            "/api/v1/messages/{id}/reply",
            SPEAKS,
            "Answer a message",
            post(reply),
        )
        .row(
            "/api/v1/threads/{id}",
            SPEAKS,
            "The messages of a thread that an agent sent or received",
            get(thread),
        )
        .row(
            "/api/v1/broadcasts",
            SPEAKS,
            "Send a message to all agents, or to those with a role or on a host",
            post(broadcast),
        )
}

/// The id of an agent in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OneAgent {
    id: AgentId,
}

/// The id of a message in a path.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct OneMessage {
    pub(super) id: MessageId,
}

/// A position in a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct From {
    /// `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// A reply to the message of the path.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplyBody {
    /// The text.
    response: String,
    /// Whether it is an answer or an error.
    #[serde(default)]
    status: Option<ReplyStatus>,
    /// Whether the reply needs an answer.
    #[serde(default)]
    requires_response: Option<bool>,
}

/// The result of a send: of one message, or of its copies.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum SentOrCopies {
    One(Box<Sent>),
    Many(Copies),
}

/// A created message, with the rate limit of its sender.
#[derive(Debug)]
pub(super) struct Created<T>(pub(super) Option<RateAllowance>, pub(super) T);

impl<T: JsonSchema> OperationOutput for Created<T> {
    type Inner = T;

    fn inferred_responses(
        context: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<Code>, Described)> {
        let mut responses = Json::<T>::inferred_responses(context, operation);
        for (code, _) in &mut responses {
            *code = Some(Code::Code(201));
        }
        responses
    }
}

impl<T: Serialize> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        let Self(allowance, value) = self;
        let headers: HeaderMap = allowance.iter().flat_map(rate_headers).collect();
        (StatusCode::CREATED, headers, Json(value)).into_response()
    }
}

fn rate_headers(allowance: &RateAllowance) -> [(HeaderName, HeaderValue); 3] {
    [
        ("x-ratelimit-limit", u64::from(allowance.limit)),
        ("x-ratelimit-remaining", u64::from(allowance.remaining)),
        ("x-ratelimit-reset", allowance.reset.millis() / 1_000),
    ]
    .map(|(name, value)| (HeaderName::from_static(name), value.into()))
}

/// The caller that a request names: the agent of the header, or else the person.
#[derive(Debug)]
pub(super) struct Acting {
    principal: Arc<Principal>,
    name: AgentId,
    host: String,
    call: CallId,
}

impl FromRequestParts<AppState> for Acting {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, server: &AppState) -> Result<Self, Refused> {
        let By(principal) = By::from_request_parts(parts, server).await?;
        let name = agent_header(&parts.headers)?.unwrap_or_else(AgentId::human);
        let host = principal.host(host_header(&parts.headers)?);
        let call = call_id(&principal, parts.uri.path(), &parts.headers)?;
        Ok(Self {
            principal,
            name,
            host,
            call,
        })
    }
}

impl OperationInput for Acting {}

/// The id of the call that a request makes.
#[derive(Debug)]
pub(super) struct Called(pub(super) CallId);

impl FromRequestParts<AppState> for Called {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, server: &AppState) -> Result<Self, Refused> {
        let By(principal) = By::from_request_parts(parts, server).await?;
        let call = call_id(&principal, parts.uri.path(), &parts.headers)?;
        Ok(Self(call))
    }
}

impl OperationInput for Called {}

/// Returns the id of the call: the same for each request of a principal to a path with the same `Idempotency-Key`.
fn call_id(principal: &Principal, path: &str, headers: &HeaderMap) -> Result<CallId, Refusal> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(CallId::fresh());
    };
    let key = key
        .to_str()
        .ok()
        .filter(|key| (1..=KEY_MAX).contains(&key.len()));
    let key = key.ok_or_else(|| {
        Refusal::invalid(format!(
            "Idempotency-Key must have 1 to {KEY_MAX} characters of ASCII"
        ))
    })?;
    let name = format!("{}\n{path}\n{key}", principal.name());
    Ok(CallId(Uuid::new_v5(&NAMESPACE, name.as_bytes())))
}

impl Acting {
    async fn perform(
        self,
        server: &AppState,
        call: Call,
    ) -> Result<(Option<RateAllowance>, Reply), Refusal> {
        let wish = PersonWish {
            name: &self.name,
            host: &self.host,
            dead: Vec::new(),
            may_make: false,
        };
        let (caller, _) = act_as(&server.services, &self.principal, wish).await?;
        let done = request::perform(&server.services, &caller, self.call, call, None).await?;
        let allowance = server
            .services
            .limit
            .allowance(&caller.agent, Instant::now());
        Ok((allowance, done.reply))
    }
}

fn unexpected() -> Refused {
    Refusal::new(ErrorCode::Internal, "the call has another result").into()
}

/// Returns a caller that only reads as this agent, which a session may hold.
fn reader(principal: &Arc<Principal>, agent: AgentId) -> Caller {
    Caller {
        agent,
        principal: Arc::clone(principal),
        host: None,
        tenure: None,
        dead: Arc::default(),
        renamable: false,
        memory: Arc::default(),
    }
}

/// `GET /api/v1/agents`
pub(super) async fn agents(
    State(server): State<AppState>,
    By(principal): By,
    Query(query): Query<tools::ListAgents>,
) -> RestAnswer<Agents> {
    let caller = reader(&principal, AgentId::human());
    match request::read(&server.services, &caller, Call::ListAgents(query)).await? {
        (Reply::Agents(agents), _) => Ok(Json(agents)),
        _ => Err(unexpected()),
    }
}

/// `GET /api/v1/agents/{id}`
pub(super) async fn agent(
    State(server): State<AppState>,
    By(principal): By,
    InPath(OneAgent { id }): InPath<OneAgent>,
) -> RestAnswer<AgentDetails> {
    let caller = reader(&principal, AgentId::human());
    let call = Call::GetAgentStatus(tools::GetAgentStatus { agent_id: id });
    match request::read(&server.services, &caller, call).await? {
        (Reply::AgentDetails(details), _) => Ok(Json(details)),
        _ => Err(unexpected()),
    }
}

/// `GET /api/v1/messages`
pub(super) async fn messages(
    State(server): State<AppState>,
    By(principal): By,
    Speaker(agent): Speaker,
    Query(query): Query<tools::GetMessages>,
) -> Result<Charged<Inbox>, Refused> {
    let caller = reader(&principal, agent);
    match request::read(&server.services, &caller, Call::GetMessages(query)).await? {
        (Reply::Inbox(inbox), Some(charge)) => Ok(Charged(inbox, charge)),
        _ => Err(unexpected()),
    }
}

/// `GET /api/v1/threads/{id}`
pub(super) async fn thread(
    State(server): State<AppState>,
    By(principal): By,
    Speaker(agent): Speaker,
    InPath(OneMessage { id }): InPath<OneMessage>,
    Query(From { cursor }): Query<From>,
) -> Result<Charged<Thread>, Refused> {
    let caller = reader(&principal, agent);
    let call = Call::GetThread(tools::GetThread {
        message_id: id,
        cursor,
    });
    match request::read(&server.services, &caller, call).await? {
        (Reply::Thread(thread), Some(charge)) => Ok(Charged(thread, charge)),
        _ => Err(unexpected()),
    }
}

/// `GET /api/v1/messages/{id}/receipt`
pub(super) async fn receipt(
    State(server): State<AppState>,
    By(principal): By,
    Speaker(agent): Speaker,
    InPath(OneMessage { id }): InPath<OneMessage>,
) -> RestAnswer<Tracked> {
    let caller = reader(&principal, agent);
    let call = Call::MessageStatus(tools::MessageStatus { message_id: id });
    match request::read(&server.services, &caller, call).await? {
        (Reply::Tracked(tracked), _) => Ok(Json(tracked)),
        _ => Err(unexpected()),
    }
}

/// `POST /api/v1/messages`
pub(super) async fn send(
    State(server): State<AppState>,
    acting: Acting,
    Body(body, _held): Body<tools::SendMessage>,
) -> Result<Created<SentOrCopies>, Refused> {
    match acting.perform(&server, Call::SendMessage(body)).await? {
        (allowance, Reply::Sent(sent)) => Ok(Created(allowance, SentOrCopies::One(Box::new(sent)))),
        (allowance, Reply::Copies(copies)) => Ok(Created(allowance, SentOrCopies::Many(copies))),
        _ => Err(unexpected()),
    }
}

/// `POST /api/v1/messages/{id}/reply`
pub(super) async fn reply(
    State(server): State<AppState>,
    acting: Acting,
    InPath(OneMessage { id }): InPath<OneMessage>,
    Body(body, _held): Body<ReplyBody>,
) -> Result<Created<Sent>, Refused> {
    let call = Call::Reply(tools::ReplyTo {
        message_id: id,
        response: body.response,
        status: body.status,
        requires_response: body.requires_response,
        queue_if_down: None,
    });
    match acting.perform(&server, call).await? {
        (allowance, Reply::Sent(sent)) => Ok(Created(allowance, sent)),
        _ => Err(unexpected()),
    }
}

/// `POST /api/v1/broadcasts`
pub(super) async fn broadcast(
    State(server): State<AppState>,
    acting: Acting,
    Body(body, _held): Body<tools::Broadcast>,
) -> Result<Created<Copies>, Refused> {
    match acting.perform(&server, Call::Broadcast(body)).await? {
        (allowance, Reply::Copies(copies)) => Ok(Created(allowance, copies)),
        _ => Err(unexpected()),
    }
}

/// `POST /api/v1/messages/acknowledge`
pub(super) async fn acknowledge(
    State(server): State<AppState>,
    acting: Acting,
    Body(body, _held): Body<tools::AckMessages>,
) -> RestAnswer<Acked> {
    match acting.perform(&server, Call::AckMessages(body)).await? {
        (_, Reply::Acked(acked)) => Ok(Json(acked)),
        _ => Err(unexpected()),
    }
}
