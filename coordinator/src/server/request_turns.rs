//! The turns of a request: those of its principal, or of requests without a valid credential.

use std::sync::Arc;

use crate::auth::{Principal, Turns};

/// The turns of a request.
#[derive(Debug, Clone)]
pub(super) enum RequestTurns {
    OfPrincipal(Arc<Principal>),
    OfStrangers(Arc<Turns>),
}

impl RequestTurns {
    /// Returns the turns of its principal, or those of requests without a valid credential.
    pub(super) fn turns(&self) -> &Turns {
        match self {
            Self::OfPrincipal(principal) => principal.turns(),
            Self::OfStrangers(turns) => turns,
        }
    }
}
