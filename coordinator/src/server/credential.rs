//! The credential of a request, which is checked once.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::Extensions;
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::AppState;
use crate::auth::Principal;
use crate::clock;

/// The principal of a request, or why it has none.
#[derive(Debug, Clone)]
pub(super) struct Credential(Result<Arc<Principal>, Box<Refusal>>);

impl Credential {
    /// Checks the credential of a request. A client of the control socket has its principal already.
    pub(super) fn check(server: &AppState, request: &Request) -> Self {
        let local = request.extensions().get::<Arc<Principal>>().cloned();
        let admitted = local.map_or_else(|| server.auth.admit(request.headers(), clock::now()), Ok);
        Self(admitted.map_err(Box::new))
    }

    /// Returns the principal, if the credential is valid.
    pub(super) fn principal(&self) -> Option<&Arc<Principal>> {
        self.0.as_ref().ok()
    }

    /// Returns the principal of a request that has passed the entrance.
    pub(super) fn of(extensions: &Extensions) -> Result<Arc<Principal>, Refusal> {
        let unchecked = || Refusal::new(ErrorCode::Internal, "the request was not checked");
        let checked = extensions.get::<Self>().ok_or_else(unchecked)?;
        checked.0.clone().map_err(|refusal| *refusal)
    }
}
