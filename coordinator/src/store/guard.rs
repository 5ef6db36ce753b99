//! The guard against loops in the store: the pairs of agents about which a person ruled.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use c3po_shared::ids::{AgentId, IdError};
use c3po_shared::time::Timestamp;

use super::Result;

/// Two agents, whichever of them sends.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair([AgentId; 2]);

impl Pair {
    /// Returns the pair of these agents: the same in either order.
    pub fn of(one: &AgentId, other: &AgentId) -> Self {
        let mut agents = [one.clone(), other.clone()];
        agents.sort();
        Self(agents)
    }

    /// Returns both agents, by name.
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

/// A ruling of a person about a pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// Which pair.
    pub pair: Pair,
    /// Whether everything between the two is refused; otherwise they may go on, and are counted anew.
    pub is_stopped: bool,
    /// When that was.
    pub at: Timestamp,
}

/// Rulings, as any store must keep them.
#[async_trait]
pub trait GuardStore: Send + Sync {
    /// Returns the latest ruling about each pair, in no particular order.
    async fn rulings(&self) -> Result<Vec<Ruling>>;

    /// Keeps a ruling in the place of the one before it. Returns when that was, by the store's clock.
    ///
    /// Forgets allowances that are older than what is counted: every coordinator has read them by then.
    async fn rule(&self, pair: &Pair, is_stopped: bool) -> Result<Timestamp>;
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
