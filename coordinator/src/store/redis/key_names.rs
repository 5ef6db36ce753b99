//! The names of all keys. Those of one fleet begin with `{FLEET}:` and so lie in one hash slot: every change is one atomic
//! step, on one server and on a cluster.

use c3po_shared::ids::{AgentId, MessageId};

use super::library::Call;
use crate::config::Fleet;

/// Which layout of keys this is; raised when an older c3po could not read a newer one's.
pub(super) const SCHEMA: u64 = 4;
/// The field of the credentials that counts their changes; no id of a credential reads like that.
pub(super) const CHANGES: &str = "changes";

/// The keys of one fleet.
#[derive(Debug, Clone)]
pub(super) struct KeyNames {
    prefix: String,
}

impl KeyNames {
    /// Names the keys of that fleet.
    pub(super) fn of(fleet: &Fleet) -> Self {
        Self { prefix: format!("{{{fleet}}}:") }
    }

    /// Returns the key of that name.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns the key of a message: at its recipient, by the number of its id alone.
    pub(super) fn message(&self, id: &MessageId) -> String {
        let number = id.as_str().rsplit("::").next().unwrap_or_default();
        format!("{}m:{}:{number}", self.prefix, id.to())
    }

    /// Returns the key of a thread.
    pub(super) fn thread(&self, id: &MessageId) -> String {
        format!("{}t:{id}", self.prefix)
    }

    /// Returns the key of the agents whose owners wished that name.
    pub(super) fn namesakes(&self, base: &AgentId) -> String {
        format!("{}names:{base}", self.prefix)
    }

    /// Returns the keys of an agent, as functions get them: its record, what of its inbox is unshown, shown, repeated.
    pub(super) fn agent(&self, id: &AgentId) -> [String; 4] {
        let key = |part: &str| format!("{}{part}:{id}", self.prefix);
        [key("agent"), key("unshown"), key("shown"), key("repeated")]
    }

    /// Begins the call of a function with these keys. Before them comes the one that is never there: see `base.lua`.
    pub(super) fn call<K: IntoIterator<Item = String>>(&self, function: &str, keys: K) -> Call {
        let keys: Vec<String> = std::iter::once(self.key("-")).chain(keys).collect();
        Call::new(function, &keys)
    }

    /// Begins the call of a function about an agent.
    pub(super) fn call_about(&self, function: &str, id: &AgentId) -> Call {
        self.call(function, self.agent(id))
    }
}
