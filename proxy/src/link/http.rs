//! One HTTP request to a coordinator, outside a link, with the same trust as the link.

use std::io;
use std::time::Duration;

use c3po_shared::refusal::{Advice, Refusal};
use serde::de::IgnoredAny;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::http::Uri;

use super::failed::{DialError, Stage};
use super::stream::{self, Stream};
use super::trust::Trust;

/// Deadline of the whole request.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time and bytes for identifying a program that is not a coordinator.
const WHO_MAX: (Duration, u64) = (Duration::from_secs(1), 4 << 10);
/// How many characters of a first line are shown.
const LINE_MAX: usize = 60;
/// The longest answer that is read, in bytes. A list of all agents is one answer.
const ANSWER_MAX: u64 = 16 << 20;

/// Posts JSON, which may be none, to a path of the coordinator at a URL such as `https://nas:8420`, with further header
/// lines. Returns status and body of the answer.
///
/// Errors: `COORD_DOWN` without an answer in time, `UNAUTHORIZED` if the certificate is not trusted.
pub(crate) async fn post_json(
    url: &str,
    trust: &Trust,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<(u16, String), Refusal> {
    let request = |uri: &Uri| request(uri, "POST", path, headers, body);
    ask(url, trust, request).await
}

/// Gets a path of the coordinator at a URL, with extra headers. Returns status and body of the answer.
///
/// Errors: as for [`post_json`].
pub(crate) async fn get(
    url: &str,
    trust: &Trust,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(u16, String), Refusal> {
    ask(url, trust, |uri| request(uri, "GET", path, headers, "")).await
}

/// Deletes a path of the coordinator at a URL, with extra headers. Returns status and body of the answer.
///
/// Errors: as for [`post_json`].
pub(crate) async fn delete(
    url: &str,
    trust: &Trust,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(u16, String), Refusal> {
    let request = |uri: &Uri| request(uri, "DELETE", path, headers, "");
    ask(url, trust, request).await
}

async fn ask(
    url: &str,
    trust: &Trust,
    request: impl Fn(&Uri) -> Result<String, Refusal>,
) -> Result<(u16, String), Refusal> {
    let uri: Uri = url
        .parse()
        .map_err(|_| Refusal::invalid(format!("'{url}' is not a URL")))?;
    let (request, stage) = (request(&uri)?, Stage::default());
    let outcome = match timeout(DEADLINE, exchange(&uri, trust, &request, &stage)).await {
        Ok(Ok(answer)) => answered(&answer).ok_or_else(|| another_program(&answer)),
        Ok(Err(error)) => Err(named(error, &uri, trust).await),
        Err(_) => Err(stage.gave_up(DEADLINE)),
    };
    outcome.map_err(|error| error.into_refusal(url))
}

/// Returns the dial error; if another program answers at that address, the error names it.
pub(super) async fn named(error: DialError, uri: &Uri, trust: &Trust) -> DialError {
    let secure = match &error {
        DialError::Failed {
            advice: Advice::WriteHttp,
            ..
        } => false,
        DialError::Failed {
            advice: Advice::AnotherProgram,
            ..
        } => stream::is_secure(uri),
        _ => return error,
    };
    let mut answer = Vec::new();
    // The bytes read until then are enough.
    let _ = timeout(WHO_MAX.0, look(uri, secure.then_some(trust), &mut answer)).await;
    let answer = String::from_utf8_lossy(&answer);
    if answer.is_empty() || answered(&answer).is_some() {
        error
    } else {
        another_program(&answer)
    }
}

/// Reads a program's answer to a request for a coordinator: over TLS, if a trust is given.
async fn look(uri: &Uri, trust: Option<&Trust>, answer: &mut Vec<u8>) -> Result<(), DialError> {
    let stage = Stage::default();
    let mut stream = match trust {
        Some(trust) => stream::connect(uri, trust, &stage).await?,
        None => Stream::Plain(stream::connect_plainly(uri, &stage).await?),
    };
    let failed = |error: io::Error| DialError::of_connecting(&error);
    stream
        .write_all(b"GET /api/health HTTP/1.0\r\n\r\n")
        .await
        .map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    stream
        .take(WHO_MAX.1)
        .read_to_end(answer)
        .await
        .map(drop)
        .map_err(failed)
}

/// Returns the error for an answer of another program, with its first line and server name.
fn another_program(answer: &str) -> DialError {
    let first: String = answer
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    let shown: String = first.trim().chars().take(LINE_MAX).collect();
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let server = head.lines().find_map(|line| {
        line.split_once(':')
            .filter(|(name, _)| name.eq_ignore_ascii_case("server"))
    });
    let server: String = server
        .map(|(_, name)| name.trim().chars().take(LINE_MAX).collect())
        .unwrap_or_default();
    let why = match (shown.as_str(), server.as_str()) {
        ("", _) => "it accepts connections, but closes them without an answer".to_owned(),
        (line, "") => format!("another program listens there: it answers '{line}'"),
        (line, server) => {
            format!("another program listens there: {server}, which answers '{line}'")
        }
    };
    DialError::failed(why, Advice::AnotherProgram)
}

/// Returns the request as text. It is HTTP 1.0, so the answer is not chunked and ends with the connection.
fn request(
    uri: &Uri,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<String, Refusal> {
    let broken = headers
        .iter()
        .any(|(name, value)| format!("{name}{value}").contains(char::is_control));
    let Some(authority) = uri.authority().filter(|_| !broken) else {
        return Err(Refusal::invalid(
            "a request needs a host, and headers of one line",
        ));
    };
    let before = uri.path().trim_end_matches('/');
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    Ok(format!(
        "{method} {before}{path} HTTP/1.0\r\nHost: {authority}\r\n{headers}Content-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ))
}

async fn exchange(
    uri: &Uri,
    trust: &Trust,
    request: &str,
    stage: &Stage,
) -> Result<String, DialError> {
    let failed = |error: io::Error| DialError::of_connecting(&error);
    let mut stream = stream::connect(uri, trust, stage).await?;
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_MAX).read_to_end(&mut answer).await {
        // An end without a TLS close is an end; the length of the body is checked later.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof && answer.is_empty() => {
            Err(failed(error))
        }
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Returns status and body if the answer is complete and a coordinator's. A coordinator's body is JSON or empty.
fn answered(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head
        .strip_prefix("HTTP/1.")?
        .split(' ')
        .nth(1)?
        .parse()
        .ok()?;
    let is_length = |line: &&str| line.to_ascii_lowercase().starts_with("content-length:");
    let length = head
        .lines()
        .find(is_length)
        .and_then(|line| line.split_once(':')?.1.trim().parse::<usize>().ok());
    let is_whole = length.is_none_or(|length| length == body.len());
    let is_ours = if body.is_empty() {
        (200..300).contains(&status)
    } else {
        serde_json::from_str::<IgnoredAny>(body).is_ok()
    };
    (is_whole && is_ours).then(|| (status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "Content-Type: application/json\r\n";

    #[test]
    fn requests_are_addressed_below_the_url() {
        let check = |url: &str, expected: &str| {
            let text = request(
                &url.parse().unwrap(),
                "POST",
                "/api/join",
                &[("X-A", "b")],
                "{}",
            )
            .unwrap();
            assert_eq!(
                text,
                format!("{expected}\r\nX-A: b\r\n{TYPE}Content-Length: 2\r\n\r\n{{}}")
            );
        };
        check(
            "https://nas:8420",
            "POST /api/join HTTP/1.0\r\nHost: nas:8420",
        );
        check(
            "https://nas/c3po/",
            "POST /c3po/api/join HTTP/1.0\r\nHost: nas",
        );
        let url = "http://nas".parse().unwrap();
        assert!(request(&url, "GET", "/", &[("X-A", "b\r\nX-C: d")], "").is_err());
        assert!(request(&"/nowhere".parse().unwrap(), "GET", "/", &[], "").is_err());
    }

    #[test]
    fn answers_are_read_where_they_are_whole() {
        assert_eq!(
            answered("HTTP/1.0 409 Conflict\r\nContent-Length: 2\r\n\r\n{}"),
            Some((409, "{}".to_owned()))
        );
        assert_eq!(
            answered("HTTP/1.1 200 OK\r\n\r\n"),
            Some((200, String::new()))
        );
        for answer in [
            "",
            "SSH-2.0\r\n\r\n",
            "HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 404 Not Found\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n<html>",
        ] {
            assert_eq!(answered(answer), None, "{answer}");
        }
    }

    #[test]
    fn another_program_is_named_by_its_answer() {
        let check = |answer: &str, expected: &str| {
            assert_eq!(another_program(answer).to_string(), expected)
        };
        check(
            "SSH-2.0-OpenSSH_9.2\r\n",
            "another program listens there: it answers 'SSH-2.0-OpenSSH_9.2'",
        );
        check(
            "HTTP/1.1 404 Not Found\r\nServer: nginx/1.24.0\r\n\r\n<html>",
            "another program listens there: nginx/1.24.0, which answers 'HTTP/1.1 404 Not Found'",
        );
        check(
            "\u{1b}[31m-ERR\r\n",
            "another program listens there: it answers '[31m-ERR'",
        );
        check(
            "",
            "it accepts connections, but closes them without an answer",
        );
    }
}
