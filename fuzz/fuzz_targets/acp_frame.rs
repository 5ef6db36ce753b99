//! Frames of the link.
#![no_main]

use inside::entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| entries::acp_frame(text));
