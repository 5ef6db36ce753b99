//! The protocol and the types that both ends of c3po share. No I/O and no async runtime: only values and their text forms.
//!
//! - [`ids`], [`time`], [`vocabulary`]: the small checked types everything else is made of
//! - [`message`], [`receipt`], [`agent`]: the envelope, its delivery stages, the record of an agent
//! - [`error_code`], [`refusal`], [`advice`]: the error codes, their sentences and the next steps
//! - [`catalogue`]: the single definition of every tool: name, description, arguments, reply
//! - [`wire`]: the frames between proxy and coordinator
//! - [`join`], [`proof`], [`login`]: how a host joins, how it proves that it has a key, and how a person logs in
//! - [`policy`], [`audit`], [`sent`]: the permissions, the audit log, and the messages that an agent sent recently
//! - [`event`]: the changes in the log that a client may see, and the envelope of REST v1
//! - [`guard`]: limits on two agents that message each other without a person
//! - [`question`]: questions to people and their answers
//! - [`names`]: host name lookup in a program with its own C library
//! - [`numbers`]: integers that a client wrote with a fraction
//! - [`surrogates`]: half characters that a client wrote into JSON
//! - [`text`]: text from other parties, made safe for terminals and logs
//! - [`limits`]: every limit

#![warn(missing_docs)]

pub mod advice;
pub mod agent;
pub mod audit;
pub mod catalogue;
pub mod error_code;
pub mod event;
pub mod guard;
pub mod host;
pub mod ids;
pub mod join;
pub mod limits;
pub mod login;
pub mod logs;
pub mod message;
pub mod names;
pub mod numbers;
mod parsed;
pub mod policy;
pub mod proof;
pub mod question;
pub mod raw_json;
pub mod receipt;
pub mod refusal;
pub mod rows;
pub mod sent;
pub mod surrogates;
pub mod text;
pub mod time;
pub mod vocabulary;
pub mod wire;
