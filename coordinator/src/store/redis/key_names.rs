//! The names of all keys. The keys of one fleet begin with `{FLEET}:`, so they share one hash slot. Every change is therefore
//! one atomic step, on one server and on a cluster.

use std::sync::Arc;

use c3po_shared::ids::{AgentId, MessageId};

use super::library::Call;
use crate::config::Fleet;

/// The version of the key layout. It is raised when an older c3po could not read the new layout.
pub(super) const SCHEMA: u64 = 4;
/// The field of the credentials that counts their changes. It cannot be the id of a credential.
pub(super) const CHANGES: &str = "changes";

/// Makes the keys of one fleet.
#[derive(Debug, Clone)]
pub(super) struct KeyNames {
    prefix: String,
    /// The keys of a call that names no others.
    guards: Arc<[String]>,
}

impl KeyNames {
    /// Makes the names for that fleet.
    pub(super) fn of(fleet: &Fleet) -> Self {
        let prefix = format!("{{{fleet}}}:");
        let guards = ["-", "--"].map(|name| format!("{prefix}{name}"));
        Self {
            prefix,
            guards: guards.into(),
        }
    }

    /// Returns the key of that name.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Returns the key of a message, made of its recipient and the number of its id.
    pub(super) fn message(&self, id: &MessageId) -> String {
        let number = id.as_str().rsplit("::").next().unwrap_or_default();
        format!("{}m:{}:{number}", self.prefix, id.to())
    }

    /// Returns the key of a thread.
    pub(super) fn thread(&self, id: &MessageId) -> String {
        format!("{}t:{id}", self.prefix)
    }

    /// Returns the key of the agents whose owners requested this name.
    pub(super) fn namesakes(&self, base: &AgentId) -> String {
        format!("{}names:{base}", self.prefix)
    }

    /// Returns the key of the record of an agent. Functions make its other keys of its name.
    pub(super) fn agent(&self, id: &AgentId) -> String {
        format!("{}agent:{id}", self.prefix)
    }

    /// Begins a function call with these keys. The first key never exists, and neither does the second one of a call without
    /// further keys: see `base.lua`.
    pub(super) fn call<K: IntoIterator<Item = String>>(
        &self,
        function: &'static str,
        keys: K,
    ) -> Call {
        let mut keys = keys.into_iter().peekable();
        if keys.peek().is_none() {
            return Call::new(function, Arc::clone(&self.guards));
        }
        let guard = self.guards.iter().take(1).cloned();
        Call::new(function, guard.chain(keys).collect())
    }

    /// Begins a call of a function that may run in a batch: it makes its keys of names. Its first argument is the origin of its
    /// wakes, which the calls of a batch share.
    pub(super) fn batched_call(&self, function: &'static str, origin: &str) -> Call {
        let mut call = Call::new(function, Arc::clone(&self.guards));
        call.arg(origin);
        call
    }

    /// Begins a function call about an agent.
    pub(super) fn call_about(&self, function: &'static str, id: &AgentId) -> Call {
        self.call(function, [self.agent(id)])
    }

    /// Begins a function call about a message, and the agent that received it.
    pub(super) fn call_about_message(&self, function: &'static str, id: &MessageId) -> Call {
        self.call(function, [self.agent(&id.to()), self.message(id)])
    }
}
