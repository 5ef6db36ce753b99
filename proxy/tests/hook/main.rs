//! The hook as a client uses it: a real process beside a real socket, and beside every fault of one.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod answers;
mod host;
mod silence;
mod sockets;
