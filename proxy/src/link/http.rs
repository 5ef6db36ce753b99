//! One HTTP request to a coordinator, for what is no call on a link: trusted as the link is.

use std::io;
use std::time::Duration;

use c3po_shared::refusal::{ErrorCode, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::http::Uri;

use super::stream::{self, DialError};
use super::trust::Trust;

/// How long everything may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes: a list of all agents is one.
const ANSWER_MAX: u64 = 16 << 20;

/// Posts JSON, which may be none, to a path of the coordinator at a URL such as `https://nas:8420`, with further header
/// lines. Returns status and body of the answer.
///
/// Errors: `COORD_DOWN` where nobody answers in time, `UNAUTHORIZED` where the certificate is none that is trusted.
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

/// Gets a path of the coordinator at a URL, with further header lines. Returns status and body of the answer.
///
/// Errors: as of [`post_json`].
pub(crate) async fn get(
    url: &str,
    trust: &Trust,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<(u16, String), Refusal> {
    ask(url, trust, |uri| request(uri, "GET", path, headers, "")).await
}

async fn ask(
    url: &str,
    trust: &Trust,
    request: impl Fn(&Uri) -> Result<String, Refusal>,
) -> Result<(u16, String), Refusal> {
    let down = |why: String| Refusal::new(ErrorCode::CoordDown, format!("no coordinator at {url}: {why}"));
    let uri: Uri = url.parse().map_err(|_| Refusal::invalid(format!("'{url}' is no URL")))?;
    let request = request(&uri)?;
    match timeout(DEADLINE, exchange(&uri, trust, &request)).await {
        Ok(Ok(answer)) => parse(&answer).ok_or_else(|| down("it does not speak HTTP".to_owned())),
        Ok(Err(DialError::Refused(refusal))) => Err(refusal),
        Ok(Err(DialError::Failed(why))) => Err(down(why)),
        Err(_) => Err(down(format!("no answer within {} s", DEADLINE.as_secs()))),
    }
}

/// Returns the request as text. In HTTP 1.0, so that the answer comes in one piece and ends with the connection.
fn request(uri: &Uri, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Result<String, Refusal> {
    let broken = headers.iter().any(|(name, value)| format!("{name}{value}").contains(char::is_control));
    let Some(authority) = uri.authority().filter(|_| !broken) else {
        return Err(Refusal::invalid("a request needs a host, and headers of one line"));
    };
    let before = uri.path().trim_end_matches('/');
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    Ok(format!(
        "{method} {before}{path} HTTP/1.0\r\nHost: {authority}\r\n{headers}Content-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    ))
}

async fn exchange(uri: &Uri, trust: &Trust, request: &str) -> Result<String, DialError> {
    let failed = |error: io::Error| DialError::Failed(error.to_string());
    let mut stream = stream::connect(uri, trust).await?;
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    stream.flush().await.map_err(failed)?;
    let mut answer = Vec::new();
    match stream.take(ANSWER_MAX).read_to_end(&mut answer).await {
        // An end without TLS's own goodbye is an end; what has come is checked against its length.
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(failed(error)),
        _ => Ok(String::from_utf8_lossy(&answer).into_owned()),
    }
}

/// Returns status and body of an answer that is whole.
fn parse(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let is_length = |line: &&str| line.to_ascii_lowercase().starts_with("content-length:");
    let length = head.lines().find(is_length).and_then(|line| line.split_once(':')?.1.trim().parse::<usize>().ok());
    length.is_none_or(|length| length == body.len()).then(|| (status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "Content-Type: application/json\r\n";

    #[test]
    fn requests_are_addressed_below_the_url() {
        let check = |url: &str, expected: &str| {
            let text = request(&url.parse().unwrap(), "POST", "/api/join", &[("X-A", "b")], "{}").unwrap();
            assert_eq!(text, format!("{expected}\r\nX-A: b\r\n{TYPE}Content-Length: 2\r\n\r\n{{}}"));
        };
        check("https://nas:8420", "POST /api/join HTTP/1.0\r\nHost: nas:8420");
        check("https://nas/c3po/", "POST /c3po/api/join HTTP/1.0\r\nHost: nas");
        let url = "http://nas".parse().unwrap();
        assert!(request(&url, "GET", "/", &[("X-A", "b\r\nX-C: d")], "").is_err());
        assert!(request(&"/nowhere".parse().unwrap(), "GET", "/", &[], "").is_err());
    }

    #[test]
    fn answers_are_read_where_they_are_whole() {
        assert_eq!(parse("HTTP/1.0 409 Conflict\r\nContent-Length: 2\r\n\r\nno"), Some((409, "no".to_owned())));
        assert_eq!(parse("HTTP/1.1 200 OK\r\n\r\nyes"), Some((200, "yes".to_owned())));
        for answer in ["", "SSH-2.0\r\n\r\n", "HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nno", "HTTP/1.1 200 OK\r\n"] {
            assert_eq!(parse(answer), None, "{answer}");
        }
    }
}
