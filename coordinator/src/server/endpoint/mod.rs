//! What every path of REST has in common: one table of routes and access, from which the description is made as well.

mod answer;
mod document;
mod extract;

use std::sync::Arc;

use aide::axum::ApiRouter;
use aide::axum::routing::ApiMethodRouter;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use c3po_shared::refusal::{ErrorCode, Refusal};

pub(super) use self::answer::{Media, Plain, Refused, RestAnswer, described, retry_after, status_of};
pub(super) use self::document::Description;
pub(super) use self::extract::{Body, By, InPath, MayLook, Query, Speaker, read_body};
use super::{AppState, guard};
use crate::auth::{Right, Stay};
use crate::request::check_right;

/// Who may ask for something, and how long it goes on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    /// What a credential has to allow; `None` if no credential is needed.
    right: Option<Right>,
    /// Whether it is done to its end though the client has gone or the credential has ended.
    lasts: bool,
}

impl Access {
    /// No credential is needed.
    pub(super) const OPEN: Self = Self { right: None, lasts: false };

    /// A credential is needed that allows this.
    pub(super) const fn by(right: Right) -> Self {
        Self { right: Some(right), lasts: false }
    }

    /// Once begun it is done to its end, in a task of its own, also if the client disconnects or ends the very credential
    /// that it uses: whoever rotates a key gets its new text.
    pub(super) const fn lasting(self) -> Self {
        Self { lasts: true, ..self }
    }
}

/// The table of paths.
pub(super) struct Table {
    server: AppState,
    router: ApiRouter<AppState>,
}

impl Table {
    /// Begins a table.
    pub(super) fn new(server: &AppState) -> Self {
        document::begin();
        Self { server: server.clone(), router: ApiRouter::new() }
    }

    /// Adds one method of a path.
    pub(super) fn row(self, path: &str, access: Access, summary: &str, route: ApiMethodRouter<AppState>) -> Self {
        let route = route.route_layer(middleware::from_fn_with_state((self.server.clone(), access), admit));
        let anybody = self.server.auth.anybody();
        let router = self.router.api_route_with(path, route, |mut item| {
            document::describe(item.inner_mut(), path, summary, access.right, anybody);
            item
        });
        Self { router, ..self }
    }

    /// Returns the routes, of which one answers with the description of them all.
    pub(super) fn finish(self) -> Router<AppState> {
        document::finish(self.router)
    }
}

/// Admits a request by the row of its path, before anything of its body is read.
async fn admit(State((server, access)): State<(AppState, Access)>, mut request: Request, next: Next) -> Response {
    let stay = match access.right.map(|right| permit(&server, &mut request, right)).transpose() {
        Ok(stay) => stay,
        Err(refusal) => return Refused::from(refusal).into_response(),
    };
    let principal = stay.as_ref().map(|stay| Arc::clone(stay.principal()));
    // The request counts for its key until it is answered.
    let work = async move {
        let _stay = stay;
        next.run(request).await
    };
    let done = if access.lasts {
        server.tasks.spawn(work).await.map_err(|error| ended_early(&error))
    } else if let Some(principal) = principal {
        principal.unless_ended(work).await
    } else {
        Ok(work.await)
    };
    done.unwrap_or_else(|refusal| Refused::from(refusal).into_response())
}

fn permit(server: &AppState, request: &mut Request, right: Right) -> Result<Arc<Stay>, Refusal> {
    let stay = guard(server, request)?;
    // The audit has no entries about requests that only read.
    if *request.method() == Method::GET {
        stay.principal().check(right)?;
    } else {
        check_right(&server.office, stay.principal(), right)?;
    }
    Ok(stay)
}

fn ended_early(error: &tokio::task::JoinError) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("it ended early: {error}"))
}
