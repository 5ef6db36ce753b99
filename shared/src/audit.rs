//! The audit log: every event in order, with its actor and its reason. An entry has no field for text that an agent wrote.

use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::host::quoted;
use crate::ids::{AgentId, MessageId};
use crate::limits::{AUDIT_PAGE_MAX, PAGE_DEFAULT};
use crate::receipt::{Stage, Via};
use crate::text::harmless;
use crate::time::{Span, Timestamp};
use crate::vocabulary::words;

words! {
    /// The kind of event that an entry records.
    Event {
        /// A message was stored.
        Accepted = "accepted",
        /// A reply was stored; `about` is the message that it answers.
        Answered = "answered",
        /// A message or a reply whose outcome is unknown: the store did not confirm in time, or the caller stopped waiting.
        Unknown = "unknown",
        /// Something was refused: by a rule, by a limit, or because the caller has no permission.
        Denied = "denied",
        /// A message reached the next `stage`, by the evidence `via`; or it expired.
        Receipt = "receipt",
        /// An agent took a message out of its inbox without a reply.
        Acknowledged = "acknowledged",
        /// A session has connected.
        SessionBegun = "session_begun",
        /// A session has ended.
        SessionEnded = "session_ended",
        /// The state of a session has changed; `verb` is the new state.
        StatusChanged = "status_changed",
        /// A session continues under another name, `to`.
        Renamed = "renamed",
        /// A key was made, revoked or rotated.
        KeyChanged = "key_changed",
        /// A login or its code was made, spent or revoked.
        LoginChanged = "login_changed",
        /// A message between two agents was refused: they seem to answer each other endlessly, or a person stopped them.
        LoopSuspected = "loop_suspected",
        /// A person allowed or stopped the messages between two agents.
        GuardChanged = "guard_changed",
        /// The policy rules changed, or the rules file could not be read.
        PolicyChanged = "policy_changed",
        /// `count` entries are missing here: more events occurred than could be written.
        Gap = "gap",
    }
}

/// One line of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    /// Its position, one higher than that of the entry before it. The store assigns it; 0 until then.
    #[serde(default, skip_serializing_if = "is_unplaced")]
    pub position: u64,
    /// When the event occurred.
    pub at: Timestamp,
    /// The kind of event.
    pub event: Event,
    /// The agent that acted; absent for the coordinator itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// The id of the key that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The id of the login that was used; `local` for a person without one. For an answer without one, the way and
    /// the name: `ntfy/ann`, `dialog/terminal@HOST` or `triage/AGENT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login: Option<String>,
    /// The agent that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<AgentId>,
    /// The message concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// The message that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<MessageId>,
    /// The action in one word: the verb of a policy, a call or a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// The stage that the message reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The evidence for that stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Via>,
    /// The reason, in a sentence from the coordinator or from a rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// In a gap: the number of missing entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the shape that serde asks for"
)]
fn is_unplaced(position: &u64) -> bool {
    *position == 0
}

impl Entry {
    /// Creates an entry for an event that occurs now.
    pub fn new(event: Event) -> Self {
        Self {
            position: 0,
            at: Timestamp::now(),
            event,
            agent: None,
            key: None,
            login: None,
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

    /// Returns the entry with its actor.
    #[must_use]
    pub fn by(self, agent: &AgentId) -> Self {
        Self {
            agent: Some(agent.clone()),
            ..self
        }
    }

    /// Returns the entry with the key that was used, if any.
    #[must_use]
    pub fn under(self, key: Option<&str>) -> Self {
        Self {
            key: key.map(str::to_owned),
            ..self
        }
    }

    /// Returns the entry with the message concerned.
    #[must_use]
    pub fn about_message(self, id: &MessageId) -> Self {
        Self {
            message_id: Some(id.clone()),
            ..self
        }
    }

    /// Returns the entry with the agent that was acted on.
    #[must_use]
    pub fn to(self, agent: &AgentId) -> Self {
        Self {
            to: Some(agent.clone()),
            ..self
        }
    }

    /// Returns the entry with the word for the action.
    #[must_use]
    pub fn verb(self, verb: impl Into<String>) -> Self {
        Self {
            verb: Some(verb.into()),
            ..self
        }
    }

    /// Returns the entry with its reason. Do not pass text that an agent wrote.
    #[must_use]
    pub fn because(self, why: impl Into<String>) -> Self {
        Self {
            why: Some(why.into()),
            ..self
        }
    }

    /// Returns the entry as columns of a table: time as given, event, actor, target, verb with stage and evidence, message,
    /// and the rest. All text is escaped, so that it cannot control a terminal.
    pub fn columns(&self, at: String) -> [String; 7] {
        let how = [
            self.verb.as_ref().map(|verb| harmless(verb, false)),
            self.stage.map(|stage| stage.to_string()),
        ];
        let how = how
            .into_iter()
            .chain([self.via.map(|via| format!("via {via}"))])
            .flatten();
        let rest = [
            self.about.as_ref().map(|about| format!("answers {about}")),
            self.key
                .as_ref()
                .map(|key| format!("key {}", harmless(key, false))),
            self.login
                .as_ref()
                .map(|login| format!("login {}", quoted(&harmless(login, false)))),
            self.count
                .map(|count| format!("{count} entries are missing here")),
            self.why
                .as_ref()
                .map(|why| format!("({})", harmless(why, false))),
        ];
        [
            at,
            self.event.to_string(),
            self.agent
                .as_ref()
                .map(AgentId::to_string)
                .unwrap_or_default(),
            self.to
                .as_ref()
                .map(|to| format!("-> {to}"))
                .unwrap_or_default(),
            how.collect::<Vec<_>>().join(" "),
            self.message_id
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            rest.into_iter().flatten().collect::<Vec<_>>().join("  "),
        ]
    }

    /// Returns whether the agent acted, or was acted on.
    pub fn concerns(&self, agent: &AgentId) -> bool {
        self.agent.as_ref() == Some(agent) || self.to.as_ref() == Some(agent)
    }
}

/// The layout of a table whose later rows are not known when its first rows are printed. Each column is as wide as its widest
/// cell so far, and is left out while all its cells are empty.
#[derive(Debug, Clone, Default)]
pub struct Columns {
    widths: [usize; 7],
}

impl Columns {
    /// Formats the next rows as lines.
    pub fn lines(&mut self, rows: &[[String; 7]]) -> Vec<String> {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let line = |row: &[String; 7]| {
            let cells = row.iter().zip(self.widths).filter(|(_, width)| *width > 0);
            let cells: Vec<_> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            cells.join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect()
    }
}

/// The start of a range of the audit: a time, or an age such as `2h`.
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
                "it is neither a time such as 2026-01-15T10:30:00Z nor an age such as 30s, 10m, 2h or 3d".to_owned()
            }),
        }
    }
}

