//! What tests of our libraries stand on, in the test's own process; `harness` has what needs only the programs.
//!
//! - [`served`]: a coordinator that serves until it is dropped; [`gate`]: one that demands keys
//! - [`entries`]: every entry for text that somebody else wrote; `fuzz/` gives the same entries to fuzzers

pub mod entries;
pub mod gate;
pub mod served;
