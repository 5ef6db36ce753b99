//! What a client writes to a hook: the event in the first line, the input behind it.
#![no_main]

use harness::entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some((word, input)) = text.split_once('\n') {
        entries::hook_input(word, input.as_bytes());
    }
});
