//! The least a stdio server can be: every line back as it came. Runs as a process of its own.

use std::io::{BufRead, Write};
use std::process::ExitCode;

/// The argument that makes this program an echo.
pub(crate) const ARGUMENT: &str = "--echo";

/// Echoes until the input ends.
pub(crate) fn run() -> ExitCode {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|length| length > 0) {
        if output.write_all(line.as_bytes()).and_then(|()| output.flush()).is_err() {
            return ExitCode::FAILURE;
        }
        line.clear();
    }
    ExitCode::SUCCESS
}
