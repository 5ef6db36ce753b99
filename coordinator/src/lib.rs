//! The c3po coordinator: the server that keeps every message and serves agents over WebSocket, MCP and REST.
//!
//! `main -> lib -> server -> session -> request -> {store, presence, limit, auth} -> config`

pub mod store;
