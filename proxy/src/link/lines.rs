//! Files of lines that survive a crash in the middle of a line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use serde::Serialize;

use crate::config::private::check_owner;

pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

pub(super) fn text(line: &impl Serialize) -> io::Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

/// Appends a line, or leaves the file unchanged. When this returns without error, the line survives a crash.
///
/// Errors: the file belongs to another user, or cannot be written.
pub(super) fn append_to(path: &Path, line: &impl Serialize) -> io::Result<()> {
    let mut file = private()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    check_owner(&file.metadata()?)?;
    append(&mut file, &text(line)?, File::sync_all)
}

/// Writes lines behind the last whole one and completes them, or leaves the file unchanged.
pub(super) fn append(
    file: &mut File,
    lines: &str,
    complete: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let length = file.metadata()?.len();
    let end = end_of_whole_lines(file, length)?;
    if end < length {
        file.set_len(end)?;
    }
    let written = file
        .write_all_at(lines.as_bytes(), end)
        .and_then(|()| complete(file));
    if written.is_err() {
        // A partial line is ignored anyway; cutting it off only saves the next reader the check.
        let _ = file.set_len(end);
    }
    written
}

/// Returns the end of the last whole line of a file of `length` bytes: a crash cut off the rest.
fn end_of_whole_lines(file: &mut File, length: u64) -> io::Result<u64> {
    if length == 0 {
        return Ok(0);
    }
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1)?;
    if last == *b"\n" {
        return Ok(length);
    }
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let end = bytes
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    Ok(u64::try_from(end).unwrap_or(length))
}
