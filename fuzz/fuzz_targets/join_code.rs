//! Join codes.
#![no_main]

use inside::entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| entries::join_code(text));
