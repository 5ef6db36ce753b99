//! Loop guard in the store: a person's rulings about pairs of agents.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use c3po_shared::audit::Entry;
use c3po_shared::ids::{AgentId, IdError};
use c3po_shared::time::Timestamp;

use super::Result;

/// Two agents, regardless of which one sends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair([AgentId; 2]);

impl Pair {
    /// Returns the pair of these agents, the same in either order.
    pub fn of(one: &AgentId, other: &AgentId) -> Self {
        let mut agents = [one.clone(), other.clone()];
        agents.sort();
        Self(agents)
    }

    /// Returns both agents, ordered by name.
    pub fn agents(&self) -> [&AgentId; 2] {
        self.0.each_ref()
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = &self.0;
        write!(f, "{one} {other}")
    }
}

impl FromStr for Pair {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // No agent id has a space.
        let (one, other) = text.split_once(' ').unwrap_or((text, ""));
        Ok(Self::of(&one.parse()?, &other.parse()?))
    }
}

/// A person's ruling about a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The pair.
    pub pair: Pair,
    /// Whether every message between the two is refused. Otherwise they may continue, and the count starts again.
    pub is_stopped: bool,
    /// When the ruling was made.
    pub at: Timestamp,
}

/// The interface for rulings of every store.
#[async_trait]
pub trait GuardStore: Send + Sync {
    /// Returns the latest ruling about each pair, in no particular order.
    async fn rulings(&self) -> Result<Vec<Ruling>>;

    /// Stores a ruling, replacing the previous one for the pair, and appends the entry to the log in the same step. Returns its
    /// time by the store's clock.
    ///
    /// Deletes allowances that are older than the counting window, because every coordinator has read them by then.
    async fn rule(&self, pair: &Pair, is_stopped: bool, entry: Option<&Entry>)
    -> Result<Timestamp>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_the_same_in_either_order_and_is_read_as_it_was_written() {
        let agent = |name: &str| name.parse::<AgentId>().expect("an id");
        let pair = Pair::of(&agent("web"), &agent("api"));
        assert_eq!(pair, Pair::of(&agent("api"), &agent("web")));
        assert_eq!(pair.to_string(), "api web");
        assert_eq!("api web".parse(), Ok(pair));
        for text in ["", "api", "api ", " api", "api web db"] {
            assert!(text.parse::<Pair>().is_err(), "{text}");
        }
    }
}
