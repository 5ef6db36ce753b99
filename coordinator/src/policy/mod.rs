//! Access policy: ordered rules in a file about senders, recipients and actions, reloaded when the file changes.

mod file;
mod glob;
mod rules;
mod triage;

pub(crate) use file::{Policies, keep};
pub(crate) use glob::fits;
pub use rules::{Party, Policy, Verdict};
pub(crate) use triage::{Triage, TriageAgent};
