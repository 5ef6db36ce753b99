//! Arguments of tools: the name of the tool in the first line, the arguments behind it.
#![no_main]

use inside::entries;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Some((tool, arguments)) = text.split_once('\n') {
        entries::tool_arguments(tool, arguments);
    }
});
