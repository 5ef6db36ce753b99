//! The entrance of every request: its credential is checked once, and it takes a place before any work, so that a flood of
//! requests does not keep others waiting.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Extensions, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::{join, login, wire};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;
use tokio::time::timeout;

use super::accept::CODE_BODY_MAX;
use super::credential::Credential;
use super::endpoint::{Refused, WholeBody, read_body};
use super::request_turns::RequestTurns;
use super::{AppState, MCP_PATH};
use crate::auth::{Principal, Turns};
use crate::request::{begin_request, begin_upgrade};
use crate::unfinished::Charge;

/// How many requests without a valid credential are answered at a time.
const STRANGERS_AT_ONCE: usize = 16;
/// How long one of them waits for its place.
const STRANGER_DEADLINE: Duration = Duration::from_secs(10);

/// The place of a request, until the head of its answer is there or its call takes another.
#[derive(Debug, Default)]
pub(super) struct Place {
    held: Mutex<Option<OwnedSemaphorePermit>>,
    /// The principal whose place is not taken yet.
    later: Mutex<Option<Arc<Principal>>>,
}

impl Place {
    /// Waits for a place of its principal, unless it has or had one.
    ///
    /// Errors: `RATE_LIMITED` if all of them stay taken.
    async fn take(&self) -> Result<(), Refusal> {
        let principal = lock(&self.later).take();
        if let Some(principal) = principal {
            self.hold(begin_request(&principal).await?).await;
        }
        Ok(())
    }

    async fn hold(&self, place: Option<OwnedSemaphorePermit>) {
        *lock(&self.held) = place;
        // Work that waits for nothing would give the place back before another request asks for one.
        yield_now().await;
    }

    /// Gives it to the next request.
    pub(super) fn leave(&self) {
        lock(&self.held).take();
    }
}

/// The principal of a request, until there is an answer. If this is dropped before, the client has left.
struct Unanswered(Option<Arc<Principal>>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(principal) = &self.0 {
            principal.note_abandoned();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entrance, with the places and turns of requests without a valid credential. Each principal has its own.
#[derive(Debug)]
pub(super) struct Entrance {
    server: AppState,
    strangers: Arc<Semaphore>,
    turns: Arc<Turns>,
}

impl Entrance {
    pub(super) fn new(server: &AppState) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            strangers: Arc::new(Semaphore::new(STRANGERS_AT_ONCE)),
            turns: Arc::new(Turns::of_strangers()),
        })
    }

    /// Waits for a place.
    ///
    /// Errors: `RATE_LIMITED` if all places stay taken.
    async fn place(&self, credential: &Credential, path: &str) -> Result<Place, Refusal> {
        let place = Place::default();
        match credential.principal() {
            Some(principal) if path == wire::PATH => {
                place.hold(begin_upgrade(principal).await?).await;
            }
            Some(principal) => {
                *lock(&place.later) = Some(Arc::clone(principal));
                if !takes_it_later(path) {
                    place.take().await?;
                }
            }
            None => {
                let free = Arc::clone(&self.strangers).acquire_owned();
                let free = timeout(STRANGER_DEADLINE, free).await;
                place.hold(free.map_err(|_| crowded())?.ok()).await;
            }
        }
        Ok(place)
    }
}

/// Returns whether a request takes its place later: with /mcp after its body, which may come slowly. The upgrades to links have
/// places of their own, because bodies of their principal that come slowly must not keep them out.
fn takes_it_later(path: &str) -> bool {
    let below = path.strip_prefix(MCP_PATH);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns the outcome once the request has its place: its body was read, or that is refused.
///
/// Errors: `RATE_LIMITED` if all places of its principal stay taken.
pub(super) async fn entered<T>(
    extensions: &Extensions,
    outcome: Result<T, Refusal>,
) -> Result<T, Refusal> {
    if let Some(place) = extensions.get::<Arc<Place>>() {
        place.take().await?;
    }
    outcome
}

fn crowded() -> Refusal {
    let error = "too many clients without a credential send requests";
    Refusal::new(ErrorCode::RateLimited, error).suggest("Try again in a few seconds.")
}

/// Returns the length of the head of a request, in bytes.
fn head_bytes(request: &Request) -> usize {
    let headers = request.headers().iter();
    let headers: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    request.uri().path().len() + request.uri().query().map_or(0, str::len) + headers
}

/// Returns whether the request brings a code instead of a credential.
fn has_code(request: &Request) -> bool {
    request.method() == Method::POST && matches!(request.uri().path(), join::PATH | login::PATH)
}

/// Checks the credential of a request, and has it wait for its place.
pub(super) async fn layer(
    State(entrance): State<Arc<Entrance>>,
    mut request: Request,
    next: Next,
) -> Response {
    // Boxed, because every request has this future for as long as it lasts.
    let (place, _held) = match Box::pin(pass(&entrance, &mut request)).await {
        Ok(passed) => passed,
        Err(refusal) => return Refused::from(refusal).into_response(),
    };
    let turns = match Credential::of(request.extensions()) {
        Ok(principal) => RequestTurns::OfPrincipal(principal),
        Err(_) => RequestTurns::OfStrangers(Arc::clone(&entrance.turns)),
    };
    drop(entrance);
    request.extensions_mut().insert(turns.clone());
    let mut unanswered = Unanswered(match &turns {
        RequestTurns::OfPrincipal(principal) => Some(Arc::clone(principal)),
        RequestTurns::OfStrangers(_) => None,
    });
    turns.turns().rest().await;
    let mut response = turns.turns().measure(next.run(request)).await;
    unanswered.0 = None;
    // A request that was refused before its place costs one too.
    if let Err(refusal) = Box::pin(place.take()).await {
        response = Refused::from(refusal).into_response();
    }
    place.leave();
    response
}

/// Returns the place of a request, and the charge of its body if that was read.
async fn pass(
    entrance: &Entrance,
    request: &mut Request,
) -> Result<(Arc<Place>, Option<Charge>), Refusal> {
    let credential = Credential::check(&entrance.server, request);
    let mut read = Ok(None);
    if credential.principal().is_none() && has_code(request) {
        // It may come slowly, and few strangers have a place at a time.
        read = read_body(&entrance.server, request, CODE_BODY_MAX)
            .await
            .map(|(body, held)| {
                request.extensions_mut().insert(WholeBody(body));
                held
            });
    }
    let room = credential.principal().map(|principal| principal.room());
    let counting = entrance
        .server
        .services
        .unfinished
        .take_head(room, head_bytes(request));
    // After that it has its turn anyway.
    let _ = timeout(STRANGER_DEADLINE, counting).await;
    let place = entrance.place(&credential, request.uri().path()).await?;
    let (place, held) = (Arc::new(place), read?);
    request.extensions_mut().insert(credential);
    request.extensions_mut().insert(Arc::clone(&place));
    Ok((place, held))
}
