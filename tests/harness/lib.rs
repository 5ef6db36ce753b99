//! What the tests stand on: real programs in folders of their own, spoken to as their users speak to them.
//!
//! - [`process`]: a program, its log, its end; [`coordinator`] and [`proxy`]: the two of this workspace
//! - [`mcp`]: an MCP client over stdio, as thin as one can be; [`http`]: one request to an address
//! - [`fake_api`]: a scripted model; [`claude`] and [`opencode`]: the real clients that ask it;
//!   [`terminal`]: where people type to one
//! - [`link`]: the other end of a coordinator's links, spoken by hand; [`crowd`]: thousands of such ends;
//!   [`vitals`]: what a process uses and holds; [`loaded`]: a coordinator and its store, measured by that
//! - [`message`]: messages without a sender; [`project`]: where the project's files are
//! - [`redis`]: a real redis-server; [`cluster`]: three of them that share the keys;
//!   [`watched`]: some that sentinels watch; [`certificates`]: what TLS between them needs
//! - [`breaker`]: a link that loses, holds, cuts or delays what goes through it
//! - [`storm`]: agents that send while everything is killed; [`checker`]: what must hold all the same; [`dice`]: chance
//!   that repeats itself
//! - [`hostile`]: real sessions whose persons do anything, by a seed, and what must hold of their messages
//! - [`siege`]: everything that should not be sent; [`unfinished`]: what is never finished; [`entry`]: how both connect
//! - [`small_disk`]: one that is full soon
//! - [`eventually`]: waiting for something without sleeping blindly; [`skip`]: saying that a test could not run

pub mod breaker;
pub mod certificates;
pub mod checker;
pub mod claude;
pub mod cluster;
pub mod coordinator;
pub mod crowd;
pub mod dice;
pub mod entry;
pub mod eventually;
pub mod fake_api;
pub mod hostile;
pub mod http;
pub mod link;
pub mod loaded;
pub mod mcp;
pub mod message;
pub mod opencode;
mod ports;
pub mod process;
pub mod project;
pub mod proxy;
pub mod redis;
pub mod siege;
pub mod skip;
pub mod small_disk;
pub mod storm;
pub mod terminal;
pub mod unfinished;
pub mod vitals;
pub mod watched;
