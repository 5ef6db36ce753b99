//! Requests without a valid credential, such as those for pages: a few are answered at a time, so that a flood of them does not
//! keep the others waiting.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::{join, login};
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::timeout;

use super::endpoint::Refused;
use crate::auth::{Auth, Principal};
use crate::clock;

/// How many are answered at a time.
const AT_ONCE: usize = 16;
/// How long one waits for its place.
const PLACE_DEADLINE: Duration = Duration::from_secs(10);

/// The places of requests without a valid credential.
#[derive(Debug, Clone)]
pub(super) struct Strangers {
    auth: Arc<Auth>,
    places: Arc<Semaphore>,
}

impl Strangers {
    pub(super) fn new(auth: Arc<Auth>) -> Self {
        Self {
            auth,
            places: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Returns whether the request needs a place: not with a credential, which has places of its own, and not with a code, whose
    /// body may come slowly.
    fn is_one(&self, request: &Request) -> bool {
        let is_local = request.extensions().get::<Arc<Principal>>().is_some();
        let has_code = request.method() == Method::POST
            && matches!(request.uri().path(), join::PATH | login::PATH);
        !is_local && !has_code && self.auth.admit(request.headers(), clock::now()).is_err()
    }
}

/// Has a request wait for its place until the head of its answer is there.
pub(super) async fn layer(
    State(strangers): State<Strangers>,
    request: Request,
    next: Next,
) -> Response {
    if !strangers.is_one(&request) {
        return next.run(request).await;
    }
    match timeout(PLACE_DEADLINE, strangers.places.acquire()).await {
        Ok(_place) => {
            // Work that waits for nothing would give the place back before another request asks for one.
            yield_now().await;
            next.run(request).await
        }
        Err(_) => {
            let error = "too many clients without a credential send requests";
            let refusal =
                Refusal::new(ErrorCode::RateLimited, error).suggest("Try again in a few seconds.");
            Refused::from(refusal).into_response()
        }
    }
}
