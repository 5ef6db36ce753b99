//! How often two agents wrote to each other without a person, and what a person ruled about them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::AgentId;
use crate::time::Timestamp;
use crate::vocabulary::words;

words! {
    /// How a pair stands.
    Standing {
        /// It may go on.
        Open = "open",
        /// It has sent as many messages as are allowed, and the next one is refused with `LOOP_SUSPECTED`.
        Suspected = "suspected",
        /// A person stopped it: everything is refused until a person allows it.
        Stopped = "stopped",
    }
}

/// A pair of agents about which something is ruled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuardRequest {
    /// The two agents, in any order.
    pub agents: [AgentId; 2],
}

/// A pair of agents as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuardedPair {
    /// The two agents, by name.
    pub agents: [AgentId; 2],
    /// How it stands.
    pub standing: Standing,
    /// How many messages and replies of the last 10 minutes this coordinator counts.
    pub count: u32,
    /// Since when it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_at: Option<Timestamp>,
}

/// Pairs that are stopped, or have sent at least half of what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuardList {
    /// How many messages a pair may send within 10 minutes; absent if they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The pairs, those with the most messages first.
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
        assert!(serde_json::from_value::<GuardRequest>(wrong).is_err(), "a pair is two");
    }
}
