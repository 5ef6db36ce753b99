//! The user's settings of Claude Code: a dated backup, and the few members that c3po changes itself.
//!
//! The `claude` command writes the plugin's members, and rewrites the whole file when it does so.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use c3po_shared::time::Timestamp;
use serde_json::{Map, Value};

use super::{MARKETPLACE, PLUGIN};
use crate::config::private;

/// The members of the file.
pub(in crate::commands) type Members = Map<String, Value>;

/// The paths of the members that `claude` writes for a marketplace and a plugin.
pub(in crate::commands) const OURS: [(&str, &str); 2] = [
    ("extraKnownMarketplaces", MARKETPLACE),
    ("enabledPlugins", PLUGIN),
];

/// The prefix of backups beside the file; a time follows.
const BACKUP: &str = "settings.json.before-c3po-";

/// The settings file.
#[derive(Debug)]
pub(in crate::commands) struct SettingsFile {
    path: PathBuf,
}

impl SettingsFile {
    /// Returns the file in that folder, without any disk access.
    pub(in crate::commands) fn in_folder(claude_dir: &Path) -> Self {
        Self {
            path: claude_dir.join("settings.json"),
        }
    }

    /// Returns its path.
    pub(in crate::commands) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its members; empty if the file is missing or empty, as in Claude Code.
    ///
    /// Errors: it cannot be read, or is not a JSON object.
    pub(in crate::commands) fn read(&self) -> Result<Members> {
        members_of(&self.path)
    }

    /// Writes the members in the layout of `claude`: atomically, through a symbolic link, with the file's mode.
    pub(in crate::commands) fn write(&self, members: &Members) -> Result<()> {
        let real = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let failed = || format!("cannot write {}", real.display());
        let folder = real.parent().with_context(failed)?;
        private::make_folder(folder).with_context(failed)?;
        let temporary = folder.join(format!(".settings.json.c3po-{}", std::process::id()));
        // A leftover of a process with the same number.
        let _ = fs::remove_file(&temporary);
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary);
        let mut file = file.with_context(failed)?;
        if let Ok(about) = fs::metadata(&real) {
            file.set_permissions(about.permissions())
                .with_context(failed)?;
        }
        let text = serde_json::to_string_pretty(members).with_context(failed)? + "\n";
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .with_context(failed)?;
        fs::rename(&temporary, &real).with_context(failed)
    }

    /// Copies the file to a new name beside it. Returns the name; `None` if there is no file.
    pub(in crate::commands) fn back_up(&self) -> Result<Option<PathBuf>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let digits: String = Timestamp::now()
            .to_string()
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        let copy = self.path.with_file_name(format!("{BACKUP}{digits}"));
        if copy.exists() {
            bail!("{} already exists", copy.display());
        }
        fs::copy(&self.path, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        Ok(Some(copy))
    }

    /// Removes a backup if the file still has the same members. Returns the backup if it stays.
    pub(in crate::commands) fn without_needless(
        &self,
        backup: Option<PathBuf>,
    ) -> Result<Option<PathBuf>> {
        let Some(backup) = backup else {
            return Ok(None);
        };
        if self.read()? != members_of(&backup)? {
            return Ok(Some(backup));
        }
        fs::remove_file(&backup).with_context(|| format!("cannot remove {}", backup.display()))?;
        Ok(None)
    }

    /// Returns the backups, oldest first.
    pub(in crate::commands) fn backups(&self) -> Result<Vec<PathBuf>> {
        let folder = self.path.parent().unwrap_or(&self.path);
        let entries = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("cannot read {}", folder.display()))?,
        };
        let mut found: Vec<_> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| is_backup(path))
            .collect();
        found.sort_unstable();
        Ok(found)
    }
}

fn is_backup(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(BACKUP))
}

/// Returns the members of a settings file, or of a backup.
///
/// Errors: it cannot be read, or is not a JSON object.
pub(in crate::commands) fn members_of(path: &Path) -> Result<Members> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Members::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Ok(Members::new());
    }
    serde_json::from_str(text)
        .map_err(|error| anyhow::anyhow!("{}: it is not valid JSON: {error}", path.display()))
}

/// Returns whether the plugin is enabled.
pub(in crate::commands) fn enabled(members: &Members) -> bool {
    members
        .get("enabledPlugins")
        .is_some_and(|plugins| plugins[PLUGIN] == true)
}

