//! Who may do what to whom: ordered rules in a file, read again whenever that changes.

mod file;
mod glob;
mod rules;

pub(crate) use file::{Policies, keep};
pub(crate) use glob::fits;
pub use rules::{Party, Policy, Verdict};
