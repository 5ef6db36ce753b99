//! Identifiers, validated on construction: every `AgentId` and `MessageId` is a valid one.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::parsed::parsed;

/// Names that sessions cannot take: the person, the system, and all agents.
pub const RESERVED: [&str; 3] = ["human", "system", "all"];

/// The longest agent id, in characters.
pub const AGENT_ID_MAX: usize = 64;

/// The end of the id of the person at a host.
const PERSON: &str = "cli";

/// The reason why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is not an agent id.
    #[error(
        "'{0}' is not an agent id: it has 1 to 64 characters of A-Z a-z 0-9 _ . - and begins with a letter or digit"
    )]
    Agent(String),
    /// The text is not a message id.
    #[error(
        "'{0}' is not a message id: from_agent::to_agent:: and 8 hexadecimal digits, as send_message returns it"
    )]
    Message(String),
}

/// The name of an agent: 1 to 64 of `[A-Za-z0-9_.-]`, the first alphanumeric.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentId(Arc<str>);

impl AgentId {
    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether sessions may not take this name: `human`, `system` and `all`, in any case, also with signs at the end
    /// that hardly differ from the end of a sentence.
    pub fn is_reserved(&self) -> bool {
        RESERVED
            .iter()
            .any(|name| self.word().eq_ignore_ascii_case(name))
    }

    /// Returns the name without signs at its end.
    fn word(&self) -> &str {
        self.0.trim_end_matches(['.', '_', '-'])
    }

    /// Returns whether both names are the same to a reader: in any case, and without signs at their ends.
    pub fn looks_like(&self, other: &Self) -> bool {
        self.word().eq_ignore_ascii_case(other.word())
    }

    /// Returns what all names have in common that look like it.
    pub fn look(&self) -> String {
        self.word().to_ascii_lowercase()
    }

    /// Makes an id from any text: other scripts are transliterated to Latin letters, invalid characters become `-`.
    ///
    /// Returns `None` if nothing usable is left.
    pub fn from_any(text: &str) -> Option<Self> {
        let clean = |text: &str| -> String {
            text.chars()
                .map(|c| if is_agent_char(c) { c } else { '-' })
                .collect()
        };
        let cleaned = if text.is_ascii() {
            clean(text)
        } else {
            joined(&clean(&in_latin(text)))
        };
        let begun = cleaned
            .chars()
            .skip_while(|c| !c.is_ascii_alphanumeric())
            .take(AGENT_ID_MAX)
            .collect::<String>();
        begun.trim_end_matches('-').parse().ok()
    }

    /// Makes the id for a folder's name as [`Self::from_any`] does. If nothing usable is left, the id is `agent-` and a hash
    /// of the name, so it is always the same.
    pub fn of_folder(name: &str) -> Self {
        let hashed =
            || Self(format!("agent-{}", &blake3::hash(name.as_bytes()).to_hex()[..8]).into());
        Self::from_any(name).unwrap_or_else(hashed)
    }

    /// Returns the name with a number appended: `name-2`, `name-3`, ….
    ///
    /// The stem is shortened if the result would be too long.
    pub fn suffixed(&self, number: u32) -> Self {
        self.with_suffix(&number.to_string())
    }

    /// Returns the name without the number that [`Self::suffixed`] appends; `None` if it does not end in a number.
    pub fn unnumbered(&self) -> Option<&str> {
        let (stem, number) = self.0.rsplit_once('-')?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !stem.is_empty()).then_some(stem)
    }

    /// Returns the name with `-` and a word of letters and digits appended.
    ///
    /// The stem is shortened if the result would be too long.
    pub fn with_suffix(&self, word: &str) -> Self {
        let suffix = format!("-{word}");
        let stem: String = self.0.chars().take(AGENT_ID_MAX - suffix.len()).collect();
        Self(format!("{stem}{suffix}").into())
    }

    /// Returns the id of the person who uses the commands.
    pub fn human() -> Self {
        Self("human".into())
    }

    /// Returns whether it is [`Self::human`].
    pub fn is_human(&self) -> bool {
        &*self.0 == "human"
    }

    /// Returns the id of the person at a host who has no login to act as [`Self::human`]: `nas-cli`. That of a host with a long
    /// name has a hash of the name, because such names may begin alike.
    pub fn of_person(host: &str) -> Self {
        let person = Self::of_folder(host);
        if in_latin(host).len() + PERSON.len() < AGENT_ID_MAX {
            return person.with_suffix(PERSON);
        }
        let hash = &blake3::hash(host.as_bytes()).to_hex()[..8];
        person.with_suffix(&format!("{hash}-{PERSON}"))
    }

    /// Returns whether it looks like a name of [`Self::of_person`].
    pub fn is_person_of_a_host(&self) -> bool {
        self.word().to_ascii_lowercase().ends_with("-cli")
    }

    /// Returns the id that c3po itself uses as a sender.
    pub fn system() -> Self {
        Self("system".into())
    }

    /// Returns the id that represents all agents in a broadcast's own id.
    pub fn all() -> Self {
        Self("all".into())
    }
}

