//! The audit: what happened, in order, with who and why. An entry has no place for a text that an agent wrote.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, MessageId};
use crate::limits::{AUDIT_PAGE_MAX, PAGE_DEFAULT};
use crate::receipt::{Stage, Via};
use crate::time::Timestamp;
use crate::vocabulary::words;

words! {
    /// What an entry tells of.
    Event {
        /// A message was stored.
        Accepted = "accepted",
        /// A reply was stored; `about` is what it answers.
        Answered = "answered",
        /// A message or a reply that may have been stored or not: the store did not say in time, or nobody listened any more.
        Unknown = "unknown",
        /// Something was refused: by a rule, a limit, or because it was not the caller's to do.
        Denied = "denied",
        /// A message got further: `stage`, by the evidence `via`.
        Receipt = "receipt",
        /// A session has connected.
        SessionBegun = "session_begun",
        /// A session has ended.
        SessionEnded = "session_ended",
        /// A session goes on under another name, `to`.
        Renamed = "renamed",
        /// A key was made, revoked or rotated.
        KeyChanged = "key_changed",
        /// A message between two agents was refused, for they seem to answer each other without end or a person stopped them.
        LoopSuspected = "loop_suspected",
        /// A person allowed or stopped what two agents send each other.
        GuardChanged = "guard_changed",
        /// Other rules hold, or a file of rules could not be read.
        PolicyChanged = "policy_changed",
        /// Entries are missing here, `count` of them: more happened than could be written.
        Gap = "gap",
    }
}

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Its place, which grows by one with each. Given by the store; 0 before that.
    #[serde(default, skip_serializing_if = "is_unplaced")]
    pub position: u64,
    /// When it happened.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
    /// Who did it; absent for the coordinator itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// With which key, by its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// To whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<AgentId>,
    /// Which message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// Which message that one answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<MessageId>,
    /// What was done, in a word: that of a policy, of a call, of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// How far a message got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// By what evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// Why, in a sentence of the coordinator's or of a rule's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How many entries are missing, in a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that serde asks for")]
fn is_unplaced(position: &u64) -> bool {
    *position == 0
}

impl Entry {
    /// Begins an entry about something that happens now.
    pub fn new(event: Event) -> Self {
        Self {
            position: 0,
            at: Timestamp::now(),
            event,
            agent: None,
            key: None,
            to: None,
            message_id: None,
            about: None,
            verb: None,
            stage: None,
            via: None,
            why: None,
            count: None,
        }
    }

    /// Returns the entry with whoever did it.
    #[must_use]
    pub fn by(self, agent: &AgentId) -> Self {
        Self { agent: Some(agent.clone()), ..self }
    }

    /// Returns the entry with whom it was done to.
    #[must_use]
    pub fn to(self, agent: &AgentId) -> Self {
        Self { to: Some(agent.clone()), ..self }
    }

    /// Returns the entry with the word for what was done.
    #[must_use]
    pub fn verb(self, verb: impl Into<String>) -> Self {
        Self { verb: Some(verb.into()), ..self }
    }

    /// Returns the entry with its reason. What an agent wrote does not belong here.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        Self { why: Some(why.into()), ..self }
    }

    /// Returns whether the entry is about that agent.
    pub fn concerns(&self, agent: &AgentId) -> bool {
        self.agent.as_ref() == Some(agent) || self.to.as_ref() == Some(agent)
    }
}

/// `audit`: a part of it. What is absent does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuditQuery {
    /// Only what stands behind this position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u64::MAX))]
    pub after: Option<u64>,
    /// Only what happened at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only what this agent did, or what was done to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// How many entries at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = AUDIT_PAGE_MAX), extend("default" = PAGE_DEFAULT))]
    pub limit: Option<usize>,
}

/// The result of `audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// In order, the oldest first.
    pub entries: Vec<Entry>,
    /// How far was read: the `after` of the next page.
    pub next: u64,
    /// Whether nothing stood behind that.
    pub complete: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_has_the_documented_shape_and_nothing_that_is_absent() {
        let wire = json!({
            "position": 7, "at": "2026-01-15T10:30:00.000Z", "event": "receipt", "agent": "b", "key": "k1", "to": "a",
            "message_id": "a::b::00000001", "stage": "in_session", "via": "hook",
        });
        let entry: Entry = serde_json::from_value(wire.clone()).expect("the documented shape");
        assert_eq!(serde_json::to_value(&entry).expect("JSON"), wire);
        let gap = Entry { at: entry.at, count: Some(3), ..Entry::new(Event::Gap) };
        assert_eq!(
            serde_json::to_value(gap).expect("JSON"),
            json!({"at": "2026-01-15T10:30:00.000Z", "event": "gap", "count": 3})
        );
    }
}
