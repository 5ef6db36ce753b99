//! Shared parts of REST paths: one table of routes and access rules, which also yields the OpenAPI document.

mod answer;
mod document;
mod extract;
mod method;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use c3po_shared::refusal::{ErrorCode, Refusal};

pub(super) use self::answer::{
    Charged, Media, Plain, Refused, RestAnswer, described, retry_after, status_of,
};
pub(super) use self::document::Description;
use self::document::Row;
use self::extract::ReadAs;
pub(super) use self::extract::{Body, By, InPath, MayLook, Query, Speaker, WholeBody, read_body};
use self::method::Method;
pub(super) use self::method::{delete, get, post};
use super::written::until_written;
use super::{AppState, envelope, guard};
use crate::auth::{Right, Stay, logins};
use crate::request::{check_reader, check_right};

/// The access rule of a path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    needs: Needs,
    /// Whether the request is completed even if the client disconnects or the credential ends.
    lasts: bool,
}

/// The credential that a path needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// None.
    Nothing,
    /// Any valid one, or none on an open coordinator.
    Admission,
    /// One with this right.
    Right(Right),
}

impl Access {
    /// No credential is required.
    pub(super) const OPEN: Self = Self::of(Needs::Nothing);

    /// Every client that is admitted.
    pub(super) const ADMITTED: Self = Self::of(Needs::Admission);

    /// Returns the rule for a credential with this right.
    pub(super) const fn by(right: Right) -> Self {
        Self::of(Needs::Right(right))
    }

    const fn of(needs: Needs) -> Self {
        Self {
            needs,
            lasts: false,
        }
    }

    /// Runs the request in its own task, so that it completes even if the client disconnects or revokes the credential in
    /// use. So a client that rotates its own key gets the new secret.
    pub(super) const fn lasting(self) -> Self {
        Self {
            lasts: true,
            ..self
        }
    }
}

/// The table of routes.
pub(super) struct Table {
    server: AppState,
    router: Router<AppState>,
    rows: Vec<Row>,
}

impl Table {
    /// Begins a table.
    pub(super) fn new(server: &AppState) -> Self {
        Self {
            server: server.clone(),
            router: Router::new(),
            rows: Vec::new(),
        }
    }

    /// Adds one method of a path.
    pub(super) fn row(
        mut self,
        path: &str,
        access: Access,
        summary: &'static str,
        method: Method,
    ) -> Self {
        let admission = middleware::from_fn_with_state((self.server.clone(), access), admit);
        let handler = method
            .handler
            .route_layer(middleware::from_fn(envelope::layer))
            .route_layer(admission);
        self.rows.push(Row {
            path: path.to_owned(),
            summary,
            needs: access.needs,
            describe: method.describe,
        });
        let router = self.router.route(path, handler);
        Self { router, ..self }
    }

    /// Adds one method of a path below `/api/`, and the same of REST v1, whose answers have an envelope.
    pub(super) fn row_with_v1(
        self,
        path: &str,
        access: Access,
        summary: &'static str,
        method: Method,
    ) -> Self {
        let of_v1 = path.replacen("/api/", envelope::PREFIX, 1);
        self.row(path, access, summary, method.clone())
            .row(&of_v1, access, summary, method)
    }

    /// Returns the routes, one of which serves the document about all of them.
    pub(super) fn finish(self) -> Router<AppState> {
        let description = Description::of(self.rows);
        self.router.layer(Extension(Arc::new(description)))
    }
}

/// Admits a request by the access rule of its path, before any of its body is read.
async fn admit(
    State((server, access)): State<(AppState, Access)>,
    mut request: Request,
    next: Next,
) -> Response {
    let stay = match permit(&server, &mut request, access.needs).await {
        Ok(stay) => stay,
        Err(refusal) => return Refused::from(refusal).into_response(),
    };
    let principal = stay.as_ref().map(|stay| Arc::clone(stay.principal()));
    let services = Arc::clone(&server.services);
    let read_as = Arc::new(ReadAs::default());
    request.extensions_mut().insert(Arc::clone(&read_as));
    let work = async move {
        let mut response = next.run(request).await;
        if response.status().is_success()
            && let Some((reader, agent)) = read_as.0.get()
            && let Err(refusal) = check_reader(&services, reader, agent).await
        {
            response = Refused::from(refusal).into_response();
        }
        match stay {
            Some(stay) => until_written(&services.unfinished, stay, response)
                .unwrap_or_else(|refusal| Refused::from(refusal).into_response()),
            None => response,
        }
    };
    let done = if access.lasts {
        server
            .tasks
            .spawn(work)
            .await
            .map_err(|error| ended_early(&error))
    } else if let Some(principal) = principal {
        principal.unless_ended(work).await
    } else {
        Ok(work.await)
    };
    done.unwrap_or_else(|refusal| Refused::from(refusal).into_response())
}

/// Returns the counted request, or `None` if the path needs no credential.
async fn permit(
    server: &AppState,
    request: &mut Request,
    needs: Needs,
) -> Result<Option<Arc<Stay>>, Refusal> {
    if needs == Needs::Nothing {
        return Ok(None);
    }
    let stay = guard(server, request)?;
    let (principal, only_reads) = (stay.principal(), request.method().is_safe());
    if !only_reads {
        logins::vouch(server.services.store.as_ref(), principal).await?;
    }
    let checked = match needs {
        // Requests that only read leave no entry in the audit.
        Needs::Right(right) if only_reads => principal.check(right),
        Needs::Right(right) => check_right(&server.services, principal, right),
        Needs::Nothing | Needs::Admission => Ok(()),
    };
    checked.map_err(|refusal| principal.refused(refusal))?;
    Ok(Some(stay))
}

fn ended_early(error: &tokio::task::JoinError) -> Refusal {
    Refusal::new(ErrorCode::Internal, format!("it ended early: {error}"))
}