/// `GET /api/audit` and `GET /api/v1/events`: selects a part of the log. An absent field does not restrict the selection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogQuery {
    /// Only entries after this position. A stream without it begins with the next event, and a page with the oldest entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = u64::MAX))]
    pub after: Option<u64>,
    /// Only entries at or after this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only entries in which this agent acted or was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentId>,
    /// Only entries of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<Event>,
    /// The maximum number of entries on a page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = AUDIT_PAGE_MAX), extend("default" = PAGE_DEFAULT))]
    pub limit: Option<usize>,
    /// 1 for a stream that begins with all agents. Pages ignore it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "zero_or_one"
    )]
    #[schemars(range(max = 1))]
    pub state: Option<u8>,
}

fn zero_or_one<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u8>, D::Error> {
    let value = Option::<u8>::deserialize(from)?;
    match value {
        Some(2..) => Err(D::Error::custom("state is 0 or 1")),
        _ => Ok(value),
    }
}

impl LogQuery {
    /// Returns whether it selects an entry, apart from the position.
    pub fn selects(&self, entry: &Entry) -> bool {
        self.since.is_none_or(|since| entry.at >= since)
            && self.event.is_none_or(|event| entry.event == event)
            && self
                .agent
                .as_ref()
                .is_none_or(|agent| entry.concerns(agent))
    }
}

/// The result of `audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditPage {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
    /// The position of the last entry that was read: the `after` of the next page. It is 0 if the log ends before the
    /// requested position, as after a restore.
    pub next: u64,
    /// Whether there were no entries after that.
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
        let (now, since) = (
            Timestamp::now(),
            "2h".parse::<Since>().expect("how long ago").0,
        );
        assert!(
            now.since(since) <= Duration::from_secs(7_200)
                && now.since(since) > Duration::from_secs(7_100)
        );
        assert!(
            "30000d"
                .parse::<Since>()
                .is_ok_and(|since| since.0.millis() == 0),
            "before all times"
        );
    }

    #[test]
    fn entries_stand_in_columns_and_nothing_in_them_can_hurt_a_terminal() {
        let id = |text: &str| text.parse::<AgentId>().expect("an id");
        let sent = Entry::new(Event::Accepted)
            .by(&id("a"))
            .to(&id("b"))
            .verb("message");
        let sent = Entry {
            message_id: Some("a::b::00000001".parse().expect("an id")),
            ..sent
        };
        let denied = Entry::new(Event::Denied)
            .by(&id("guest"))
            .to(&id("b"))
            .verb("message")
            .because("no\u{1b}[2J");
        let begun = Entry {
            key: Some("k1".into()),
            login: Some("dialog/terminal@my box".into()),
            ..Entry::new(Event::SessionBegun).by(&id("a")).verb("session")
        };
        let mut columns = Columns::default();
        let mut lines = |entries: &[Entry]| {
            columns.lines(
                &entries
                    .iter()
                    .map(|entry| entry.columns("10:30".into()))
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            lines(std::slice::from_ref(&begun)),
            ["10:30  session_begun  a  session  key k1  login \"dialog/terminal@my box\""]
        );
        assert_eq!(
            lines(&[begun, sent, denied]),
            [
                "10:30  session_begun  a            session                  key k1  login \"dialog/terminal@my box\"",
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
        let gap = Entry {
            at: entry.at,
            count: Some(3),
            ..Entry::new(Event::Gap)
        };
        assert_eq!(
            serde_json::to_value(gap).expect("JSON"),
            json!({"at": "2026-01-15T10:30:00.000Z", "event": "gap", "count": 3})
        );
    }
}
