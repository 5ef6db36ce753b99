//! What both ends of c3po agree on. No I/O and no async runtime: values, their text forms, and nothing else.
//!
//! - [`ids`], [`time`], [`vocabulary`]: the small checked types everything else is made of
//! - [`message`], [`receipt`], [`agent`]: the envelope, how far it got, who there is
//! - [`refusal`], [`advice`]: the error codes, their sentences and what to do next
//! - [`catalogue`]: every tool, once: name, description, arguments, reply
//! - [`wire`]: the frames between proxy and coordinator
//! - [`join`]: how a host is let in
//! - [`policy`], [`audit`], [`sent`]: who may do what to whom, what was done, and which messages an agent sent lately
//! - [`guard`]: how a pair of agents stands that write to each other without a person
//! - [`names`]: how a program with a C library of its own looks up names of hosts
//! - [`text`]: what another side chose, before a terminal or a log shows it
//! - [`limits`]: every number that bounds something

#![warn(missing_docs)]

pub mod advice;
pub mod agent;
pub mod audit;
pub mod catalogue;
pub mod guard;
pub mod host;
pub mod ids;
pub mod join;
pub mod limits;
pub mod logs;
pub mod message;
pub mod names;
pub mod policy;
pub mod receipt;
pub mod refusal;
pub mod sent;
pub mod text;
pub mod time;
pub mod vocabulary;
pub mod wire;
