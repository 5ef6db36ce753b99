//! The file of a host.
#![no_main]

use inside::entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| entries::host_file(text));
