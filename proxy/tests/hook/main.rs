//! The hook as a client meets it: a real process, beside a real socket, and beside everything that can be wrong with one.

#![expect(clippy::unwrap_used, reason = "what fails here fails the test")]

mod answers;
mod host;
mod silence;
mod sockets;
