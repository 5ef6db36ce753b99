//! The REST paths for hooks and monitors: health, pending, agents, unregister, and the metrics.

use std::sync::Arc;

use aide::generate::GenContext;
use aide::openapi::{Operation, Response as Described, StatusCode as Code};
use aide::operation::OperationOutput;
use axum::Json;
use axum::body::Body as HttpBody;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use c3po_shared::agent::AgentRecord;
use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::{PAGE_DEFAULT, PAGE_MAX};
use c3po_shared::message::Message;
use c3po_shared::refusal::{ErrorCode, Refusal};
use futures_util::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::checkup::Condition;
use super::endpoint::{
    By, Charged, MayLook, Media, Plain, Query, Refused, RestAnswer, Speaker, described,
};
use super::written::Paid;
use super::{AppState, description};
use crate::clock;
use crate::request::{Asking, begin_call, begin_read, note_page, placed, room_for_texts};
use crate::store::{Agent, Selection};
use crate::unfinished::Charge;

/// The limit of message bytes in a page of an inbox, so that no request loads a whole inbox into memory.
const PAGE_BYTES: usize = 256 << 10;
/// How many agents of the list are read at once.
const LISTED_AT_ONCE: usize = 32;
/// The bytes of one part of the list. Each client that reads slowly holds as many, and one record at most.
const LISTED_BYTES: usize = 32 << 10;
/// The charge of a list, in bytes: one part, and the buffers of the connection.
const LISTED_CHARGE: usize = 48 << 10;

/// The health of the coordinator.
#[derive(Debug)]
pub(super) enum Health {
    Well(Well),
    Unwell(Unwell),
}

/// The store responds.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Well {
    /// Always `ok`.
    status: &'static str,
    /// How many agents are connected to this coordinator.
    agents_online: usize,
    /// The clocks of hosts that differ from the coordinator's, the largest difference first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    clocks: Vec<Clock>,
    /// Whether the policy file differs from the rules in force; absent if it does not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    policy_outdated: bool,
    /// Whether pushes to people fail, or their settings are invalid; absent if not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pushes_fail: bool,
    /// `full` if the embedded store refuses new messages, otherwise absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    store: Option<&'static str>,
}

/// The clock of a host that differs from the coordinator's.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Clock {
    /// An agent on that host. Absent for clients that may not list agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_id: Option<AgentId>,
    /// By how many seconds it was ahead at the agent's last heartbeat; negative if it was behind.
    seconds: i64,
}

/// The store does not respond.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Unwell {
    /// Always `error`.
    status: &'static str,
    /// The problem.
    error: &'static str,
    /// Always `REDIS_UNAVAILABLE`.
    code: &'static str,
    /// The suggested next step.
    suggestion: &'static str,
}

impl OperationOutput for Health {
    type Inner = Well;

    fn inferred_responses(
        context: &mut GenContext,
        _: &mut Operation,
    ) -> Vec<(Option<Code>, Described)> {
        let schemas = &mut context.schema;
        let well = described(
            "It is healthy",
            "application/json",
            schemas.subschema_for::<Well>(),
        );
        let unwell = described(
            "It cannot reach its store",
            "application/json",
            schemas.subschema_for::<Unwell>(),
        );
        vec![
            (Some(Code::Code(200)), well),
            (Some(Code::Code(500)), unwell),
        ]
    }
}

impl IntoResponse for Health {
    fn into_response(self) -> Response {
        match self {
            Self::Well(well) => Json(well).into_response(),
            Self::Unwell(unwell) => {
                (StatusCode::INTERNAL_SERVER_ERROR, Json(unwell)).into_response()
            }
        }
    }
}

