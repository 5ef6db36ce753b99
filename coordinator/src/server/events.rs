//! `GET /api/v1/events`: pages of events, and the stream of server-sent events.

use std::sync::Arc;

use aide::generate::GenContext;
use aide::openapi::{Operation, Response as Described, StatusCode as Code};
use aide::operation::OperationOutput;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use c3po_shared::audit::{AuditPage, Entry, LogQuery};
use c3po_shared::event::StatePart;
use c3po_shared::ids::AgentId;
use c3po_shared::refusal::Refusal;
use futures_util::{Stream, stream};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::AppState;
use super::endpoint::{By, Charged, Query, Refused};
use crate::auth::Principal;
use crate::clock;
use crate::request::{self, Asking, Events, NextEvents, Services};
use crate::store::AGENTS_STEP;

/// The media type of server-sent events.
const EVENT_STREAM: &str = "text/event-stream";
/// The header in which a client that comes back sends the id of the last event that it received.
const LAST_EVENT_ID: &str = "last-event-id";
/// The first text of a stream: its client waits for a second before it comes back.
const BEGIN: &str = "retry: 1000\n\n";
/// The text that keeps a silent connection open.
const COMMENT: &str = ": quiet\n\n";

/// A page or a stream.
#[derive(Debug)]
pub(super) enum PageOrStream {
    Page(Charged<AuditPage>),
    Stream(Body),
}

impl OperationOutput for PageOrStream {
    type Inner = AuditPage;

    fn inferred_responses(
        context: &mut GenContext,
        operation: &mut Operation,
    ) -> Vec<(Option<Code>, Described)> {
        Json::<AuditPage>::inferred_responses(context, operation)
    }
}

impl IntoResponse for PageOrStream {
    fn into_response(self) -> Response {
        match self {
            Self::Page(page) => page.into_response(),
            Self::Stream(body) => {
                let headers = [(CONTENT_TYPE, EVENT_STREAM), (CACHE_CONTROL, "no-store")];
                (headers, body).into_response()
            }
        }
    }
}

/// `GET /api/v1/events`
pub(super) async fn events(
    State(server): State<AppState>,
    By(principal): By,
    headers: HeaderMap,
    Query(query): Query<LogQuery>,
) -> Result<PageOrStream, Refused> {
    let wants_stream = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| {
            accept.contains(EVENT_STREAM) && !accept.contains("application/json")
        });
    if !wants_stream {
        let page = request::events_page(&server.services, &principal, &query);
        let (page, charge) = page.await?;
        return Ok(PageOrStream::Page(Charged(page, charge)));
    }
    let query = LogQuery {
        after: last_event(&headers)?.or(query.after),
        ..query
    };
    let shows_state = query.state == Some(1);
    let services = Arc::clone(&server.services);
    let events = Events::begin(Arc::clone(&services), Arc::clone(&principal), query).await?;
    let reader = EventReader {
        services,
        principal,
        stop: server.stop.clone(),
        step: if shows_state {
            StreamStep::State(None)
        } else {
            StreamStep::Begin
        },
        asking: None,
        events,
    };
    Ok(PageOrStream::Stream(Body::from_stream(texts(reader))))
}

fn last_event(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(value) = headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let position = value.to_str().ok().and_then(|id| id.parse().ok());
    position
        .map(Some)
        .ok_or_else(|| Refusal::invalid("Last-Event-ID must be the id of an event"))
}

/// A client that reads a stream.
struct EventReader {
    services: Arc<Services>,
    principal: Arc<Principal>,
    stop: CancellationToken,
    step: StreamStep,
    /// The agents that wait for people, once they were read for the state.
    asking: Option<Asking>,
    events: Events,
}

/// The next part of the stream.
enum StreamStep {
    /// Agents after this one.
    State(Option<AgentId>),
    /// The beginning of a stream without agents.
    Begin,
    /// Events.
    Follow,
}

/// Returns the parts of the stream, each made when the connection has taken the one before. It ends with the credential and
/// with the coordinator.
fn texts(reader: EventReader) -> impl Stream<Item = Result<String, Refusal>> {
    stream::try_unfold(reader, |mut reader| async move {
        let (stop, principal) = (reader.stop.clone(), Arc::clone(&reader.principal));
        let text = tokio::select! {
            () = stop.cancelled() => return Ok(None),
            () = principal.ended() => return Ok(None),
            text = principal.turns().measure(reader.next()) => text?,
        };
        Ok(Some((text, reader)))
    })
}

impl EventReader {
    async fn next(&mut self) -> Result<String, Refusal> {
        match &self.step {
            StreamStep::Begin => {
                self.step = StreamStep::Follow;
                Ok(BEGIN.to_owned())
            }
            StreamStep::State(after) => {
                let agents = self
                    .services
                    .agents(&self.principal, after.as_ref(), AGENTS_STEP)
                    .await?;
                let more = agents.len() == AGENTS_STEP;
                self.step = match agents.last() {
                    Some(last) if more => StreamStep::State(Some(last.id.clone())),
                    _ => StreamStep::Follow,
                };
                let asking = match self.asking.take() {
                    Some(asking) => asking,
                    None => Asking::read(&self.services, &self.principal).await?,
                };
                let now = clock::now();
                let agents = agents.iter().map(|agent| asking.record(agent, now));
                let agents = agents.collect();
                self.asking = more.then_some(asking);
                Ok(frame(
                    self.events.position(),
                    "state",
                    &StatePart { agents, more },
                ))
            }
            StreamStep::Follow => Ok(match self.events.next().await? {
                NextEvents::Events(entries) => entries.iter().map(event).collect(),
                NextEvents::Reset(position) => {
                    frame(position, "reset", &serde_json::json!({"event": "reset"}))
                }
                NextEvents::Quiet => COMMENT.to_owned(),
            }),
        }
    }
}

fn event(entry: &Entry) -> String {
    frame(entry.position, entry.event.as_str(), entry)
}

/// Returns one event. JSON has no line breaks, so its data is one line.
fn frame(id: u64, name: &str, data: &impl Serialize) -> String {
    let data = serde_json::to_string(data).expect("an event can be written");
    format!("id: {id}\nevent: {name}\ndata: {data}\n\n")
}
