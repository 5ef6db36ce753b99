//! The record of an agent, as other agents and people see it.

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
    /// The lasting identity of the agent; unchanged for as long as it exists.
    pub uid: Uuid,
    /// The machine of its latest session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Whether a session is connected.
    pub status: Status,
    /// The activity of the session.
    pub state: State,
    /// For how many seconds its oldest question to people has been open; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asking_seconds: Option<u64>,
    /// The agent's purpose, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its capabilities.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The role that `@role` addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// When the name was first taken.
    pub registered_at: Timestamp,
    /// When one of its sessions last made contact.
    pub last_seen: Timestamp,
    /// The ways by which messages can be delivered to the connected session; empty while offline.
    #[serde(default)]
    pub reach: Vec<Via>,
}
