//! What an installation has to remember so that it can be taken back: a small file in c3po's state folder.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::settings;

/// What it remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::commands) struct Record {
    /// The settings as they were before the first installation; `None` where there was no such file.
    pub(in crate::commands) backup: Option<PathBuf>,
    /// The text of the status line that ours took the place of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::commands) status_line: Option<String>,
    /// Whether something is under way, or was broken off: the settings may be in the form in which claude writes them.
    #[serde(default)]
    pub(in crate::commands) unfinished: bool,
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("install.json")
}

impl Record {
    /// Reads it.
    pub(in crate::commands) fn read(state_dir: &Path) -> Result<Option<Self>> {
        let path = path(state_dir);
        match fs::read(&path) {
            Ok(text) => {
                serde_json::from_slice(&text).map(Some).with_context(|| format!("cannot read {}", path.display()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    /// Returns the settings as they are, in the form that they had before what was broken off, if anything was.
    pub(in crate::commands) fn in_form_before(&self, now: &str) -> Result<Option<String>> {
        let Some(backup) = self.backup.as_ref().filter(|_| self.unfinished) else { return Ok(None) };
        let Ok(before) = fs::read_to_string(backup) else { return Ok(None) };
        Ok(settings::in_form_of(&before, now)?.map(|(text, _)| text))
    }

    /// Writes it, for its owner alone.
    pub(in crate::commands) fn write(&self, state_dir: &Path) -> Result<()> {
        let path = path(state_dir);
        let failed = || format!("cannot write {}", path.display());
        fs::create_dir_all(state_dir).with_context(failed)?;
        let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        serde_json::to_writer(file.with_context(failed)?, self).with_context(failed)
    }

    /// Removes it.
    pub(in crate::commands) fn remove(state_dir: &Path) -> Result<()> {
        match fs::remove_file(path(state_dir)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).context("cannot remove install.json"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_remembers_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        assert_eq!(Record::read(&state).unwrap(), None);
        let record =
            Record { backup: Some(PathBuf::from("/b")), status_line: Some("{ }".to_owned()), unfinished: true };
        record.write(&state).unwrap();
        assert_eq!(Record::read(&state).unwrap(), Some(record));
        Record::remove(&state).unwrap();
        Record::remove(&state).unwrap();
        assert_eq!(Record::read(&state).unwrap(), None);
    }
}
