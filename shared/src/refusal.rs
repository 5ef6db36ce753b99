//! The one form of every error that a caller receives: a sentence, a code, and the next step.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

pub use crate::advice::Advice;
pub use crate::error_code::ErrorCode;
use crate::ids::{AgentId, IdError, MessageId};
use crate::limits;
use crate::time::Timestamp;

/// The error that every caller receives: `{"error", "code", "suggestion", "advice"?, "details"?}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
pub struct Refusal {
    /// A sentence that describes the error.
    pub error: String,
    /// The code, for programs.
    pub code: ErrorCode,
    /// The next step, worded for a model.
    pub suggestion: String,
    /// The next step for front ends with their own wording; absent if the suggestion suits every reader.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "known_advice"
    )]
    pub advice: Option<Advice>,
    /// Related numbers and names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

/// Reads an advice. An advice that only a newer coordinator knows becomes `None`; its suggestion remains.
fn known_advice<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Advice>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.and_then(|word| word.parse().ok()))
}

/// The longest text of an error, in bytes.
const ERROR_MAX: usize = 2_000;

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.error, self.code)
    }
}

impl Refusal {
    /// Makes a refusal with the default suggestion of its code.
    ///
    /// An error that quotes a long text of the request is cut.
    pub fn new(code: ErrorCode, error: impl Into<String>) -> Self {
        let (suggestion, advice) = (code.suggestion().to_owned(), code.advice());
        let mut error = error.into();
        if error.len() > ERROR_MAX {
            error.truncate(error.floor_char_boundary(ERROR_MAX));
            error.push('…');
            error.shrink_to_fit();
        }
        Self {
            error,
            code,
            suggestion,
            advice,
            details: Map::new(),
        }
    }

    /// Returns the refusal with a better suggestion, which must name no tool and suit every reader.
    #[must_use]
    pub fn suggest(mut self, suggestion: impl Into<String>) -> Self {
        self.suggestion = suggestion.into();
        self.advice = None;
        self
    }

    /// Returns the refusal with better advice.
    #[must_use]
    pub fn advise(mut self, advice: Advice) -> Self {
        self.suggestion = advice.for_models().to_owned();
        self.advice = Some(advice);
        self
    }

