//! How a link can end.

use super::connection::Gone;

/// Why a link ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndReason {
    /// The proxy said so.
    Goodbye,
    /// The connection broke, or fell silent.
    Gone,
    /// Another connection or session has the agent.
    TakenOver,
    /// The coordinator stops.
    Draining,
    /// Its credential has ended.
    Revoked,
}

impl EndReason {
    /// Returns the word for it.
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
