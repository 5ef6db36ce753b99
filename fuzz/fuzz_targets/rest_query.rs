//! Queries of REST and the names in headers.
#![no_main]

use inside::entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| entries::rest_query(text));
