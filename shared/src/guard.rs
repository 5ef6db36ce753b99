//! Counts of the messages between two agents without a person, and a person's rulings about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::time::Timestamp;
use crate::vocabulary::words;

words! {
    /// The state of a pair.
    Standing {
        /// Messages are allowed.
        Open = "open",
        /// The pair has reached the limit, and the next message is refused with `LOOP_SUSPECTED`.
        Suspected = "suspected",
        /// A person stopped the pair: every message is refused until a person allows it.
        Stopped = "stopped",
    }
}

/// A request to allow or stop a pair of agents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardRequest {
    /// The two agents, in any order.
    pub agents: [AgentId; 2],
}

/// A pair of agents, as listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuardedPair {
    /// The two agents, sorted by name.
    pub agents: [AgentId; 2],
    /// The state of the pair.
    pub standing: Standing,
    /// The messages and replies of the last 10 minutes that this coordinator has counted.
    pub count: u32,
    /// The time at which it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
}

/// The pairs that are stopped, or have sent at least half of the limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuardList {
    /// The number of messages that a pair may send within 10 minutes; absent if they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The pairs, busiest first.
    pub pairs: Vec<GuardedPair>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_list_has_the_documented_shape() {
        let wire = json!({"limit": 60, "pairs": [
            {"agents": ["a", "b"], "standing": "suspected", "count": 60},
            {"agents": ["a", "c"], "standing": "stopped", "count": 0, "stopped_at": "2026-01-15T10:30:00.000Z"},
        ]});
        let list: GuardList = serde_json::from_value(wire.clone()).expect("the documented shape");
        assert_eq!(serde_json::to_value(list).expect("JSON"), wire);
        let wrong = json!({"agents": ["a"]});
        assert!(
            serde_json::from_value::<GuardRequest>(wrong).is_err(),
            "a pair is two"
        );
    }
}
