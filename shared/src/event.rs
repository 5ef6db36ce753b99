//! Events: the changes in the log that a client may see, as pages and as a stream.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::AgentRecord;
use crate::time::Timestamp;

/// The path of events.
pub const PATH: &str = "/api/v1/events";

/// A part of the first events of a stream with `state=1`: agents by name, as they were at the id of the event or later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatePart {
    /// The agents.
    pub agents: Vec<AgentRecord>,
    /// Whether another part follows.
    pub more: bool,
}

/// A response of REST v1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope<T> {
    /// The result.
    pub data: T,
    /// The request.
    pub meta: Meta,
}

/// The request that a response of REST v1 answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Meta {
    /// The id of the request, as in `X-Request-Id`.
    pub request_id: uuid::Uuid,
    /// When it was answered.
    pub timestamp: Timestamp,
}