/// Returns the text transliterated to Latin letters. Characters without a transliteration are dropped.
fn in_latin(text: &str) -> String {
    deunicode::deunicode_with_tofu(text, "")
}

/// Collapses each run of `-` into one: the transliteration of a letter may end with a space.
fn joined(text: &str) -> String {
    text.split('-')
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join("-")
}

/// Returns whether the text is an agent id.
fn is_agent_id(text: &str) -> bool {
    (1..=AGENT_ID_MAX).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.bytes().all(|byte| is_agent_char(byte.into()))
}

fn is_agent_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

impl FromStr for AgentId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        if is_agent_id(text) {
            Ok(Self(text.into()))
        } else {
            Err(IdError::Agent(clip(text)))
        }
    }
}

/// The id of a message: `from::to::8 hex`. It contains the sender and the recipient.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId {
    text: Box<str>,
    from_len: u8,
    to_len: u8,
}

impl MessageId {
    /// Makes a new random id. The store checks that it is free when it stores the message.
    pub fn random(from: &AgentId, to: &AgentId) -> Self {
        let number = Uuid::new_v4().as_u128() as u32;
        Self::new(from, to, number)
    }

    /// Makes the id of the message that a call sends. A call that is sent again gets the same number, even if its sender has
    /// been renamed since. `attempt` counts the numbers that other calls had already taken.
    pub fn of_call(from: &AgentId, to: &AgentId, call: CallId, attempt: u32) -> Self {
        let digest = Uuid::new_v5(&call.0, &attempt.to_be_bytes()).as_u128();
        Self::new(from, to, (digest >> 96) as u32)
    }

    /// Makes the id with the given number as its eight hexadecimal digits.
    pub fn new(from: &AgentId, to: &AgentId, number: u32) -> Self {
        let text = format!("{from}::{to}::{number:08x}").into_boxed_str();
        Self {
            text,
            from_len: length(from.as_str()),
            to_len: length(to.as_str()),
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the sender of the message.
    pub fn from(&self) -> AgentId {
        AgentId(self.text[..usize::from(self.from_len)].into())
    }

    /// Returns the recipient of the message.
    pub fn to(&self) -> AgentId {
        let start = usize::from(self.from_len) + 2;
        AgentId(self.text[start..start + usize::from(self.to_len)].into())
    }
}

/// An agent id is at most 64 bytes long, so its length fits.
fn length(id: &str) -> u8 {
    u8::try_from(id.len()).unwrap_or(u8::MAX)
}

impl FromStr for MessageId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        // Without an id of each agent: one call may name a thousand messages.
        let parts = text.split_once("::").and_then(|(from, rest)| {
            let (to, digits) = rest.split_once("::")?;
            let is_hex = digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            (is_hex && is_agent_id(from) && is_agent_id(to)).then_some((from, to))
        });
        let Some((from, to)) = parts else {
            return Err(IdError::Message(clip(text)));
        };
        Ok(Self {
            text: text.into(),
            from_len: length(from),
            to_len: length(to),
        })
    }
}

/// Shortens a caller's input for use in an error message.
fn clip(text: &str) -> String {
    text.chars().take(80).collect()
}

/// The id of one tool call, chosen by the caller: the call is applied once, however often it arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub Uuid);

impl CallId {
    /// Makes a new id that sorts after those made before it (UUIDv7).
    pub fn fresh() -> Self {
        Self(Uuid::now_v7())
    }

    /// Returns whether it is such an id. Ids of requests with an `Idempotency-Key` follow from it, and others may know it.
    pub fn is_fresh(self) -> bool {
        self.0.get_version_num() == 7
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

macro_rules! text_form {
    ($type:ty, $text:expr, $pattern:expr) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($text(self))
            }
        }
        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($text(self))
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str($text(self))
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                parsed(from)
            }
        }
        impl JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}
text_form!(AgentId, AgentId::as_str, format!("^{}$", agent_pattern()));
text_form!(
    MessageId,
    MessageId::as_str,
    format!("^{0}::{0}::[0-9A-Fa-f]{{8}}$", agent_pattern())
);

