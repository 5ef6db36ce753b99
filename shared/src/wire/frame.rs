//! One JSON-RPC 2.0 object: parses incoming frames without copying their bodies, and writes outgoing ones.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::refusal::{ErrorCode, Refusal};

/// The longest id, in bytes.
const ID_MAX: usize = 256;

/// The id of a request, chosen by its sender.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum RequestId {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
}

/// An incoming frame. Its body is parsed only when the method is known.
#[derive(Debug)]
pub enum Frame<'a> {
    /// Expects a response with the same id.
    Request {
        /// The id, to be repeated in the response.
        id: RequestId,
        /// The method.
        method: String,
        /// Its parameters.
        params: Option<&'a RawValue>,
    },
    /// Expects no response.
    Notification {
        /// The method.
        method: String,
        /// Its parameters.
        params: Option<&'a RawValue>,
    },
    /// The response to one of our requests.
    Response {
        /// The id of that request.
        id: RequestId,
        /// The result, or the error.
        outcome: Result<&'a RawValue, RpcError>,
    },
}

/// The reason why a text is not a frame. The connection stays open, and the sender receives the error.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FrameError {
    /// Not JSON.
    #[error("the frame is not JSON: {0}")]
    Parse(String),
    /// JSON, but not a JSON-RPC 2.0 object.
    #[error("the frame is not a JSON-RPC 2.0 request, notification or response: {0}")]
    Shape(String),
}

impl FrameError {
    /// Returns the error response, to be sent with the id `null`.
    pub fn rpc_error(&self) -> RpcError {
        let code = match self {
            Self::Parse(_) => -32700,
            Self::Shape(_) => -32600,
        };
        RpcError {
            code,
            message: self.to_string(),
            data: Some(Refusal::invalid(self.to_string())),
        }
    }
}

/// The error member of a response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RpcError {
    /// The JSON-RPC error number.
    pub code: i32,
    /// A sentence that describes the error.
    pub message: String,
    /// The whole refusal. Programs decide by `data.code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Refusal>,
}

impl From<Refusal> for RpcError {
    fn from(refusal: Refusal) -> Self {
        Self {
            code: refusal.code.json_rpc(),
            message: refusal.error.clone(),
            data: Some(refusal),
        }
    }
}

impl From<RpcError> for Refusal {
    fn from(error: RpcError) -> Self {
        error
            .data
            .unwrap_or_else(|| Self::new(ErrorCode::Internal, error.message))
    }
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(default, borrow)]
    jsonrpc: std::borrow::Cow<'a, str>,
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default, borrow)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<RpcError>,
}

impl<'a> Frame<'a> {
    /// Parses one frame. `params` and `result` are borrowed from the text.
    pub fn parse(text: &'a str) -> Result<Self, FrameError> {
        let raw: Raw<'a> = serde_json::from_str(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => FrameError::Shape(error.to_string()),
            _ => FrameError::Parse(error.to_string()),
        })?;
        if raw.jsonrpc != "2.0" {
            return Err(FrameError::Shape("jsonrpc is not \"2.0\"".to_owned()));
        }
        match (raw.method, raw.id.map(request_id).transpose()?) {
            (Some(method), Some(id)) => Ok(Self::Request {
                id,
                method,
                params: raw.params,
            }),
            (Some(method), None) => Ok(Self::Notification {
                method,
                params: raw.params,
            }),
            (None, Some(id)) => match (raw.result, raw.error) {
                (Some(result), None) => Ok(Self::Response {
                    id,
                    outcome: Ok(result),
                }),
                (None, Some(error)) => Ok(Self::Response {
                    id,
                    outcome: Err(error),
                }),
                _ => Err(FrameError::Shape(
                    "a response has either result or error".to_owned(),
                )),
            },
            (None, None) => Err(FrameError::Shape("neither method nor id".to_owned())),
        }
    }
}

/// Parses an id. It is not parsed before its length is known: the other side keeps it until it has responded.
fn request_id(id: &RawValue) -> Result<RequestId, FrameError> {
    if id.get().len() > ID_MAX {
        return Err(FrameError::Shape(format!(
            "the id is longer than {ID_MAX} bytes"
        )));
    }
    serde_json::from_str(id.get())
        .map_err(|_| FrameError::Shape("the id is neither a number nor a text".to_owned()))
}

/// An outgoing frame.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Outgoing<'a, P: Serialize> {
    /// A request or, without an id, a notification.
    Request {
        /// Always `2.0`.
        jsonrpc: &'static str,
        /// Absent in notifications.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a RequestId>,
        /// The method.
        method: &'static str,
        /// Its parameters.
        params: &'a P,
    },
    /// The answer to a request.
    Result {
        /// Always `2.0`.
        jsonrpc: &'static str,
        /// The id of the request.
        id: &'a RequestId,
        /// The result.
        result: &'a P,
    },
    /// An error response. The id is `null` if the frame could not be parsed.
    Error {
        /// Always `2.0`.
        jsonrpc: &'static str,
        /// The id of the request.
        id: Option<&'a RequestId>,
        /// The error.
        error: &'a P,
    },
}

