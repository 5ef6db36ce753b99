//! The floor of a stdio server, which returns every line. Runs as a separate process.

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
