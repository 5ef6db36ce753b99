//! Reasons for the end of a link.

use super::connection::Gone;

/// Why a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The proxy sent a goodbye.
    Goodbye,
    /// The connection broke or was silent for too long.
    Gone,
    /// Another connection or session holds the agent.
    TakenOver,
    /// The coordinator is stopping.
    Draining,
    /// Its credential has ended.
    Revoked,
}

impl EndReason {
    /// Returns its word in the audit.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Goodbye => "goodbye",
            Self::Gone => "gone",
            Self::TakenOver => "taken_over",
            Self::Revoked => "revoked",
            Self::Draining => "draining",
        }
    }
}

impl From<Gone> for EndReason {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}
