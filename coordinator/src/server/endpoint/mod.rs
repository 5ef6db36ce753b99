//! One thing that REST can do: its route and its description, both of one value, so that neither can say what the other does not.

mod answers;
mod document;
mod inputs;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, MethodRouter, on};
use c3po_shared::refusal::{ErrorCode, Refusal};
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

pub(super) use self::answers::{Answer, Answers, Media, Plain};
pub(super) use self::document::document;
pub(super) use self::inputs::{Body, By, InPath, Input, Inputs, Query, Speaker};
use super::Server;
use crate::auth::{Principal, Right};
use crate::request::check_right;

/// What whoever asks for anything may hear instead.
const ALWAYS: [ErrorCode; 2] = [ErrorCode::CoordDown, ErrorCode::Internal];
/// What whoever needs a credential may hear besides.
const GUARDED: [ErrorCode; 4] =
    [ErrorCode::Unauthorized, ErrorCode::Forbidden, ErrorCode::RateLimited, ErrorCode::StoreUnavailable];

type Outcome = Pin<Box<dyn Future<Output = Result<Response, Refusal>> + Send>>;

/// A method of a path.
pub(super) struct Endpoint {
    method: Method,
    path: &'static str,
    summary: &'static str,
    /// What a credential has to allow; `None` where none is asked for.
    right: Option<Right>,
    inputs: Inputs,
    answers: Answers,
    /// What it may refuse with.
    refusals: Vec<ErrorCode>,
    /// Whether it is done to its end where whoever asked has gone, or the credential ends.
    lasts: bool,
    /// Where its answer leads: which other one takes a member of it, and as what.
    links: Vec<Link>,
    /// Reads a request and does what it asks for, if so to its end.
    perform: Arc<dyn Fn(Server, Request, bool) -> Outcome + Send + Sync>,
}

/// A member of an answer that another endpoint takes in its path.
#[derive(Debug)]
struct Link {
    method: Method,
    path: &'static str,
    member: &'static str,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Endpoint {
    /// Describes a method of a path by what does it: its types say what it takes and answers.
    pub(super) fn new<I, A, F>(
        (method, path, summary): (Method, &'static str, &'static str),
        perform: impl Fn(Server, I) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        I: Input + 'static,
        A: Answer,
        F: Future<Output = Result<A, Refusal>> + Send,
    {
        let mut inputs = Inputs::new(path);
        I::describe(&mut inputs);
        let mut answers = Answers::default();
        A::describe(&mut answers);
        let refusals = [&ALWAYS[..], inputs.refusals()].concat();
        let perform = Arc::new(move |server: Server, mut request: Request, lasts: bool| -> Outcome {
            let perform = perform.clone();
            Box::pin(async move {
                let (principal, tasks) = (request.extensions().get::<Arc<Principal>>().cloned(), server.tasks.clone());
                // Not one byte is read on a credential that has ended, also of what is then done to its end.
                let read = while_admitted(principal.as_deref(), I::read(&server, &mut request));
                // What is there is read; what never comes holds up no stop.
                let input = server.stop.run_until_cancelled(read).await.ok_or_else(stopping)???;
                let done = async move { Ok(perform(server, input).await?.respond()) };
                if lasts { to_the_end(&tasks, done).await } else { while_admitted(principal.as_deref(), done).await? }
            })
        });
        Self { method, path, summary, right: None, inputs, answers, refusals, lasts: false, links: Vec::new(), perform }
    }

    /// Asks for a credential that allows that.
    pub(super) fn needs(mut self, right: Right) -> Self {
        self.right = Some(right);
        self.refuses(&GUARDED)
    }

    /// Says what else it may refuse with.
    pub(super) fn refuses(mut self, codes: &[ErrorCode]) -> Self {
        self.refusals.extend(codes);
        self
    }

    /// Has it done to its end once it was read, in a task of its own, so that nothing is left half-way where whoever asked has
    /// gone, or ends the very credential that is used: a key that gets another text is told it.
    pub(super) fn lasting(mut self) -> Self {
        self.lasts = true;
        self
    }

    /// Says which other endpoint takes a member of its answer in its path.
    pub(super) fn leads_to(mut self, method: Method, path: &'static str, member: &'static str) -> Self {
        self.links.push(Link { method, path, member });
        self
    }

    /// Returns whether a credential is asked for.
    pub(super) fn is_guarded(&self) -> bool {
        self.right.is_some()
    }

    /// Returns the route.
    pub(super) fn route(&self) -> (&'static str, MethodRouter<Server>) {
        let filter = MethodFilter::try_from(self.method.clone()).expect("the table has usual methods only");
        let (right, refusals, perform) = (self.right, self.refusals.clone(), Arc::clone(&self.perform));
        let (lasts, shown) = (self.lasts, format!("{self:?}"));
        let handler = move |State(server): State<Server>, request: Request| {
            let outcome = match right.map_or(Ok(()), |right| may(&server, &request, right)) {
                Ok(()) => perform(server, request, lasts),
                Err(refusal) => Box::pin(std::future::ready(Err(refusal))),
            };
            let (refusals, shown) = (refusals.clone(), shown.clone());
            async move {
                outcome.await.unwrap_or_else(|refusal| {
                    debug_assert!(refusals.contains(&refusal.code), "{shown} is not described to refuse: {refusal}");
                    refused(&refusal)
                })
            }
        };
        (self.path, on(filter, handler))
    }
}

fn may(server: &Server, request: &Request, right: Right) -> Result<(), Refusal> {
    check_right(&server.office, admitted(request)?, right)
}

/// Returns what some work comes to, unless the credential ends before that.
async fn while_admitted<T>(principal: Option<&Principal>, work: impl Future<Output = T>) -> Result<T, Refusal> {
    match principal {
        Some(principal) => principal.unless_ended(work).await,
        None => Ok(work.await),
    }
}

fn stopping() -> Refusal {
    Refusal::new(ErrorCode::CoordDown, "the coordinator is stopping, and had not heard all of this; nothing was done")
        .detail("applied", "no")
}

/// Has something done in a task of its own, which goes on where nobody waits for it any more.
async fn to_the_end(
    tasks: &TaskTracker,
    work: impl Future<Output = Result<Response, Refusal>> + Send + 'static,
) -> Result<Response, Refusal> {
    let ended_early = |error| Err(Refusal::new(ErrorCode::Internal, format!("it ended early: {error}")));
    tasks.spawn(work).await.unwrap_or_else(ended_early)
}

fn admitted(request: &Request) -> Result<&Arc<Principal>, Refusal> {
    let principal = request.extensions().get::<Arc<Principal>>();
    principal.ok_or_else(|| Refusal::new(ErrorCode::Internal, "nobody was admitted"))
}

/// Returns the refusal as REST says it, with the HTTP status of its code.
pub(super) fn refused(refusal: &Refusal) -> Response {
    refused_as(status_of(refusal.code), refusal)
}

/// Returns the refusal as REST says it, with another status.
pub(super) fn refused_as(status: StatusCode, refusal: &Refusal) -> Response {
    let mut body = json!(refusal);
    body["code"] = Value::from(word_of(refusal.code));
    (status, axum::Json(body)).into_response()
}

/// Returns the HTTP status of a refusal with that code.
pub(super) fn status_of(code: ErrorCode) -> StatusCode {
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// REST keeps the older name of the code that says that the store is away.
fn word_of(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::StoreUnavailable => "REDIS_UNAVAILABLE",
        code => code.as_str(),
    }
}
