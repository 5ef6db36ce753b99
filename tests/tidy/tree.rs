//! The project's files as text.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::code::without_comments_and_strings;

/// Folders of build results and of git.
const NOT_OURS: &[&str] = &["target", ".git", "node_modules"];

/// A file of the project.
pub(super) struct File {
    /// Its path relative to the project's folder, with `/` as the separator.
    pub(super) path: String,
    /// The whole text.
    pub(super) text: String,
    /// The same without comments and strings, with the same line numbers. Empty unless it is a `.rs` file.
    pub(super) code: String,
}

impl File {
    pub(super) fn new(path: &str, text: &str) -> Self {
        let code = if path.ends_with(".rs") {
            without_comments_and_strings(text)
        } else {
            String::new()
        };
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
        }
    }

    pub(super) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Returns whether it is part of tests: a test package, the `tests` folder of another package, or the lab.
    pub(super) fn is_test(&self) -> bool {
        self.path.starts_with("lab/") || self.path.split('/').any(|part| part == "tests")
    }

    /// Returns `path:line: complaint` for every line of `text` that contains `part`.
    pub(super) fn lines_with(&self, text: &str, part: &str, complaint: &str) -> Vec<String> {
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains(part));
        lines
            .map(|(number, _)| format!("{}:{}: {complaint}", self.path, number + 1))
            .collect()
    }
}

/// Returns every text file of ours below `root`.
pub(super) fn files(root: &Path) -> Result<Vec<File>> {
    let mut found = Vec::new();
    collect(root, "", &mut found)?;
    Ok(found)
}

fn collect(folder: &Path, prefix: &str, found: &mut Vec<File>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry.context("reading a folder")?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry
            .file_type()
            .context("asking for a file's type")?
            .is_dir()
        {
            collect(&entry.path(), &format!("{path}/"), found)?;
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            found.push(File::new(&path, &text));
        }
    }
    Ok(())
}

#[test]
fn the_files_of_the_project_are_found() -> Result<()> {
    let files = files(harness::project::root())?;
    for path in ["Cargo.lock", "shared/src/lib.rs", "tests/tidy/tree.rs"] {
        assert!(
            files.iter().any(|file| file.path == path),
            "{path} is missing"
        );
    }
    assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    Ok(())
}
