//! Everything a host needs: the MCP proxy beside a session, its hooks, and the commands for people.
//!
//! `main -> {proxy, hook, commands} -> mcp -> deliver -> {local, link} -> config -> client`, and no other arrows:
//!
//! - [`client`]: the client that started this process
//! - [`config`]: the configuration of this host, read once
//! - [`link`]: the one connection to the coordinator; owns every call until it is answered
//! - [`deliver`]: the last hop, from this host into the model's context
//! - [`local`]: the unix socket that hooks ask
//! - [`hook`]: the short process that asks
//! - [`relay`]: requests of the client for a person's decision, asked elsewhere
//! - [`mcp`]: the MCP server on stdio
//! - [`proxy`]: the process beside a session, made of those above
//! - [`commands`]: the commands of people

pub mod client;
pub mod commands;
pub mod config;
pub mod deliver;
pub mod hook;
pub mod link;
pub mod local;
pub mod logs;
pub mod mcp;
pub mod proxy;
pub mod relay;
