//! Support for tests that link our libraries into their process; `harness` supports tests that need only the programs.
//!
//! - [`served`]: a coordinator that serves until it is dropped; [`gate`]: one that demands keys
//! - [`entries`]: every entry point for text from other parties; `fuzz/` uses the same ones

pub mod entries;
pub mod gate;
pub mod served;
