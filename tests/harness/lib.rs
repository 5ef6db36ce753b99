//! The test harness: runs real programs in temporary folders, and uses them as their users do.
//!
//! - [`process`]: a program, its log and its exit; [`coordinator`] and [`proxy`]: the two programs of this workspace
//! - [`mcp`]: a minimal MCP client over stdio; [`http`]: a single request to an address
//! - [`fake_api`]: a scripted model; [`claude`] and [`opencode`]: the real clients that use it;
//!   [`terminal`]: a terminal for an interactive client
//! - [`link`]: a hand-written client of the link protocol; [`crowd`]: thousands of such clients;
//!   [`vitals`]: the resource usage of a process; [`loaded`]: a coordinator and its store, with their vitals
//! - [`message`]: messages without a sender; [`project`]: the paths of the project's files
//! - [`redis`]: a real redis-server; [`cluster`]: three of them that share the keys;
//!   [`watched`]: servers with sentinels; [`certificates`]: their TLS certificates
//! - [`breaker`]: a link that loses, holds, cuts or delays its traffic
//! - [`storm`]: agents that send while everything is killed; [`checker`]: the guarantees that must hold; [`dice`]:
//!   repeatable randomness
//! - [`inquiry`]: questions to people while everything is killed
//! - [`hostile`]: real sessions whose people do anything, by a seed, and the guarantees for their messages
//! - [`corpus`]: hostile texts; [`impostor`]: a hostile coordinator; [`pty`]: a terminal whose bytes are kept
//! - [`siege`]: malformed and excessive input; [`unfinished`]: unfinished input; [`entry`]: how both connect
//! - [`browser`]: a real Chromium; [`ntfy`]: a real ntfy server; [`person`]: a person who answers over REST
//! - [`small_disk`]: a disk that is soon full
//! - [`eventually`]: waits for a condition instead of sleeping; [`skip`]: reports that a test could not run

pub mod breaker;
pub mod browser;
pub mod certificates;
pub mod checker;
pub mod claude;
pub mod cluster;
pub mod coordinator;
pub mod corpus;
pub mod crowd;
pub mod dice;
pub mod entry;
pub mod eventually;
pub mod fake_api;
pub mod hostile;
pub mod http;
pub mod impostor;
pub mod inquiry;
pub mod link;
pub mod loaded;
pub mod mcp;
pub mod message;
pub mod ntfy;
pub mod opencode;
pub mod person;
mod ports;
pub mod process;
pub mod project;
pub mod proxy;
pub mod pty;
pub mod redis;
pub mod siege;
pub mod skip;
pub mod small_disk;
pub mod sse;
pub mod storm;
pub mod terminal;
pub mod unfinished;
pub mod vitals;
pub mod watched;