impl<'a, P: Serialize> Outgoing<'a, P> {
    /// Creates a request.
    pub fn request(id: &'a RequestId, method: &'static str, params: &'a P) -> Self {
        Self::Request {
            jsonrpc: "2.0",
            id: Some(id),
            method,
            params,
        }
    }

    /// Creates a notification.
    pub fn notification(method: &'static str, params: &'a P) -> Self {
        Self::Request {
            jsonrpc: "2.0",
            id: None,
            method,
            params,
        }
    }

    /// Creates a result.
    pub fn result(id: &'a RequestId, result: &'a P) -> Self {
        Self::Result {
            jsonrpc: "2.0",
            id,
            result,
        }
    }

    /// Returns the frame's text.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a frame has text keys and no failing serialisers")
    }
}

impl<'a> Outgoing<'a, RpcError> {
    /// Creates an error response.
    pub fn error(id: Option<&'a RequestId>, error: &'a RpcError) -> Self {
        Self::Error {
            jsonrpc: "2.0",
            id,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn frames_of_all_kinds_are_distinguished() {
        let check = |text: &str, expected: &str| {
            let kind = match Frame::parse(text) {
                Ok(Frame::Request { .. }) => "request",
                Ok(Frame::Notification { .. }) => "notification",
                Ok(Frame::Response { outcome: Ok(_), .. }) => "result",
                Ok(Frame::Response {
                    outcome: Err(_), ..
                }) => "error",
                Err(FrameError::Parse(_)) => "no json",
                Err(FrameError::Shape(_)) => "no frame",
            };
            assert_eq!(kind, expected, "{text}");
        };
        check(
            r#"{"jsonrpc":"2.0","id":7,"method":"call","params":{}}"#,
            "request",
        );
        check(
            r#"{"jsonrpc":"2.0","id":"seven","method":"call"}"#,
            "request",
        );
        check(r#"{"jsonrpc":"2.0","method":"goodbye"}"#, "notification");
        check(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "result");
        check(
            r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}}"#,
            "error",
        );
        check("{", "no json");
        check("[]", "no frame");
        check("{}", "no frame");
        check(r#"{"jsonrpc":"1.0","id":7,"method":"call"}"#, "no frame");
        check(r#"{"jsonrpc":"2.0","id":{},"method":"call"}"#, "no frame");
        check(r#"{"jsonrpc":"2.0","id":7}"#, "no frame");
    }

    #[test]
    fn an_id_is_short() {
        let request = |id: String| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert!(Frame::parse(&request(format!("\"{}\"", "x".repeat(ID_MAX - 2)))).is_ok());
        for id in [
            format!("\"{}\"", "x".repeat(ID_MAX - 1)),
            format!("[{}0]", "0,".repeat(ID_MAX)),
            "{}".into(),
        ] {
            assert!(matches!(
                Frame::parse(&request(id)),
                Err(FrameError::Shape(_))
            ));
        }
    }

    #[test]
    fn unreadable_frames_are_answered_with_json_rpcs_numbers() {
        let code = |text| {
            Frame::parse(text)
                .expect_err("not a frame")
                .rpc_error()
                .code
        };
        assert_eq!((code("{"), code("{}")), (-32700, -32600));
    }

    #[test]
    fn outgoing_frames_have_the_documented_shape() {
        let id = RequestId::Number(7);
        assert_eq!(
            Outgoing::request(&id, "heartbeat", &json!({})).text(),
            r#"{"jsonrpc":"2.0","id":7,"method":"heartbeat","params":{}}"#
        );
        assert_eq!(
            Outgoing::notification("goodbye", &json!({})).text(),
            r#"{"jsonrpc":"2.0","method":"goodbye","params":{}}"#
        );
        assert_eq!(
            Outgoing::result(&id, &json!({})).text(),
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#
        );
        let error = RpcError {
            code: -32700,
            message: "no".into(),
            data: None,
        };
        assert_eq!(
            Outgoing::error(None, &error).text(),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}"#
        );
    }

    #[test]
    fn a_refusal_survives_the_wire() {
        let refusal = Refusal::invalid("message is empty").detail("field", "message");
        let error = RpcError::from(refusal.clone());
        let back: RpcError =
            serde_json::from_str(&serde_json::to_string(&error).expect("JSON")).expect("an error");
        assert_eq!((back.code, Refusal::from(back)), (-32602, refusal));
    }
}
