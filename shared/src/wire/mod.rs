//! The frames between proxy and coordinator: JSON-RPC 2.0, one object in one text frame, subprotocol [`SUBPROTOCOL`].

mod frame;
mod methods;

pub use frame::{Frame, FrameError, Outgoing, RequestId, RpcError};
pub use methods::{
    Arriving, CallParams, Cancel, Client, Deliver, Empty, Heartbeat, HeartbeatReply, Hello,
    SessionChange, ToCoordinator, ToProxy, Welcome,
};

/// The WebSocket subprotocol that both sides name in the upgrade.
pub const SUBPROTOCOL: &str = "c3po.acp.v1";
/// The protocol version in `hello`. A different major version is refused with `VERSION_MISMATCH`.
pub const PROTOCOL_VERSION: &str = "1.0";
/// The path of the link.
pub const PATH: &str = "/acp";
/// The close code if another session has taken over this agent.
pub const CLOSE_TAKEN_OVER: u16 = 4001;
/// The close code if `hello` was refused; the error frame before it has the reason.
pub const CLOSE_REFUSED: u16 = 4002;
/// The close code if the credential of the link is no longer valid.
pub const CLOSE_REVOKED: u16 = 4003;

/// Returns whether this side can use that protocol version.
pub fn compatible(theirs: &str) -> bool {
    theirs.split('.').next() == PROTOCOL_VERSION.split('.').next()
}