/// Returns the source of a marketplace with our name that is not in that folder.
pub(in crate::commands) fn foreign_marketplace(members: &Members, folder: &Path) -> Option<String> {
    let source = source_of_marketplace(members)?;
    (!is_marketplace(members, folder)).then(|| source.to_string())
}

/// Returns the folder of a marketplace with our name, if it is another one.
pub(in crate::commands) fn foreign_folder(members: &Members, folder: &Path) -> Option<PathBuf> {
    let path = PathBuf::from(source_of_marketplace(members)?["path"].as_str()?);
    (!is_same(&path, folder)).then_some(path)
}

/// Returns whether the marketplace with our name is in that folder.
pub(in crate::commands) fn is_marketplace(members: &Members, folder: &Path) -> bool {
    let path = source_of_marketplace(members).and_then(|source| source["path"].as_str());
    path.is_some_and(|path| is_same(Path::new(path), folder))
}

/// Returns whether two paths are one folder, also through links.
pub(in crate::commands) fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    one == other || real(one) == real(other)
}

fn source_of_marketplace(members: &Members) -> Option<&Value> {
    members
        .get("extraKnownMarketplaces")?
        .get(MARKETPLACE)?
        .get("source")
}

/// Removes the members that `claude` wrote for the marketplace and the plugin.
pub(in crate::commands) fn remove_ours(members: &mut Members) {
    for (name, ours) in OURS {
        let Some(group) = members.get_mut(name).and_then(Value::as_object_mut) else {
            continue;
        };
        if group.shift_remove(ours).is_some() && group.is_empty() {
            members.shift_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn with_text(text: &str) -> (tempfile::TempDir, SettingsFile) {
        let folder = tempfile::tempdir().unwrap();
        let settings = SettingsFile::in_folder(folder.path());
        fs::write(settings.path(), text).unwrap();
        (folder, settings)
    }

    fn members(value: &Value) -> Members {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn only_our_members_are_removed_and_the_others_keep_their_order() {
        let mut settings = members(&json!({
            "z": 1, "extraKnownMarketplaces": {"c3po": {}, "other": {}}, "enabledPlugins": {"c3po@c3po": true}, "a": {},
        }));
        assert!(enabled(&settings));
        remove_ours(&mut settings);
        assert!(!enabled(&settings));
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(
            text,
            r#"{"z":1,"extraKnownMarketplaces":{"other":{}},"a":{}}"#
        );
    }

    #[test]
    fn writing_keeps_links_and_modes() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let (folder, settings) = with_text("{}");
        let real = folder.path().join("dotfiles.json");
        fs::rename(settings.path(), &real).unwrap();
        fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).unwrap();
        symlink(&real, settings.path()).unwrap();
        settings.write(&members(&json!({"a": 1}))).unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "{\n  \"a\": 1\n}\n");
        assert!(settings.path().is_symlink());
        assert_eq!(
            fs::metadata(&real).unwrap().permissions().mode() & 0o777,
            0o640
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_backup_of_unchanged_members_is_removed() {
        let (_folder, settings) = with_text("{\"a\": 1, \"b\": 2}");
        let backup = settings.back_up().unwrap();
        assert_eq!(
            settings.backups().unwrap(),
            backup.clone().into_iter().collect::<Vec<_>>()
        );
        fs::write(settings.path(), "{\"b\": 1}").unwrap();
        assert_eq!(settings.without_needless(backup.clone()).unwrap(), backup);
        fs::write(settings.path(), "{\"b\":2,\"a\":1}").unwrap();
        assert_eq!(settings.without_needless(backup).unwrap(), None);
    }

    #[test]
    fn text_that_is_not_a_json_object_is_an_error_and_an_empty_file_has_no_members() {
        for text in ["{ // mine\n}", "[]", "{\"a\": 1,}"] {
            let (_folder, settings) = with_text(text);
            let error = format!("{:#}", settings.read().unwrap_err());
            assert!(
                error.contains("settings.json: it is not valid JSON"),
                "{text}: {error}"
            );
        }
        let (_folder, settings) = with_text("\n");
        assert_eq!(settings.read().unwrap(), Members::new());
        fs::remove_file(settings.path()).unwrap();
        assert_eq!(
            (settings.read().unwrap(), settings.back_up().unwrap()),
            (Members::new(), None)
        );
    }
}
