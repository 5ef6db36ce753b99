//! The right by which a caller acts as an agent, as functions check it, and their refusals.

use redis::Value;

use super::library::Call;
use super::records::{corrupt, read};
use crate::store::{Result, Speaker, StoreError, Tenure};

/// Returns the calling session in the form that functions expect; empty for a person.
pub(super) fn session_argument(tenure: Option<&Tenure>) -> String {
    tenure
        .map(|tenure| format!("{} {}", tenure.generation, tenure.instance))
        .unwrap_or_default()
}

/// Returns the key of the calling session for the log; empty if it has none.
pub(super) fn key_argument(tenure: Option<&Tenure>) -> &str {
    tenure
        .and_then(|tenure| tenure.key.as_deref())
        .unwrap_or_default()
}

/// Adds the agent, the session and the host of a speaker, as functions check them.
pub(super) fn describe_speaker(call: &mut Call, speaker: Option<&Speaker>) {
    let agent = speaker.map_or("", |speaker| speaker.agent().as_str());
    let (session, host) = match speaker {
        Some(Speaker::Session(tenure)) => (session_argument(Some(tenure)), ""),
        Some(Speaker::OfHost(_, host)) => (String::new(), host.as_str()),
        None => (String::new(), ""),
    };
    call.arg(agent).arg(session).arg(host);
}

/// Returns the result of a function, unless it refused the speaker.
pub(super) fn unless_refused(speaker: Option<&Speaker>, result: Value) -> Result<Value> {
    let Value::Array(items) = &result else {
        return Ok(result);
    };
    match items.first() {
        Some(Value::BulkString(word)) if items.len() <= 2 && is_refusal(word) => {
            Err(refused_speaker(speaker, items))
        }
        _ => Ok(result),
    }
}

fn is_refusal(word: &[u8]) -> bool {
    matches!(word, b"outdated" | b"reserved")
}

/// Returns the error of a function that refused the speaker: `reserved` with the host of the agent, or `outdated`.
pub(super) fn refused_speaker(speaker: Option<&Speaker>, refusal: &[Value]) -> StoreError {
    let Some(name) = speaker.map(|speaker| speaker.agent().clone()) else {
        return corrupt("a refusal of no speaker");
    };
    match refusal.get(1).map(read) {
        Some(Ok(host)) => StoreError::Reserved { name, host },
        Some(Err(error)) => error,
        None => StoreError::TakenOver(name),
    }
}
