//! The audit: what happened, in order, with who and why. An entry has no place for a text that an agent wrote.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::{AgentId, MessageId};
use crate::limits::{AUDIT_PAGE_MAX, PAGE_DEFAULT};
use crate::receipt::{Stage, Via};
use crate::text::harmless;
use crate::time::{Span, Timestamp};
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

    /// Returns the entry as the columns of a table, with its time as it was written: when, what, who, to whom, how, which
    /// message, and whatever else there is. None of them can do anything to a terminal.
    pub fn columns(&self, at: String) -> [String; 7] {
        let how = [self.verb.as_ref().map(|verb| harmless(verb, false)), self.stage.map(|stage| stage.to_string())];
        let how = how.into_iter().chain([self.via.map(|via| format!("via {via}"))]).flatten();
        let rest = [
            self.about.as_ref().map(|about| format!("answers {about}")),
            self.key.as_ref().map(|key| format!("key {}", harmless(key, false))),
            self.count.map(|count| format!("{count} entries are missing here")),
            self.why.as_ref().map(|why| format!("({})", harmless(why, false))),
        ];
        [
            at,
            self.event.to_string(),
            self.agent.as_ref().map(AgentId::to_string).unwrap_or_default(),
            self.to.as_ref().map(|to| format!("-> {to}")).unwrap_or_default(),
            how.collect::<Vec<_>>().join(" "),
            self.message_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            rest.into_iter().flatten().collect::<Vec<_>>().join("  "),
        ]
    }

    /// Returns whether the entry is about that agent.
    pub fn concerns(&self, agent: &AgentId) -> bool {
        self.agent.as_ref() == Some(agent) || self.to.as_ref() == Some(agent)
    }
}

/// A table of entries that are not all known when its first line is printed: a column is as wide as the widest that stood
/// in it so far, and is left out while nothing does.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    widths: [usize; 7],
}

impl Columns {
    /// Returns the next lines.
    pub fn lines(&mut self, rows: &[[String; 7]]) -> Vec<String> {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let line = |row: &[String; 7]| {
            let cells = row.iter().zip(self.widths).filter(|(_, width)| *width > 0);
            let cells: Vec<_> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
            cells.join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect()
    }
}

/// The begin of a part of the audit: a time, or how long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since(pub Timestamp);

impl std::str::FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse::<Span>() {
            Ok(ago) => {
                let ago = u64::try_from(ago.duration().as_millis()).unwrap_or(u64::MAX);
                Ok(Self(Timestamp::from_millis(Timestamp::now().millis().saturating_sub(ago))))
            }
            Err(_) => text.parse().map(Self).map_err(|_| {
                "it is neither a time such as 2026-01-15T10:30:00Z nor how long ago, such as 30s, 10m, 2h or 3d"
                    .to_owned()
            }),
        }
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
    use std::time::Duration;

    use super::*;
    use serde_json::json;

    #[test]
    fn since_is_a_time_or_how_long_ago() {
        let time = "2026-01-15T10:30:00Z".parse::<Since>().expect("a time");
        assert_eq!(time.0.to_string(), "2026-01-15T10:30:00.000Z");
        assert!("yesterday".parse::<Since>().is_err());
        let (now, since) = (Timestamp::now(), "2h".parse::<Since>().expect("how long ago").0);
        assert!(now.since(since) <= Duration::from_secs(7_200) && now.since(since) > Duration::from_secs(7_100));
        assert!("30000d".parse::<Since>().is_ok_and(|since| since.0.millis() == 0), "before all times");
    }

    #[test]
    fn entries_stand_in_columns_and_nothing_in_them_can_hurt_a_terminal() {
        let id = |text: &str| text.parse::<AgentId>().expect("an id");
        let sent = Entry::new(Event::Accepted).by(&id("a")).to(&id("b")).verb("message");
        let sent = Entry { message_id: Some("a::b::00000001".parse().expect("an id")), ..sent };
        let denied = Entry::new(Event::Denied).by(&id("guest")).to(&id("b")).verb("message").because("no\u{1b}[2J");
        let begun = Entry { key: Some("k1".into()), ..Entry::new(Event::SessionBegun).by(&id("a")).verb("session") };
        let mut columns = Columns::default();
        let mut lines = |entries: &[Entry]| {
            columns.lines(&entries.iter().map(|entry| entry.columns("10:30".into())).collect::<Vec<_>>())
        };
        assert_eq!(lines(std::slice::from_ref(&begun)), ["10:30  session_begun  a  session  key k1"]);
        assert_eq!(
            lines(&[begun, sent, denied]),
            [
                "10:30  session_begun  a            session                  key k1",
                "10:30  accepted       a      -> b  message  a::b::00000001",
                "10:30  denied         guest  -> b  message                  (no\u{241b}[2J)",
            ]
        );
    }

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