/// `GET /api/health`
pub(super) async fn health(State(server): State<AppState>, MayLook(may_look): MayLook) -> Health {
    let services = &server.services;
    let checking = server
        .checkup
        .of(&*services.store, &services.presence, &server.http_sessions);
    let checked = checking.await;
    if checked.condition == Condition::Unwell {
        return Health::Unwell(Unwell {
            status: "error",
            error: "Store connection failed",
            code: "REDIS_UNAVAILABLE",
            suggestion: ErrorCode::StoreUnavailable.suggestion(),
        });
    }
    let clocks = checked.clocks.iter().map(|(agent, ahead_ms)| Clock {
        agent_id: may_look.then(|| agent.clone()),
        seconds: (ahead_ms + 500).div_euclid(1_000),
    });
    let policy_outdated = services.policies.outdated().is_some();
    let pushes_fail = server.notifier.fails();
    Health::Well(Well {
        status: "ok",
        agents_online: checked.agents_online,
        clocks: clocks.collect(),
        policy_outdated,
        pushes_fail,
        store: (checked.condition == Condition::Full).then_some("full"),
    })
}

/// The query for a page of an inbox.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PageQuery {
    /// The largest number of messages.
    #[schemars(range(min = 1, max = PAGE_MAX), extend("default" = PAGE_DEFAULT))]
    limit: Option<usize>,
}

/// A part of an inbox.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct PendingMessages {
    /// How many messages are in the inbox.
    count: usize,
    /// The oldest of them.
    messages: Vec<Message>,
}

/// `GET /api/pending`
pub(super) async fn pending(
    State(server): State<AppState>,
    By(principal): By,
    Speaker(agent): Speaker,
    Query(page): Query<PageQuery>,
) -> Result<Charged<PendingMessages>, Refused> {
    let limit = page.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(
            Refusal::invalid(format!("limit is {limit}; it must be from 1 to {PAGE_MAX}")).into(),
        );
    }
    let charge = room_for_texts(&server.services, &principal).await?;
    let _reading = begin_read(&principal).await?;
    let store = server.services.store.as_ref();
    let selection = Selection {
        limit,
        bytes: PAGE_BYTES,
        ..Selection::default()
    };
    let (placed, pending) =
        futures_util::try_join!(placed(store, &agent, selection), store.pending(&agent))?;
    note_page(&principal, &placed);
    let messages = placed.into_iter().map(|placed| placed.message).collect();
    Ok(Charged(
        PendingMessages {
            count: pending.count,
            messages,
        },
        charge,
    ))
}

/// All agents as a JSON array. They are read while the client reads, so that a slow client costs little memory.
#[derive(Debug)]
pub(super) struct AgentArray(HttpBody, Option<Charge>);

impl OperationOutput for AgentArray {
    type Inner = Vec<AgentRecord>;

    fn inferred_responses(
        context: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<Code>, Described)> {
        Json::<Vec<AgentRecord>>::inferred_responses(context, operation)
    }
}

impl IntoResponse for AgentArray {
    fn into_response(self) -> Response {
        let Self(body, held) = self;
        Paid::mark(
            held,
            ([(CONTENT_TYPE, "application/json")], body).into_response(),
        )
    }
}

/// `GET /api/agents`: all agents, for people.
pub(super) async fn agents(
    State(server): State<AppState>,
    By(principal): By,
) -> Result<AgentArray, Refused> {
    let held = server
        .services
        .unfinished
        .room_for_answer(principal.room(), LISTED_CHARGE)?;
    let first = server
        .services
        .agents(&principal, None, LISTED_AT_ONCE)
        .await?;
    let asking = Arc::new(Asking::read(&server.services, &principal).await?);
    let first = Reading::Page("[", first, LISTED_AT_ONCE);
    let parts = stream::try_unfold(first, move |reading| {
        let (server, principal) = (server.clone(), Arc::clone(&principal));
        let asking = Arc::clone(&asking);
        async move {
            let (begin, page, limit) = match reading {
                Reading::Page(begin, page, limit) => (begin, page, limit),
                Reading::After(..) if principal.has_ended() => return Err(principal.ending()),
                Reading::After(last, limit) => {
                    let services = &server.services;
                    let page = services.agents(&principal, Some(&last), limit).await?;
                    (",", page, limit)
                }
                Reading::Ended => return Ok(None),
            };
            let (text, next) = part(begin, &page, limit, &asking);
            Ok::<_, Refusal>(Some((text, next)))
        }
    });
    Ok(AgentArray(HttpBody::from_stream(parts), held))
}

