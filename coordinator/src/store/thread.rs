//! Paged reading of a thread: start of a page, its limits, and the mark for the next one.

use std::fmt;
use std::str::FromStr;

use c3po_shared::ids::{AgentId, IdError, MessageId};
use c3po_shared::message::Message;
use c3po_shared::receipt::Stage;
use c3po_shared::time::Timestamp;

/// The position of a message in its thread. It does not change when other messages come or go.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// When the message was accepted.
    pub at: Timestamp,
    /// The message's id, which orders messages of the same time.
    pub id: MessageId,
}

impl Mark {
    /// Returns the position of this message.
    pub fn of(message: &Message) -> Self {
        Self {
            at: message.timestamp,
            id: message.id.clone(),
        }
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.millis(), self.id)
    }
}

impl FromStr for Mark {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let (at, id) = text.split_once('.').unwrap_or_default();
        let id = id.parse()?;
        let at = at.parse().map_err(|_| IdError::Message(at.into()))?;
        Ok(Self {
            at: Timestamp::from_millis(at),
            id,
        })
    }
}

/// Selects part of a thread.
#[derive(Debug, Clone, Copy)]
pub struct Stretch<'a> {
    /// The reading agent. Messages that it neither sent nor received are skipped unread.
    pub reader: &'a AgentId,
    /// Returns only messages after this mark; `None` returns all.
    pub after: Option<&'a Mark>,
    /// The largest number of messages to return, at least one.
    pub limit: usize,
    /// No further message is read once this many bytes are read. A longer message is returned whole.
    pub bytes: usize,
}

/// A message of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InThread {
    /// The envelope.
    pub message: Message,
    /// When it was stored, by the clock that also stamps agents.
    pub stored_at: Timestamp,
}

/// A part of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The messages that the reader sent or received, ordered by time and id. It may be empty even if more follow.
    pub messages: Vec<InThread>,
    /// The mark at which reading continues; `None` at the end of the thread.
    pub next: Option<Mark>,
}

/// How far messages of a part of a thread came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentStages {
    /// The furthest stage of each, in the order of the messages.
    pub stages: Vec<Stage>,
    /// The mark at which reading continues; `None` at the end of the thread.
    pub next: Option<Mark>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let check = |text: &str, good: bool| {
            let read = text.parse::<Mark>().ok();
            assert_eq!(
                read.map(|mark| mark.to_string()).as_deref(),
                good.then_some(text),
                "{text}"
            );
        };
        check("1768473000000.a.b::c::0000abcd", true);
        check("0.a::b::00000001", true);
        for text in [
            "",
            "3",
            ".",
            "3.",
            ".a::b::00000001",
            "-1.a::b::00000001",
            "1.a::b",
            "x.a::b::00000001",
        ] {
            check(text, false);
        }
    }
}
