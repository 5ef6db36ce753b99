//! The errors that an agent can meet, as text that can be counted.

use std::fmt;
use std::io;

use super::frames;

/// The reason why an agent has no link, or lost it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The coordinator rejected the upgrade: the HTTP status, and the error code in its body.
    Refused(u16, String),
    /// The coordinator closed the link with that code.
    Closed(u16),
    /// A call was refused with that code.
    Call(String),
    /// The connection failed or broke.
    Broken(String),
    /// There was no answer in time.
    TimedOut,
}

impl Trouble {
    pub(super) fn refused(status: u16, body: &str) -> Self {
        Self::Refused(
            status,
            frames::code(body).unwrap_or("without a code").to_owned(),
        )
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status, code) => write!(f, "turned down with {status} {code}"),
            Self::Closed(code) => write!(f, "closed with {code}"),
            Self::Call(code) => f.write_str(code),
            Self::Broken(why) => write!(f, "broken: {why}"),
            Self::TimedOut => f.write_str("no answer in time"),
        }
    }
}

impl std::error::Error for Trouble {}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}
