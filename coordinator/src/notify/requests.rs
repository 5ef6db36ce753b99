//! The requests about a push to the server of a person.

use axum::http::Method;

use super::client::{Ask, ClientError, send};
use super::config::Person;
use super::render::Push;
use super::reply::Line;

/// Publishes a push. Returns the response.
pub(super) async fn publish(person: &Person, push: &Push) -> Result<String, ClientError> {
    let body = serde_json::to_string(push);
    let ask = Ask {
        method: Method::POST,
        path: "/",
        token: person.token.as_ref(),
        body: body.map_err(|error| ClientError::Unreachable(error.to_string()))?,
    };
    send(&person.server, ask).await
}

/// Deletes a push. A server that cannot delete is left alone.
pub(super) async fn delete(person: &Person, sequence: &str) -> Result<(), ClientError> {
    let path = format!("/{}/{sequence}", person.topic);
    let ask = Ask {
        method: Method::DELETE,
        ..Ask::get(&path, person.token.as_ref())
    };
    match send(&person.server, ask).await {
        Ok(_)
        | Err(ClientError::Refused {
            status: 404 | 405, ..
        }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns whether the server has accepted this push, and not deleted it. A server without sequence ids is asked for the text.
pub(super) async fn is_there(person: &Person, push: &Push) -> Result<bool, ClientError> {
    let path = format!("/{}/json?poll=1&since=all", person.topic);
    let ask = Ask::get(&path, person.token.as_ref());
    let messages = send(&person.server, ask).await?;
    let mut newest_first = messages
        .lines()
        .rev()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let last = newest_first.find(|line| push.is(line));
    Ok(last.is_some_and(|line| line.event == "message"))
}
