//! The names of the keys that are made outside of the scripts.

use c3po_shared::ids::{AgentId, MessageId};

/// Which layout of agents and messages this is; raised when an older c3po could not read a newer one's. Invites do not
/// raise it: at the worst a code is worth nothing.
pub(super) const SCHEMA: u64 = 3;
/// Where the layout is noted.
pub(super) const SCHEMA_KEY: &str = "c3po:schema";
/// The names of all agents, in order: a hint, completed by whoever makes an agent.
pub(super) const AGENTS: &str = "c3po:agents";
/// The agents that may have unfinished answers, by the time of the last one: a hint.
pub(super) const OUTBOXES: &str = "c3po:outboxes";
/// What happened, in order, as a stream. On one server, like everything that is no agent's.
pub(super) const AUDIT: &str = "c3po:audit";
/// Every key of a host, by its id, and how often any was changed.
pub(super) const KEYS: &str = "c3po:keys";
/// The field of [`KEYS`] that counts changes; no id of a key reads like that.
pub(super) const CHANGES: &str = "changes";
/// Every invite, by its hash. In the slot of [`KEYS`], which is its hash tag: one script makes a key of one.
pub(super) const INVITES: &str = "c3po:{c3po:keys}:invites";
/// The channel on which coordinators wake each other's listeners.
pub(super) const WAKE_CHANNEL: &str = "c3po:wake";

/// Returns the key of a message: at its recipient, by the number of its id alone.
pub(super) fn message(id: &MessageId) -> String {
    let number = id.as_str().rsplit("::").next().unwrap_or_default();
    format!("c3po:{{{}}}:m:{number}", id.to())
}

/// Returns a key of the agent that is never there.
pub(super) fn nothing(id: &AgentId) -> String {
    format!("c3po:{{{id}}}:-")
}

/// Returns the key of an agent's record. Its hash tag is that of all keys of the agent.
pub(super) fn agent(id: &AgentId) -> String {
    format!("c3po:{{{id}}}:agent")
}
