//! REST requests about the coordinator and its agents, with the coordinators, key and trusted certificates of a link.

use std::time::Duration;

use c3po_shared::ids::AgentId;
use c3po_shared::refusal::{ErrorCode, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::timeout;
use uuid::Uuid;

use super::failure::Failure;
use crate::config::{Config, as_written};
use crate::link::{self, Trust, http};

/// How long a coordinator may take to read if there is another one to try.
const READ_MAX: Duration = Duration::from_secs(3);
/// The same for a change: the rename of a host takes five seconds and more.
const CHANGE_MAX: Duration = Duration::from_secs(10);

/// A parsed reply, its original JSON, and the coordinator that sent it.
pub(super) struct RestReply<T> {
    pub(super) read: T,
    pub(super) raw: Box<RawValue>,
    pub(super) coordinator: String,
}

/// A request.
enum Question {
    /// A GET of that path, with its query string.
    Get(String),
    /// An action that is safe to repeat, with its body.
    Post(String, String),
}

/// Sends a query to the coordinators until one answers, as the configured agent.
pub(super) async fn get<T: DeserializeOwned>(
    config: &Config,
    path: &str,
    question: &impl Serialize,
) -> Result<RestReply<T>, Failure> {
    let question =
        serde_json::to_value(question).map_err(|error| Failure::Usage(error.to_string()))?;
    ask(
        config,
        &Question::Get(format!("{path}{}", query(&question))),
    )
    .await
}

/// Sends an action to the coordinators until one answers. A slow one may have done it already, so it must be repeatable.
pub(super) async fn post<T: DeserializeOwned>(
    config: &Config,
    path: &str,
    body: &impl Serialize,
) -> Result<RestReply<T>, Failure> {
    let body = serde_json::to_string(body).map_err(|error| Failure::Usage(error.to_string()))?;
    ask(config, &Question::Post(path.to_owned(), body)).await
}

async fn ask<T: DeserializeOwned>(
    config: &Config,
    question: &Question,
) -> Result<RestReply<T>, Failure> {
    let trust = Trust::new(config.coordinators.fingerprints.clone());
    let bearer = config
        .coordinators
        .token
        .as_ref()
        .map(|token| format!("Bearer {}", token.expose()));
    // A slow coordinator may have done it: another one then knows the request by this key.
    let key = Uuid::now_v7().to_string();
    let mut headers = vec![("X-Agent-ID", config.agent.as_str())];
    // A header has no other characters. Coordinators use the host of a key instead, if there is one.
    let host =
        Some(config.host.as_str()).filter(|host| host.bytes().all(|byte| byte.is_ascii_graphic()));
    headers.extend(host.map(|host| ("X-Agent-Host", host)));
    if matches!(question, Question::Post(..)) {
        headers.push(("Idempotency-Key", &key));
    }
    headers.extend(bearer.as_deref().map(|bearer| ("Authorization", bearer)));
    let mut targets = config.coordinators.urls.iter().peekable();
    let (mut away, mut refused) = (None, None);
    while let Some(target) = targets.next() {
        let coordinator = as_written(target);
        let asked = async {
            match question {
                Question::Get(path) => http::get(&coordinator, &trust, path, &headers).await,
                Question::Post(path, body) => {
                    http::post_json(&coordinator, &trust, path, &headers, body).await
                }
            }
        };
        let turn = match question {
            Question::Get(_) => READ_MAX,
            Question::Post(..) => CHANGE_MAX,
        };
        let asked = if targets.peek().is_some() {
            timeout(turn, asked).await
        } else {
            Ok(asked.await)
        };
        match asked {
            Ok(Ok((status, body))) => {
                return read(coordinator, status, &body)
                    .map_err(|failure| asked_in_vain(failure, question));
            }
            Ok(Err(refusal)) if refusal.code == ErrorCode::CoordDown => away = Some(refusal),
            // For instance an untrusted certificate. Another coordinator may accept us.
            Ok(Err(refusal)) => drop(refused.get_or_insert(refusal)),
            Err(_) => {}
        }
    }
    let nobody = || Refusal::new(ErrorCode::CoordDown, "no coordinator answers");
    Err(link::for_host(
        away.or(refused).unwrap_or_else(nobody),
        &config.coordinators,
    )
    .into())
}

/// Returns the name of this host's person if `human` was refused because that needs a login.
pub(super) fn person(failure: &Failure) -> Option<AgentId> {
    let Failure::Refused(refusal) = failure else {
        return None;
    };
    refusal.details.get("person")?.as_str()?.parse().ok()
}

/// Returns a failure of the store without its note about an unknown outcome: a question changes nothing.
fn asked_in_vain(failure: Failure, question: &Question) -> Failure {
    match (failure, question) {
        (Failure::Refused(refusal), Question::Get(_))
            if refusal.code == ErrorCode::StoreUnavailable =>
        {
            let url = refusal
                .details
                .get("coordinator")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned();
            Failure::Refused(link::of_store(refusal, &url))
        }
        (failure, _) => failure,
    }
}

fn read<T: DeserializeOwned>(
    coordinator: String,
    status: u16,
    body: &str,
) -> Result<RestReply<T>, Failure> {
    let foreign = || {
        let error = format!("{coordinator} answers, but not as a coordinator: HTTP {status}");
        Refusal::new(ErrorCode::NotSupported, error)
            .suggest("Check the URL and the version of the coordinator.")
    };
    if !(200..300).contains(&status) {
        let refusal = serde_json::from_str::<Refusal>(body).unwrap_or_else(|_| foreign());
        return Err(refusal.detail("coordinator", coordinator).into());
    }
    let raw = RawValue::from_string(body.to_owned()).map_err(|_| foreign())?;
    let read = serde_json::from_str(raw.get()).map_err(|_| foreign())?;
    Ok(RestReply {
        read,
        raw,
        coordinator,
    })
}

/// Returns the members of an object as a query string. Null members are left out.
fn query(question: &Value) -> String {
    let members = question
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null());
    let pairs: Vec<_> = members
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={}", escaped(text)),
            value => format!("{name}={}", escaped(&value.to_string())),
        })
        .collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("?{}", pairs.join("&"))
    }
}

fn escaped(text: &str) -> String {
    let shown = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn questions_are_written_behind_the_path() {
        let check = |question: Value, expected: &str| assert_eq!(query(&question), expected);
        check(json!({}), "");
        check(
            json!({"after": 3, "since": null, "agent": "web-1"}),
            "?after=3&agent=web-1",
        );
        check(
            json!({"since": "2026-01-15T10:30:00Z", "x": "ä&b"}),
            "?since=2026-01-15T10%3A30%3A00Z&x=%C3%A4%26b",
        );
    }

    #[test]
    fn answers_are_read_or_reported_as_failures() {
        let failure = |status, body| {
            read::<Value>("http://nas".into(), status, body)
                .err()
                .map(|failure| format!("{failure:?}"))
        };
        assert!(failure(200, "{}").is_none());
        assert!(
            failure(403, r#"{"error":"no","code":"FORBIDDEN","suggestion":"s"}"#)
                .unwrap()
                .contains("Forbidden")
        );
        assert!(
            failure(404, "nginx")
                .unwrap()
                .contains("not as a coordinator")
        );
        assert!(
            failure(200, "<html>")
                .unwrap()
                .contains("not as a coordinator")
        );
    }
}
