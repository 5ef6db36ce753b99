//! Reports that a test could not run here: past the test runner's capture, and in a file whose contents `make test` prints.

use std::fs::{OpenOptions, create_dir_all};
use std::io::{Write, stderr};
use std::path::Path;

use anyhow::{Context, Result};

/// The list of skipped tests, in the build folder.
const SKIPPED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../target/skipped-tests.txt"
);

/// Reports visibly that `test` was skipped because of `reason`.
///
/// Errors: the file cannot be written.
pub fn skipped(test: &str, reason: &str) -> Result<()> {
    let line = format!("SKIPPED {test}: {reason}\n");
    // Not `eprint!`: the test runner would hide it, because the test passes.
    stderr()
        .write_all(line.as_bytes())
        .context("writing to stderr")?;
    note(Path::new(SKIPPED), &line)
}

fn note(file: &Path, line: &str) -> Result<()> {
    if let Some(folder) = file.parent() {
        create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut list = OpenOptions::new()
        .create(true)
        .append(true)
        .open(file)
        .with_context(|| file.display().to_string())?;
    list.write_all(line.as_bytes())
        .context("writing the list of skipped tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_added_to_the_list() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("target/skipped");
        note(&file, "one\n")?;
        note(&file, "two\n")?;
        assert_eq!(std::fs::read_to_string(file)?, "one\ntwo\n");
        Ok(())
    }
}
