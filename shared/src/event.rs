//! Events: the changes in the log that a client may see, as pages and as a stream.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::AgentRecord;
use crate::audit::Event;
use crate::ids::AgentId;
use crate::limits::{AUDIT_PAGE_MAX, PAGE_DEFAULT};
use crate::time::Timestamp;

/// The path of events.
pub const PATH: &str = "/api/v1/events";

/// `GET /api/v1/events`: selects events. An absent field does not restrict the selection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EventQuery {
    /// Only events after this position. A stream without it begins with the next event, and a page with the oldest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u64::MAX))]
    pub after: Option<u64>,
    /// Only events at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only events in which this agent acted or was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Only events of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
    /// The maximum number of events on a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = AUDIT_PAGE_MAX), extend("default" = PAGE_DEFAULT))]
    pub limit: Option<usize>,
    /// 1 for a stream that begins with all agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1))]
    pub state: Option<u8>,
}

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
