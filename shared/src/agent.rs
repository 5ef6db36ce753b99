//! Who there is: the record of an agent as readers see it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::ids::AgentId;
use crate::receipt::Via;
use crate::time::Timestamp;
use crate::vocabulary::{State, Status};

/// An addressable identity with an inbox. It outlives the sessions that take it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRecord {
    /// Its name, by which messages are addressed.
    pub id: AgentId,
    /// What stays the same for as long as the agent exists.
    pub uid: Uuid,
    /// The machine of its latest session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether a session is connected.
    pub status: Status,
    /// What the session does.
    pub state: State,
    /// What the agent is for, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it offers.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The role that `@role` addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// When the name was first taken.
    pub registered_at: Timestamp,
    /// When a session of it was last heard of.
    pub last_seen: Timestamp,
    /// The ways by which a message gets into the connected session; empty while offline.
    #[serde(default)]
    pub reach: Vec<Via>,
}