    /// Returns the refusal with an additional detail.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// The request itself is invalid.
    pub fn invalid(error: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, error)
    }

    /// No agent has that name. The suggestion lists the nearest names.
    pub fn agent_not_found(name: &str, nearest: &[AgentId]) -> Self {
        let mut refusal = Self::new(ErrorCode::AgentNotFound, format!("no agent named {name}"));
        if nearest.is_empty() {
            return refusal;
        }
        let names: Vec<_> = nearest.iter().map(AgentId::as_str).collect();
        refusal.suggestion = format!(
            "Did you mean {}? list_agents lists all agents.",
            names.join(" or ")
        );
        refusal.detail("nearest", names)
    }

    /// There is no such message, or the caller may not know of it. The error is the same for both, so that it reveals
    /// nothing.
    pub fn message_not_found(id: &MessageId) -> Self {
        Self::new(
            ErrorCode::MessageNotFound,
            format!("you have no message {id}"),
        )
    }

    /// The caller has no login, and so may not act as `human`.
    pub fn only_a_login(human: &AgentId) -> Self {
        let error = format!("only a login acts as {human}, for a person");
        Self::new(ErrorCode::Forbidden, error)
            .suggest(
                "Get a code with `c3po-coordinator login NAME` on the coordinator's machine, and log in with \
                 `c3po login URL`.",
            )
            .detail("agent", human.as_str())
    }

    /// Another answer came first.
    pub fn already_answered(id: &MessageId, reply: &MessageId) -> Self {
        Self::new(
            ErrorCode::AlreadyAnswered,
            format!("{id} is already answered"),
        )
        .detail("reply_id", reply.as_str())
    }

    /// The question was decided elsewhere, or is not asked any more.
    pub fn withdrawn(id: &MessageId) -> Self {
        Self::new(ErrorCode::Withdrawn, format!("{id} is not asked any more"))
    }

    /// The client takes no decision from elsewhere any more.
    pub fn too_late(id: &MessageId) -> Self {
        let error = format!("the time to decide {id} elsewhere is over");
        Self::new(ErrorCode::TooLate, error)
    }

    /// A text exceeds its maximum length.
    pub fn too_large(field: &str, count: usize, limit: usize) -> Self {
        Self::new(
            ErrorCode::PayloadTooLarge,
            format!("{field} has {count} characters; at most {limit} are allowed"),
        )
        .detail("field", field)
        .detail("count", count)
        .detail("limit", limit)
    }

    /// The recipient's inbox is full.
    pub fn inbox_full(agent: &AgentId, count: usize) -> Self {
        let limit = limits::INBOX_MAX;
        Self::new(
            ErrorCode::InboxFull,
            format!("the inbox of {agent} is full: {count} of {limit} messages are unacknowledged; nothing was sent"),
        )
        .detail("count", count)
        .detail("limit", limit)
    }

    /// Too many sends in the last minute.
    pub fn rate_limited(count: u32, limit: u32, retry_after_seconds: u64) -> Self {
        Self::new(
            ErrorCode::RateLimited,
            format!("rate limit: {count} sends in the last 60 seconds, at most {limit} are allowed; nothing was sent"),
        )
        .suggest(format!("Wait {retry_after_seconds} s, and put several points into one message."))
        .detail("count", count)
        .detail("limit", limit)
        .detail("retry_after_seconds", retry_after_seconds)
    }

    /// A key has reached its daily storage quota. `key` is its id, or the word for callers without a key.
    pub fn quota_exceeded(key: &str, count: u64, limit: u64, until: Timestamp) -> Self {
        let owner = quota_owner(key);
        let left = limit.saturating_sub(count);
        let [stored, allowed, rest] = [count, limit, left].map(megabytes);
        let error = format!(
            "storage quota of {owner}: {stored} of {allowed} were used in the last {} hours, {rest} are left; nothing \
             was sent",
            limits::QUOTA_HOURS
        );
        Self::new(ErrorCode::QuotaExceeded, error)
            .suggest(format!(
                "There is room for this message at {until}. Write long texts to a file and send its path. Reading \
                 still works. The administrator of the coordinator can raise the quota (--store-quota)."
            ))
            .detail("count", count)
            .detail("limit", limit)
            .detail("left", left)
            .detail("until", until.to_string())
    }

    /// A key has reached its limit of agents; `key` as in [`Self::quota_exceeded`].
    pub fn too_many_agents(key: &str, count: usize, limit: usize) -> Self {
        let owner = quota_owner(key);
        let error = format!(
            "agent limit of {owner}: {count} of {limit} agents exist; no agent was created"
        );
        Self::new(ErrorCode::QuotaExceeded, error)
            .suggest(
                "`c3po agents` lists them; `c3po agents rm NAME` deletes one with its messages.",
            )
            .detail("count", count)
            .detail("limit", limit)
    }

    /// A new name differs from that of an existing agent only in case.
    pub fn alike(name: &AgentId, known: &AgentId) -> Self {
        Self::new(ErrorCode::Conflict, format!("{name} differs from the existing agent {known} only in case"))
            .suggest(format!(
                "Use {known} or a different name: C3PO_AGENT_ID for a session, --as for a command. `c3po agents rm \
                 {known}` deletes that agent with its messages."
            ))
            .detail("nearest", vec![known.as_str()])
    }

    /// Two agents reached the limit of messages without a person.
    pub fn loop_suspected(agents: [&AgentId; 2], count: u32, limit: u32) -> Self {
        let [one, other] = agents;
        let minutes = limits::LOOP_WINDOW.as_secs() / 60;
        let error = format!(
            "{one} and {other} sent each other {count} messages in {minutes} minutes without a person; at most {limit} \
             are allowed; nothing was sent"
        );
        Self::guarded(agents, error)
            .detail("count", count)
            .detail("limit", limit)
    }

    /// A person stopped the messages between two agents.
    pub fn pair_stopped(agents: [&AgentId; 2]) -> Self {
        let [one, other] = agents;
        Self::guarded(
            agents,
            format!("a person stopped messages between {one} and {other}; nothing was sent"),
        )
    }

    /// Refuses a message between two agents until a person allows it.
    fn guarded(agents: [&AgentId; 2], error: String) -> Self {
        let [one, other] = agents.map(AgentId::as_str);
        Self::new(ErrorCode::LoopSuspected, error)
            .suggest(format!(
                "Stop here and ask your user to run `c3po-coordinator guard allow {one} {other}` on the coordinator's \
                 machine, or `c3po guard allow {one} {other}` with an admin key."
            ))
            .detail("agents", vec![one, other])
    }

    /// An agent that waits for an answer, perhaps through others, waits for the sender of this message. `cycle` holds the
    /// messages whose answers they wait for; the last is one to the sender.
    pub fn would_deadlock(message: &MessageId, cycle: &[MessageId]) -> Self {
        let waits: Vec<_> = cycle
            .iter()
            .map(|id| format!("{} waits for {}", id.from(), id.to()))
            .collect();
        let error = format!(
            "waiting for {} would be a deadlock: {}",
            message.to(),
            waits.join(", ")
        );
        let agents = cycle
            .iter()
            .map(MessageId::from)
            .chain([message.from(), message.to()]);
        let agents: Vec<_> = agents.map(|agent| agent.to_string()).collect();
        let refusal = Self::new(ErrorCode::WouldDeadlock, error).detail("cycle", agents);
        match cycle.last() {
            Some(first) => refusal.detail("message_id", first.as_str()),
            None => refusal,
        }
    }

    /// Too many questions to people are open: of this agent, of its host, or in total.
    pub fn too_many_questions(count: usize, limit: usize) -> Self {
        let whose = match limit {
            limits::QUESTIONS_PER_AGENT => "you have",
            limits::QUESTIONS_PER_HOST => "the agents of your host have",
            _ => "people have",
        };
        let error = format!("{whose} {count} open questions to people; the limit is {limit}");
        Self::new(ErrorCode::TooManyQuestions, error)
            .detail("count", count)
            .detail("limit", limit)
    }

    /// Too many wrong codes in the last minute.
    pub fn too_many_codes(
        what: &str,
        suggestion: &str,
        count: u32,
        limit: u32,
        retry_after_seconds: u64,
    ) -> Self {
        let error =
            format!("wrong {what}; too many wrong codes in the last minute ({count} of {limit})");
        Self::new(ErrorCode::RateLimited, error)
            .suggest(format!("{suggestion} Correct codes are still accepted."))
            .detail("count", count)
            .detail("limit", limit)
            .detail("retry_after_seconds", retry_after_seconds)
    }

    /// One session has reached its limit of calls in flight.
    pub fn too_many_calls() -> Self {
        let limit = limits::CALLS_IN_FLIGHT;
        let error = format!("this session has {limit} calls in progress, which is the limit");
        Self::new(ErrorCode::RateLimited, error)
            .suggest("Wait until some of them have returned.")
            .detail("count", limit)
            .detail("limit", limit)
    }

    /// The coordinator has reached its connection limit.
    pub fn no_place(limit: usize) -> Self {
        let error = format!("the coordinator has reached its limit of {limit} connections");
        Self::new(ErrorCode::CoordDown, error)
            .suggest(
                "c3po retries automatically; the administrator of the coordinator can give it more memory or file \
                 descriptors.",
            )
            .detail("count", limit)
            .detail("limit", limit)
    }

    /// The coordinator cannot reach its store.
    pub fn store_unavailable() -> Self {
        let error = "the coordinator cannot reach its store; it is unknown whether this was done";
        Self::new(ErrorCode::StoreUnavailable, error).detail("applied", "unknown")
    }

    /// The coordinator's store is full.
    pub fn store_full() -> Self {
        let error = "the coordinator's store is full; nothing was done";
        Self::new(ErrorCode::StoreUnavailable, error)
            .advise(Advice::StoreFull)
            .detail("applied", "no")
    }
}

