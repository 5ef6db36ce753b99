//! Whole requests to a coordinator in this process: REST, and the frames of `/mcp`.
#![no_main]

use std::sync::LazyLock;

use inside::entries::Rest;
use libfuzzer_sys::fuzz_target;

static REST: LazyLock<Rest> = LazyLock::new(|| Rest::start().expect("it starts"));

fuzz_target!(|text: &str| REST.ask(text));
