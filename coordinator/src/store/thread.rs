//! A thread is read in stretches: where one begins, how much it has, and where the next one goes on.

use std::fmt;
use std::str::FromStr;

use c3po_shared::ids::{AgentId, IdError, MessageId};
use c3po_shared::message::Message;
use c3po_shared::time::Timestamp;

/// Where a message stands in its thread: whatever comes or goes before it, it stands there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// When it was accepted.
    pub at: Timestamp,
    /// Which one of that time.
    pub id: MessageId,
}

impl Mark {
    /// Returns where that message stands.
    pub fn of(message: &Message) -> Self {
        Self { at: message.timestamp, id: message.id.clone() }
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
        Ok(Self { at: Timestamp::from_millis(at), id })
    }
}

/// Which part of a thread is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Stretch<'a> {
    /// Who reads: what this agent neither sent nor received is passed over unread.
    pub reader: &'a AgentId,
    /// Only what stands behind this; all where it is nothing.
    pub after: Option<&'a Mark>,
    /// How many at most, and at least one.
    pub limit: usize,
    /// After how many bytes no further message is read. A longer one comes whole.
    pub bytes: usize,
}

/// A part of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// What the reader sent or received of it, by time and id. There may be none though more follow.
    pub messages: Vec<Message>,
    /// Where reading goes on; nothing where the thread ends here.
    pub next: Option<Mark>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let check = |text: &str, good: bool| {
            let read = text.parse::<Mark>().ok();
            assert_eq!(read.map(|mark| mark.to_string()).as_deref(), good.then_some(text), "{text}");
        };
        check("1768473000000.a.b::c::0000abcd", true);
        check("0.a::b::00000001", true);
        for text in ["", "3", ".", "3.", ".a::b::00000001", "-1.a::b::00000001", "1.a::b", "x.a::b::00000001"] {
            check(text, false);
        }
    }
}