/// Returns the owner of a quota, from the id of its key or the word for callers without a key.
fn quota_owner(key: &str) -> String {
    match key {
        "anybody" => "clients without a key".to_owned(),
        "token" => "clients with the token".to_owned(),
        id => format!("the key {id}"),
    }
}

/// Formats a number of bytes as megabytes.
fn megabytes(bytes: u64) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes % 1_000_000 / 100_000)
}

impl From<IdError> for Refusal {
    fn from(error: IdError) -> Self {
        Self::invalid(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_error_and_the_next_step() {
        let refusal =
            Refusal::agent_not_found("meshtastik", &["meshtastic".parse().expect("an id")]);
        assert_eq!(
            serde_json::to_value(&refusal).expect("a refusal is JSON"),
            serde_json::json!({
                "error": "no agent named meshtastik", "code": "AGENT_NOT_FOUND",
                "suggestion": "Did you mean meshtastic? list_agents lists all agents.", "advice": "list_agents",
                "details": {"nearest": ["meshtastic"]},
            })
        );
        for code in ErrorCode::ALL {
            assert!(code.suggestion().ends_with('.'), "{code}");
        }
    }

    #[test]
    fn an_advice_that_is_not_known_is_no_error() {
        let text = r#"{"error": "no", "code": "FORBIDDEN", "suggestion": "Stop.", "advice": "of a later build"}"#;
        let refusal: Refusal = serde_json::from_str(text).expect("a refusal");
        assert_eq!(
            (refusal.suggestion.as_str(), refusal.advice),
            ("Stop.", None)
        );
    }

    #[test]
    fn a_long_text_of_the_request_is_cut_in_the_error() {
        let refusal = Refusal::invalid(format!("unknown field `{}`", "é".repeat(500_000)));
        assert!(
            refusal.error.len() < 3_000 && refusal.error.ends_with('…'),
            "{}",
            refusal.error.len()
        );
        assert_eq!(Refusal::invalid("short").error, "short");
    }

    #[test]
    fn refusals_by_a_limit_name_the_limit_and_the_count() {
        for refusal in [
            Refusal::too_large("message", 50_001, 50_000),
            Refusal::inbox_full(&AgentId::human(), 1_000),
            Refusal::rate_limited(200, 200, 12),
            Refusal::quota_exceeded("0a1b2c3d", 255_000_000, 256_000_000, Timestamp::default()),
            Refusal::too_many_agents("anybody", 1_000, 1_000),
            Refusal::loop_suspected([&AgentId::human(), &AgentId::system()], 60, 60),
            Refusal::too_many_codes("join code", "Get another one.", 30, 30, 12),
            Refusal::no_place(19_936),
            Refusal::too_many_questions(20, 20),
        ] {
            assert!(
                refusal.details.contains_key("limit") && refusal.details.contains_key("count"),
                "{refusal}"
            );
        }
    }
}