/// Returns the regular expression for an agent id.
fn agent_pattern() -> String {
    format!("[A-Za-z0-9][A-Za-z0-9_.-]{{0,{}}}", AGENT_ID_MAX - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_ids_are_checked() {
        for good in [
            "homeassistant",
            "web-frontend",
            "sensor.temp1",
            "agent_2",
            "7",
            &"a".repeat(64),
        ] {
            assert_eq!(
                good.parse::<AgentId>().map(|id| id.to_string()),
                Ok(good.to_owned())
            );
        }
        for bad in [
            "",
            "-agent",
            "_test",
            "agent with spaces",
            "agent@home",
            "é",
            "a::b",
            &"a".repeat(65),
        ] {
            assert!(bad.parse::<AgentId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_that_look_like_a_reserved_one_are_reserved() {
        let is_reserved = |name: &str| name.parse::<AgentId>().is_ok_and(|id| id.is_reserved());
        for name in ["human", "Human", "SYSTEM", "human.", "all-", "human._-"] {
            assert!(is_reserved(name), "{name}");
        }
        for name in ["human-2", "humane", "a.human", "all-in"] {
            assert!(!is_reserved(name), "{name}");
        }
        let person: AgentId = "nas-cli".parse().expect("an id");
        let looks_like = |name: &str| {
            name.parse::<AgentId>()
                .is_ok_and(|id| id.looks_like(&person))
        };
        assert!(
            ["nas-CLI", "nas-cli.", "nas-cli-"]
                .into_iter()
                .all(looks_like)
        );
        assert!(!["nas-cli-2", "nas"].into_iter().any(looks_like));
    }

    #[test]
    fn any_folder_name_becomes_an_agent_id() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(
                AgentId::from_any(text).map(|id| id.to_string()).as_deref(),
                expected
            );
        };
        check("Home Assistant", Some("Home-Assistant"));
        check(".config", Some("config"));
        check("a  b--c", Some("a--b--c"));
        check("café ☕", Some("cafe-coffee"));
        check("Küche & Bad", Some("Kuche-Bad"));
        check("日本語", Some("Ri-Ben-Yu"));
        check("Домашний сервер", Some("Domashnii-server"));
        check("\u{10ffff}", None);
        check("///", None);
        check("", None);
        check(&"x".repeat(100), Some(&"x".repeat(64)));
    }

    #[test]
    fn a_folder_of_which_nothing_is_left_has_the_same_name_each_time() {
        assert_eq!(AgentId::of_folder("Küche").as_str(), "Kuche");
        assert_eq!(
            AgentId::of_folder("___").as_str(),
            AgentId::of_folder("___").as_str()
        );
        assert!(AgentId::of_folder("___").as_str().starts_with("agent-"));
        assert_ne!(AgentId::of_folder("___"), AgentId::of_folder("+++"));
    }

    #[test]
    fn numbers_behind_a_name_are_known() {
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(
                name.parse::<AgentId>().expect("an id").unnumbered(),
                expected,
                "{name}"
            );
        };
        check("web-2", Some("web"));
        check("web-2-10", Some("web-2"));
        check("web", None);
        check("web-", None);
        check("web-2a", None);
    }

    #[test]
    fn suffixes_stay_within_the_length_of_an_id() {
        let long: AgentId = "x".repeat(64).parse().expect("64 characters are an id");
        assert_eq!(long.suffixed(2).as_str().len(), 64);
        assert!(long.suffixed(12).as_str().ends_with("x-12"));
    }

    #[test]
    fn message_ids_name_sender_and_recipient() {
        let id: MessageId = "homeassistant::meshtastic::abc12345"
            .parse()
            .expect("the API reference's example");
        assert_eq!(id.from().as_str(), "homeassistant");
        assert_eq!(id.to().as_str(), "meshtastic");
        for bad in [
            "",
            "a::b",
            "a::b::xyz99999",
            "a::b::abc1234",
            "a::b::abc123456",
            "a:b:abc12345",
            "-a::b::abc12345",
        ] {
            assert!(bad.parse::<MessageId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_same_call_has_the_same_number_under_any_name() {
        let (call, to) = (CallId(Uuid::from_u128(7)), AgentId::all());
        let number = |from: &AgentId, attempt| {
            MessageId::of_call(from, &to, call, attempt).as_str()[from.as_str().len()..].to_owned()
        };
        let (one, two): (AgentId, AgentId) = (
            "web".parse().expect("an id"),
            "web-2".parse().expect("an id"),
        );
        assert_eq!(number(&one, 0), number(&two, 0));
        assert_ne!(number(&one, 0), number(&one, 1));
        // Another version of the program may repeat the call, so the number must never change.
        assert_eq!(number(&one, 0), "::all::1352c9d5");
    }

    #[test]
    fn random_message_ids_parse_back() {
        let (from, to) = (AgentId::human(), AgentId::all());
        let id = MessageId::random(&from, &to);
        assert_eq!(id.as_str().parse::<MessageId>(), Ok(id));
    }
}
