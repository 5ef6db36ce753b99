//! What a client writes to a hook: the event in the first line, the input behind it.
#![no_main]

use inside::entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut parts = bytes.splitn(2, |byte| *byte == b'\n');
    if let (Some(Ok(word)), Some(input)) = (parts.next().map(std::str::from_utf8), parts.next()) {
        entries::hook_input(word, input);
    }
});