/// The state of a list that is being read.
enum Reading {
    /// The first page, behind that text, and how many agents were asked for.
    Page(&'static str, Vec<Agent>, usize),
    /// The last agent of the previous part, and how many agents to ask for.
    After(AgentId, usize),
    Ended,
}

/// Returns a part of a JSON array, and how to read on. It begins with that text, unless there are no agents after the first
/// page, and ends with the agent that makes it long enough. The next page holds at most twice as many agents as that took.
fn part(begin: &'static str, page: &[Agent], limit: usize, asking: &Asking) -> (String, Reading) {
    let (now, mut text, mut next) = (clock::now(), begin.to_owned(), Reading::Ended);
    if begin == "," && page.is_empty() {
        text.clear();
    }
    for (index, agent) in page.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        text +=
            &serde_json::to_string(&asking.record(agent, now)).expect("a record can be written");
        let count = index + 1;
        if text.len() >= LISTED_BYTES || count == limit {
            next = Reading::After(agent.id.clone(), LISTED_AT_ONCE.min(2 * count));
            break;
        }
    }
    if matches!(next, Reading::Ended) {
        text.push(']');
    }
    (text, next)
}

/// The price of unregistering an agent, in calls besides the request: SQLite looks for its questions in the inbox of people.
const UNREGISTER_CALLS: u32 = 8;

/// The outcome of unregistering an agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Unregistered {
    /// Always `ok`.
    status: &'static str,
    /// Whether it was registered, in a sentence.
    message: String,
}

/// `POST /api/unregister`
pub(super) async fn unregister(
    State(server): State<AppState>,
    By(principal): By,
    Speaker(agent): Speaker,
) -> RestAnswer<Unregistered> {
    let _place = begin_call(&principal).await?;
    if agent.is_human() {
        let error = "human is every person's, and stays";
        return Err(Refusal::new(ErrorCode::Conflict, error).into());
    }
    let known = server.services.store.agent(&agent).await?;
    let linked = known.is_some_and(|known| {
        known.is_online(clock::now()) && !server.http_sessions.holds(&agent, known.instance)
    });
    if linked {
        let error = format!("{agent} is held by a connected session");
        let refusal = Refusal::new(ErrorCode::Conflict, error)
            .suggest("End that session; its proxy then unregisters it.");
        return Err(refusal.into());
    }
    let entry = Entry::new(Event::SessionEnded).by(&agent);
    let entry = principal.sign(entry.verb("unregistered"));
    let store = &server.services.store;
    principal.note_calls(UNREGISTER_CALLS);
    let known = store
        .unregister(&agent, principal.own_host(), Some(&entry))
        .await?;
    let said = if known {
        "unregistered"
    } else {
        "was not registered"
    };
    server.http_sessions.forget(&agent);
    Ok(Json(Unregistered {
        status: "ok",
        message: format!("Agent '{agent}' {said}"),
    }))
}

/// The text format of Prometheus.
#[derive(Debug)]
pub(super) struct OpenMetrics;

impl Media for OpenMetrics {
    const TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
}

/// `GET /metrics`
pub(super) async fn metrics(
    State(server): State<AppState>,
    By(principal): By,
) -> Plain<OpenMetrics> {
    // Without a place or the store, the text has the latest fill.
    if let Ok(_place) = begin_call(&principal).await
        && let Ok(Some(fill)) = server.services.store.fill().await
    {
        server.services.metrics.fill(&fill);
    }
    let presence = &server.services.presence;
    let text = server
        .services
        .metrics
        .text(presence.connected(), presence.listening());
    Plain::new(text)
}

/// The fallback for unknown paths.
pub(super) async fn nowhere(uri: Uri) -> Refused {
    let error = format!("there is no path {}", uri.path());
    Refused::with(StatusCode::NOT_FOUND, unheard_of(error))
}

/// The fallback for methods that a path does not have. The header `Allow` lists the available ones.
pub(super) async fn no_such_method(uri: Uri) -> Refused {
    let error = format!("this method is not supported by {}", uri.path());
    Refused::with(StatusCode::METHOD_NOT_ALLOWED, unheard_of(error))
}

fn unheard_of(error: String) -> Refusal {
    let suggestion = format!(
        "See {} for all paths besides /mcp and /acp.",
        description::PATH
    );
    Refusal::new(ErrorCode::NotSupported, error).suggest(suggestion)
}
