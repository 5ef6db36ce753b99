//! The names of the keys that are made outside of the scripts.

use c3po_shared::ids::AgentId;

/// Which layout of keys this is; raised when an older c3po could not read a newer one's.
pub(super) const SCHEMA: u64 = 2;
/// Where the layout is noted.
pub(super) const SCHEMA_KEY: &str = "c3po:schema";
/// The names of all agents, in order: a hint, completed by whoever makes an agent.
pub(super) const AGENTS: &str = "c3po:agents";
/// The agents that may have unfinished answers, by the time of the last one: a hint.
pub(super) const OUTBOXES: &str = "c3po:outboxes";
/// The channel on which coordinators wake each other's listeners.
pub(super) const WAKE_CHANNEL: &str = "c3po:wake";

/// Returns the key of an agent's record. Its hash tag is that of all keys of the agent.
pub(super) fn agent(id: &AgentId) -> String {
    format!("c3po:{{{id}}}:agent")
}
