//! The methods of both sides of the link, with their parameters and results.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::ids::{AgentId, CallId};
use crate::message::Message;
use crate::receipt::{Progress, Via, is_first};
use crate::refusal::{ErrorCode, Refusal};
use crate::time::Timestamp;
use crate::vocabulary::State;

/// An object without members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

/// The program at the other end of stdio.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its name, such as `claude-code`.
    pub name: String,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

/// `hello`: a session or a person's command claims its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the link protocol, such as `1.0`.
    pub protocol_version: String,
    /// The desired name, the same in every `hello` of a proxy; the canonical name if the desired one is unknown.
    pub name: AgentId,
    /// The host. Ignored if the link uses a host's key.
    pub host: String,
    /// The proxy process: the same in each of its `hello` frames, and different for every other process.
    pub instance: Uuid,
    /// The client's session id, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The client.
    pub client: Client,
    /// From a person's command: the `position` of the last `deliver` frame that it received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_delivered: Option<u64>,
    /// A person's command: acts as the agent briefly, without a session, and takes nothing over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub person: bool,
    /// A session that answers one prompt and ends. It gets a generated name, receives no pushes, and leaves nothing behind.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_shot: bool,
    /// Sends the queued messages that a dead session of that name left on its host. Treated like a person's command, except
    /// that the name may already be forgotten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leftover: bool,
    /// The ways by which this host can deliver a message into its session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<Via>,
    /// The number of the session's context: 0 at first, and one higher after each `/clear` or compaction.
    #[serde(default, skip_serializing_if = "is_first")]
    pub context: u64,
    /// The session's activity, if the host knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// Dead processes on this host that had the desired name: their leases are ignored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub succeeds: Vec<Uuid>,
}

/// The result of `hello`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The canonical name.
    pub agent_id: AgentId,
    /// The agent's lasting identity.
    pub uid: Uuid,
    /// The number of this session among all sessions of the agent.
    pub generation: u64,
    /// The interval at which the proxy must send `heartbeat`.
    pub heartbeat_seconds: u64,
    /// The coordinator's version.
    pub coordinator_version: String,
    /// The number of messages in the inbox.
    pub pending: usize,
    /// The host: that of the key with which the link was opened, else the one that `hello` named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The desired name of this agent's sessions, if the agent's own name has a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wished: Option<AgentId>,
}

/// `call`: a tool call, applied once for each `call_id`. The result is the tool's reply.
///
/// The arguments are parsed when the tool is known, and serialised from the typed call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CallParams<'a, A = &'a RawValue> {
    /// The id of the call, the same each time it is sent.
    pub call_id: CallId,
    /// The tool's name, or an older one.
    #[serde(borrow)]
    pub tool: Cow<'a, str>,
    /// Its arguments, an object.
    pub arguments: A,
}

/// `cancel`: the caller no longer waits for that call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancel {
    /// The call.
    pub call_id: CallId,
}

/// `session`: the session changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionChange {
    /// Its current activity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The client's new session id, after `/clear` or a resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The ways by which this host can now deliver a message into its session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<Vec<Via>>,
    /// The number of the session's current context. A number higher than before means that the session was shown nothing of
    /// the inbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<u64>,
    /// Whether a person has just typed a prompt in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prompted: bool,
}

/// `heartbeat`: the proxy is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The proxy's clock.
    pub timestamp: Timestamp,
}

/// The result of `heartbeat`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// The proxy's clock, copied from the request.
    pub timestamp: Timestamp,
    /// The coordinator's clock.
    pub server_time: Timestamp,
    /// The number of agents of the fleet that are online, counted every few seconds; absent before the first count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents_online: Option<usize>,
}

/// `deliver`: messages for this host. The empty result confirms that it has them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deliver {
    /// In the order in which they were accepted.
    pub messages: Vec<Arriving>,
    /// The inbox position of the last one; returned in `hello` as `last_delivered`.
    pub position: u64,
}

/// A message on its way to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arriving {
    /// The message.
    #[serde(flatten)]
    pub message: Message,
    /// How long it may still be shown, in milliseconds. A duration, because the clocks of the host and the coordinator may
    /// differ.
    pub expires_in_ms: u64,
}

impl Arriving {
    /// Returns the message with its remaining lifetime at `now`, by the clock that set its expiry.
    pub fn at(message: Message, now: Timestamp) -> Self {
        let expires_in_ms = message.expires_at.millis().saturating_sub(now.millis());
        Self {
            message,
            expires_in_ms,
        }
    }
}

/// A frame from a proxy.
#[derive(Debug, Clone)]
pub enum ToCoordinator<'a> {
    /// `hello` -> [`Welcome`]
    Hello(Hello),
    /// `call` -> the tool's reply
    Call(CallParams<'a>),
    /// `cancel`
    Cancel(Cancel),
    /// `goodbye`
    Goodbye,
    /// `session`
    Session(SessionChange),
    /// `receipt` -> [`Empty`]
    Receipt(Progress),
    /// `heartbeat` -> [`HeartbeatReply`]
    Heartbeat(Heartbeat),
}

