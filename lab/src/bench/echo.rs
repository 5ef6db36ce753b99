//! The least a stdio server can be: every line back as it came. Runs as a process of its own.

use std::io::{BufRead, Write};

use anyhow::Result;

/// Echoes until the input ends.
pub(super) fn run() -> Result<()> {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|length| length > 0) {
        output.write_all(line.as_bytes())?;
        output.flush()?;
        line.clear();
    }
    Ok(())
}
