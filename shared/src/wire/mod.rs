//! The frames between proxy and coordinator: JSON-RPC 2.0, one object in one text frame, subprotocol [`SUBPROTOCOL`].

mod frame;
mod methods;

pub use frame::{Frame, FrameError, Outgoing, RequestId, RpcError};
pub use methods::{
    Arriving, CallParams, Cancel, Client, Deliver, Empty, Heartbeat, HeartbeatReply, Hello, SessionChange,
    ToCoordinator, ToProxy, Welcome,
};

/// The WebSocket subprotocol that both sides name in the upgrade.
pub const SUBPROTOCOL: &str = "c3po.acp.v1";
/// The protocol version in `hello`. Another major number is refused with `VERSION_MISMATCH`.
pub const PROTOCOL_VERSION: &str = "1.0";
/// The path of the link.
pub const PATH: &str = "/acp";
/// The close code that says that another session has this agent now.
pub const CLOSE_TAKEN_OVER: u16 = 4001;
/// The close code that says that `hello` was refused; the error frame before it says why.
pub const CLOSE_REFUSED: u16 = 4002;
/// The close code that says that the credential of the link has ended.
pub const CLOSE_REVOKED: u16 = 4003;

/// Returns whether the two sides of a link understand each other.
pub fn compatible(theirs: &str) -> bool {
    theirs.split('.').next() == PROTOCOL_VERSION.split('.').next()
}
