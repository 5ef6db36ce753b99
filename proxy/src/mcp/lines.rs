//! The client's messages, one per line: read with a size limit, with JSON-RPC errors for malformed lines.

use c3po_shared::surrogates;
use rmcp::model::ClientJsonRpcMessage;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::stdio::Input;

/// The longest line, in bytes: several times the longest call.
const LINE_MAX: usize = 16 << 20;
/// Some programs write this before the first character.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// JSON-RPC's number for malformed JSON.
const PARSE_ERROR: i32 = -32700;
/// JSON-RPC's code for JSON that is not a message.
const INVALID_REQUEST: i32 = -32600;

/// Reads a client's messages.
pub(super) struct Lines {
    input: BufReader<Input>,
    /// The part of the line that was read.
    line: Vec<u8>,
    /// Whether the rest of the line is skipped because it is too long.
    passes_over: bool,
}

/// A line that is not a message.
#[derive(Debug, PartialEq)]
pub(super) struct Unreadable {
    code: i32,
    why: String,
    /// The request's id if it can be read; else null, as JSON-RPC requires.
    id: Value,
}

impl Unreadable {
    /// Returns the error response, as a line.
    pub(super) fn answer(&self) -> String {
        let error = json!({"code": self.code, "message": self.why});
        format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": self.id, "error": error})
        )
    }
}

impl Lines {
    pub(super) fn new(input: Input) -> Self {
        Self {
            input: BufReader::new(input),
            line: Vec::new(),
            passes_over: false,
        }
    }

    /// Returns the next message, or the error of a line; `None` at the end of the input. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Result<ClientJsonRpcMessage, Unreadable>> {
        loop {
            let room = u64::try_from(LINE_MAX - self.line.len()).unwrap_or_default();
            // The beginning of a line stays here if this is dropped half-way.
            let read = (&mut self.input)
                .take(room)
                .read_until(b'\n', &mut self.line)
                .await;
            if !read.is_ok_and(|count| count > 0) {
                return None;
            }
            let is_whole = self.line.ends_with(b"\n");
            if !is_whole && self.line.len() < LINE_MAX {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let is_rest = std::mem::replace(&mut self.passes_over, !is_whole);
            let outcome = match (is_rest, is_whole) {
                (true, _) => None,
                (false, true) => message(&line),
                (false, false) => {
                    let why = format!("Invalid request: a line of more than {LINE_MAX} bytes");
                    Some(Err(Unreadable {
                        code: INVALID_REQUEST,
                        why,
                        id: Value::Null,
                    }))
                }
            };
            if outcome.is_some() {
                return outcome;
            }
        }
    }
}

/// Parses a line. Returns `None` for a line that is not a message and needs no response.
fn message(line: &[u8]) -> Option<Result<ClientJsonRpcMessage, Unreadable>> {
    let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
    if line.trim_ascii().is_empty() {
        return None;
    }
    match surrogates::parse(line) {
        Ok(message) => Some(Ok(message)),
        Err(error) => unreadable(line, &error).map(Err),
    }
}

/// The id of a line whose other members cannot be parsed, such as arguments that are nested too deeply.
#[derive(Deserialize)]
struct OnlyId {
    #[serde(default)]
    id: Value,
}

/// Returns the id of a request.
fn request_id(id: &Value) -> Option<Value> {
    Some(id)
        .filter(|id| id.is_string() || id.is_number())
        .cloned()
}

fn unreadable(line: &[u8], error: &serde_json::Error) -> Option<Unreadable> {
    let value: Value = match surrogates::parse(line) {
        Ok(value) => value,
        Err(error) => {
            let id = serde_json::from_slice::<OnlyId>(line)
                .ok()
                .and_then(|line| request_id(&line.id));
            let why = format!("Parse error: {error}");
            return Some(Unreadable {
                code: PARSE_ERROR,
                why,
                id: id.unwrap_or_default(),
            });
        }
    };
    let has = |member: &str| value.get(member).is_some();
    let is_notification = value.get("method").is_some_and(Value::is_string) && !has("id");
    let is_response = !has("method") && (has("result") || has("error"));
    if is_notification || is_response {
        // JSON-RPC does not answer notifications or responses.
        tracing::debug!("ignored a notification or response: {error}");
        return None;
    }
    let id = value.get("id").and_then(request_id).unwrap_or_default();
    Some(Unreadable {
        code: INVALID_REQUEST,
        why: format!("Invalid request: {error}"),
        id,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    fn lines(size: usize) -> (tokio::io::DuplexStream, Lines) {
        let (writer, reader) = tokio::io::duplex(size);
        (writer, Lines::new(Box::new(reader)))
    }

    const REQUEST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n";

    #[tokio::test]
    async fn a_line_of_any_length_is_read_whole_or_refused_and_the_next_one_is_read() {
        let (mut writer, mut lines) = lines(1 << 16);
        let writing = async move {
            for length in [LINE_MAX - 1, LINE_MAX, 2 * LINE_MAX + 1] {
                writer.write_all(&vec![b' '; length]).await.unwrap();
                writer.write_all(b"\n").await.unwrap();
                writer.write_all(REQUEST).await.unwrap();
            }
            writer.write_all(b"half a line").await.unwrap();
        };
        let reading = async {
            assert!(
                lines.next().await.unwrap().is_ok(),
                "spaces of a bearable length are passed over"
            );
            for _ in 0..2 {
                let refused = lines.next().await.unwrap().unwrap_err();
                assert_eq!((refused.code, refused.id), (INVALID_REQUEST, Value::Null));
                assert!(lines.next().await.unwrap().is_ok());
            }
            assert!(lines.next().await.is_none());
        };
        tokio::join!(writing, reading);
    }

    #[tokio::test]
    async fn a_read_that_is_dropped_half_way_loses_nothing() {
        let (mut writer, mut lines) = lines(64);
        let (begin, rest) = REQUEST.split_at(10);
        writer.write_all(begin).await.unwrap();
        let dropped =
            tokio::time::timeout(std::time::Duration::from_millis(20), lines.next()).await;
        assert!(dropped.is_err());
        writer.write_all(rest).await.unwrap();
        assert!(lines.next().await.unwrap().is_ok());
    }
}
