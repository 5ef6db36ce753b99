//! A single HTTP request to a local address, without a client library.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Each request here is answered at once, unless something is broken.
const ANSWER: Duration = Duration::from_secs(10);

/// A response.
#[derive(Debug)]
pub struct Answer {
    /// The status, such as 200.
    pub status: u16,
    /// The head as received, including the status line.
    pub head: String,
    /// The body.
    pub body: String,
}

/// Sends a GET request for a path.
///
/// Errors: the address is not reachable, or there is no response in time.
pub async fn get(address: SocketAddr, path: &str) -> Result<Answer> {
    request(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"),
    )
    .await
}

/// Posts JSON to a path, with additional headers.
///
/// Errors: the address is not reachable, or there is no response in time.
pub async fn post(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Result<Answer> {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let length = body.len();
    request(
        address,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n{headers}\r\n{body}"
        ),
    )
    .await
}

/// Sends a request as given, and reads until the server closes the connection.
///
/// Errors: the address is not reachable, or there is no response in time.
pub async fn request(address: SocketAddr, text: &str) -> Result<Answer> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.context("connecting")?;
        stream
            .write_all(text.as_bytes())
            .await
            .context("sending the request")?;
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .await
            .context("reading the answer")?;
        anyhow::Ok(answer)
    };
    let answer = timeout(ANSWER, exchange)
        .await
        .with_context(|| format!("{address} did not answer in time"))??;
    parse(&String::from_utf8_lossy(&answer))
}

/// Sends a request, and reads until the response is as long as its head says, for a server that keeps connections open.
///
/// Errors: the address is not reachable, or there is no response in that time.
pub async fn request_of_length(
    address: SocketAddr,
    text: &str,
    deadline: Duration,
) -> Result<Answer> {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await.context("connecting")?;
        stream.write_all(text.as_bytes()).await?;
        let mut answer = Vec::new();
        while !is_whole(&String::from_utf8_lossy(&answer)) {
            let read = stream.read_buf(&mut answer).await?;
            ensure!(read > 0, "the answer ends early");
        }
        anyhow::Ok(answer)
    };
    let answer = timeout(deadline, exchange)
        .await
        .with_context(|| format!("{address} did not answer in time"))??;
    parse(&String::from_utf8_lossy(&answer))
}

fn is_whole(answer: &str) -> bool {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    length.is_none_or(|length| body.len() >= length.trim().parse().unwrap_or_default())
}

fn parse(text: &str) -> Result<Answer> {
    let (head, body) = text
        .split_once("\r\n\r\n")
        .context("an answer without an end of its head")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("no status")?;
    let chunked = head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked");
    let body = if chunked {
        join_chunks(body)
    } else {
        body.to_owned()
    };
    Ok(Answer {
        status,
        head: head.to_owned(),
        body,
    })
}

fn join_chunks(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(chunk) = after.get(..size).filter(|chunk| !chunk.is_empty()) else {
            break;
        };
        body.push_str(chunk);
        rest = after[size..].trim_start_matches("\r\n");
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_plain_and_in_chunks() -> Result<()> {
        let plain = parse("HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno")?;
        assert_eq!((plain.status, plain.body.as_str()), (404, "no"));
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        assert_eq!(parse(chunked)?.body, "abcde");
        Ok(())
    }
}