/// A frame from a coordinator.
#[derive(Debug, Clone)]
pub enum ToProxy {
    /// `deliver` -> [`Empty`]
    Deliver(Deliver),
    /// `draining`
    Draining,
}

fn read<'a, T: Deserialize<'a>>(method: &str, params: Option<&'a RawValue>) -> Result<T, Refusal> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| Refusal::invalid(format!("{method}: {error}")))
}

fn unknown(method: &str) -> Refusal {
    let method: String = method.chars().take(80).collect();
    Refusal::new(
        ErrorCode::NotSupported,
        format!("there is no method {method}"),
    )
}

impl<'a> ToCoordinator<'a> {
    /// Parses a frame from a proxy.
    ///
    /// Errors: `NOT_SUPPORTED` for an unknown method, `INVALID_REQUEST` for wrong parameters.
    pub fn parse(method: &str, params: Option<&'a RawValue>) -> Result<Self, Refusal> {
        Ok(match method {
            "hello" => Self::Hello(read(method, params)?),
            "call" => Self::Call(read(method, params)?),
            "cancel" => Self::Cancel(read(method, params)?),
            "goodbye" => Self::Goodbye,
            "session" => Self::Session(read(method, params)?),
            "receipt" => Self::Receipt(read(method, params)?),
            "heartbeat" => Self::Heartbeat(read(method, params)?),
            _ => return Err(unknown(method)),
        })
    }
}

impl ToProxy {
    /// Parses a frame from a coordinator.
    ///
    /// Errors: `NOT_SUPPORTED` for an unknown method, `INVALID_REQUEST` for wrong parameters.
    pub fn parse(method: &str, params: Option<&RawValue>) -> Result<Self, Refusal> {
        Ok(match method {
            "deliver" => Self::Deliver(read(method, params)?),
            "draining" => Self::Draining,
            _ => return Err(unknown(method)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn golden<T: Serialize + for<'a> Deserialize<'a>>(wire: serde_json::Value) {
        let value: T = serde_json::from_value(wire.clone()).expect("the documented shape");
        assert_eq!(serde_json::to_value(value).expect("JSON"), wire);
    }

    #[test]
    fn methods_have_the_documented_shapes() {
        let uuid = "0191e6b0-0000-7000-8000-000000000001";
        golden::<Hello>(json!({
            "protocol_version": "1.0", "name": "homeassistant", "host": "nas2", "instance": uuid,
            "session_id": "abc", "client": {"name": "claude-code", "version": "2.1.329"}, "last_delivered": 7,
        }));
        golden::<Welcome>(json!({
            "agent_id": "homeassistant", "uid": uuid, "generation": 3, "heartbeat_seconds": 15,
            "coordinator_version": "0.1.0", "pending": 2,
        }));
        golden::<Cancel>(json!({"call_id": uuid}));
        golden::<SessionChange>(
            json!({"state": "busy", "session_id": "def", "reach": ["stop"], "context": 1}),
        );
        golden::<SessionChange>(json!({"prompted": true}));
        golden::<Progress>(json!({
            "message_ids": ["a::b::00000001"], "stage": "in_session", "via": "wait_for_message",
        }));
        golden::<Progress>(
            json!({"message_ids": [], "stage": "seen", "via": "hook", "context": 2}),
        );
        golden::<Progress>(json!({
            "message_ids": ["a::b::00000001"], "stage": "in_session", "via": "inbox_socket", "seen_via": "hook",
        }));
        golden::<Heartbeat>(json!({"timestamp": "2026-01-15T10:30:00.000Z"}));
        golden::<HeartbeatReply>(json!({
            "timestamp": "2026-01-15T10:30:00.000Z", "server_time": "2026-01-15T10:30:00.001Z", "agents_online": 3,
        }));
        golden::<Deliver>(json!({"messages": [], "position": 9}));
    }

    #[test]
    fn a_call_carries_its_arguments_unread() {
        let text = r#"{"call_id":"0191e6b0-0000-7000-8000-000000000001","tool":"ping","arguments":{"x": 1}}"#;
        let params: &RawValue = serde_json::from_str(text).expect("JSON");
        let Ok(ToCoordinator::Call(call)) = ToCoordinator::parse("call", Some(params)) else {
            panic!("not a call")
        };
        assert_eq!(
            (call.tool.as_ref(), call.arguments.get()),
            ("ping", r#"{"x": 1}"#)
        );
    }

    #[test]
    fn unknown_methods_and_wrong_parameters_have_different_codes() {
        let code = |method, params: serde_json::Value| {
            let raw = serde_json::value::to_raw_value(&params).expect("JSON");
            ToCoordinator::parse(method, Some(&raw))
                .expect_err("refused")
                .code
        };
        assert_eq!(code("fly", json!({})), ErrorCode::NotSupported);
        assert_eq!(
            code("hello", json!({"name": "-"})),
            ErrorCode::InvalidRequest
        );
        assert_eq!(
            code("receipt", json!({"message_ids": ["x"]})),
            ErrorCode::InvalidRequest
        );
    }
}
