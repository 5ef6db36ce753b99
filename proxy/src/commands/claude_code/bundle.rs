//! The plugin's files, compiled in, and the local marketplace that is made of them.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::client::Installed;
use super::settings::is_same;
use crate::config::private;

/// Every file of the marketplace except the program, by its path.
const FILES: &[(&str, &str)] = &[
    (
        ".claude-plugin/marketplace.json",
        include_str!("../../../../.claude-plugin/marketplace.json"),
    ),
    (
        "plugin/.claude-plugin/plugin.json",
        include_str!("../../../../plugin/.claude-plugin/plugin.json"),
    ),
    (
        "plugin/.mcp.json",
        include_str!("../../../../plugin/.mcp.json"),
    ),
    ("plugin/LICENSE", include_str!("../../../../plugin/LICENSE")),
    (
        "plugin/README.md",
        include_str!("../../../../plugin/README.md"),
    ),
    (
        "plugin/hooks/hooks.json",
        include_str!("../../../../plugin/hooks/hooks.json"),
    ),
    (
        "plugin/skills/coordinate/SKILL.md",
        include_str!("../../../../plugin/skills/coordinate/SKILL.md"),
    ),
    (
        "plugin/skills/mailbox/SKILL.md",
        include_str!("../../../../plugin/skills/mailbox/SKILL.md"),
    ),
    (
        "plugin/skills/triage/SKILL.md",
        include_str!("../../../../plugin/skills/triage/SKILL.md"),
    ),
];

/// The folders in which all files of every version are.
const PARTS: [&str; 2] = [".claude-plugin", "plugin"];

/// The path of the program. In the repository it is a launcher, which costs every hook a shell.
const PROGRAM: &str = "plugin/bin/c3po";

/// The marketplace of this host: a folder that only c3po uses.
#[derive(Debug)]
pub(in crate::commands) struct Bundle {
    folder: PathBuf,
}

/// The change of one file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) enum Change {
    /// The file is written.
    Write(&'static str),
    /// The program is linked or copied there.
    Program,
    /// A file of another version is removed.
    Remove(PathBuf),
}

impl Bundle {
    /// Returns the bundle in a data folder, without any disk access.
    pub(in crate::commands) fn in_data(data_dir: &Path) -> Self {
        Self {
            folder: data_dir.join("claude-code"),
        }
    }

    /// Returns its folder.
    pub(in crate::commands) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of its program.
    pub(in crate::commands) fn program(&self) -> PathBuf {
        self.folder.join(PROGRAM)
    }

    /// Returns the folder from which sessions load the plugin, if that is another one.
    pub(in crate::commands) fn replaced_by<'a>(&self, plugin: &'a Installed) -> Option<&'a Path> {
        let own = self.folder.join("plugin");
        let found = plugin.folder.as_deref();
        found.filter(|found| !is_same(found, &own))
    }

    /// Returns the number of its files.
    pub(in crate::commands) fn size() -> usize {
        FILES.len() + 1
    }

    /// Returns the differences from this version, whose program is `this`.
    pub(in crate::commands) fn changes(&self, this: &Path) -> Result<Vec<Change>> {
        if self.folder.is_symlink() {
            // The folder behind it is someone's own, and an installation removes all other files from it.
            bail!(
                "{} is a symbolic link, but must be a folder; remove the link",
                self.folder.display()
            );
        }
        self.check()?;
        let mut changes = Vec::new();
        for (path, text) in FILES {
            let found = fs::read(self.folder.join(path)).unwrap_or_default();
            if found != text.as_bytes() {
                changes.push(Change::Write(path));
            }
        }
        if !same(this, &self.program())? {
            changes.push(Change::Program);
        }
        let known: Vec<_> = FILES
            .iter()
            .map(|(path, _)| self.folder.join(path))
            .chain([self.program()])
            .collect();
        let mut found = Vec::new();
        collect(&self.folder, &mut found)?;
        changes.extend(
            found
                .into_iter()
                .filter(|path| !known.contains(path))
                .map(Change::Remove),
        );
        Ok(changes)
    }

    /// Applies a change. The folder is for its owner alone: another user could put a command into the hooks.
    pub(in crate::commands) fn make(&self, change: &Change, this: &Path) -> Result<()> {
        private::make_folder(&self.folder)
            .and_then(|()| fs::set_permissions(&self.folder, Permissions::from_mode(0o700)))
            .with_context(|| format!("cannot make {}", self.folder.display()))?;
        match change {
            Change::Write(path) => {
                let text = FILES
                    .iter()
                    .find(|(known, _)| known == path)
                    .map_or("", |(_, text)| text);
                put(&self.folder.join(path), |temporary| {
                    fs::write(temporary, text)?;
                    fs::set_permissions(temporary, Permissions::from_mode(0o600))
                })
            }
            Change::Program => put(&self.program(), |temporary| {
                fs::hard_link(this, temporary).or_else(|_| fs::copy(this, temporary).map(drop))
            }),
            Change::Remove(path) => {
                fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))
            }
        }
    }

    /// Checks that nothing of someone else is in the folder. A project's environment may name one of the user that has this name.
    pub(in crate::commands) fn check(&self) -> Result<()> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries.with_context(|| format!("cannot read {}", self.folder.display()))?,
        };
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", self.folder.display()))?;
            // The file manager of macOS leaves it in each folder.
            if entry.file_name() == ".DS_Store" {
                continue;
            }
            let is_of_name = PARTS.iter().any(|part| entry.file_name() == *part);
            if !is_of_name || !entry.file_type()?.is_dir() {
                bail!(
                    "{} is not of c3po, which removes all that is in that folder; move it away, or unset XDG_DATA_HOME",
                    entry.path().display()
                );
            }
        }
        Ok(())
    }

    /// Removes the whole folder. Returns whether it existed.
    ///
    /// Errors: it cannot be removed, or has something of someone else.
    pub(in crate::commands) fn remove(&self) -> Result<bool> {
        self.check()?;
        match fs::remove_dir_all(&self.folder) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                Err(error).with_context(|| format!("cannot remove {}", self.folder.display()))
            }
        }
    }
}

impl Change {
    /// Returns a description of the change.
    pub(in crate::commands) fn words(&self, bundle: &Bundle, this: &Path) -> String {
        match self {
            Self::Write(path) => format!("write {}", bundle.folder.join(path).display()),
            Self::Program => format!(
                "link {} to {} (or copy it)",
                bundle.program().display(),
                this.display()
            ),
            Self::Remove(path) => format!("remove {}", path.display()),
        }
    }
}

/// Creates a file under a temporary name and renames it: a session that starts meanwhile finds the old or the new one.
fn put(path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    private::make_folder(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    // A leftover of a process with the same number.
    let _ = fs::remove_file(&temporary);
    let made = make(&temporary).and_then(|()| fs::rename(&temporary, path));
    if made.is_err() {
        // Nothing was put in place; the reason is reported below.
        let _ = fs::remove_file(&temporary);
    }
    made.with_context(|| format!("cannot write {}", path.display()))
}

/// Returns whether two programs are the same file, or have the same bytes.
fn same(this: &Path, other: &Path) -> Result<bool> {
    let about = |path: &Path| fs::metadata(path);
    let this_one = about(this).with_context(|| format!("cannot read {}", this.display()))?;
    let Ok(other_one) = about(other) else {
        return Ok(false);
    };
    if (this_one.dev(), this_one.ino()) == (other_one.dev(), other_one.ino()) {
        return Ok(true);
    }
    if this_one.len() != other_one.len() || other_one.mode() & 0o111 == 0 {
        return Ok(false);
    }
    let read =
        |path: &Path| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    Ok(read(this)? == read(other)?)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", folder.display()));
        }
    };
    for entry in entries {
        let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), found)?;
        } else {
            found.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn every_file_of_the_plugin_is_in_the_bundle() {
        let mut found = Vec::new();
        for folder in [".claude-plugin", "plugin"] {
            collect(&repository().join(folder), &mut found).unwrap();
        }
        let mut found: Vec<_> = found
            .iter()
            .map(|path| path.strip_prefix(repository()).unwrap().to_str().unwrap())
            .collect();
        let mut bundled: Vec<_> = FILES
            .iter()
            .map(|(path, _)| *path)
            .chain([PROGRAM])
            .collect();
        found.sort_unstable();
        bundled.sort_unstable();
        assert_eq!(found, bundled);
    }

    #[test]
    fn nothing_is_removed_behind_a_link() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let precious = other.path().join("precious");
        fs::write(&precious, "").unwrap();
        let bundle = Bundle::in_data(folder.path());
        std::os::unix::fs::symlink(other.path(), bundle.folder()).unwrap();
        let error = bundle.changes(&precious).unwrap_err().to_string();
        assert!(
            error.contains("is a symbolic link") && precious.exists(),
            "{error}"
        );
    }

    #[test]
    fn nothing_is_removed_from_a_folder_of_someone_else() {
        for (of_user, is_link) in [
            ("thesis.txt", false),
            (".git/config", false),
            ("plugin", true),
        ] {
            let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let bundle = Bundle::in_data(data.path());
            let path = bundle.folder().join(of_user);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if is_link {
                std::os::unix::fs::symlink(other.path(), &path).unwrap();
            } else {
                fs::write(&path, "").unwrap();
            }
            let this = data.path().join("program");
            fs::write(&this, "one").unwrap();
            let refused = [bundle.changes(&this).map(drop), bundle.remove().map(drop)];
            for refused in refused {
                let error = refused.unwrap_err().to_string();
                assert!(error.contains("is not of c3po"), "{error}");
            }
            assert!(path.exists(), "{of_user}");
        }
    }

    #[test]
    fn the_bundle_is_for_its_owner_alone() {
        let data = tempfile::tempdir().unwrap();
        let this = data.path().join("program");
        fs::write(&this, "one").unwrap();
        let bundle = Bundle::in_data(data.path());
        fs::create_dir(bundle.folder()).unwrap();
        fs::set_permissions(bundle.folder(), Permissions::from_mode(0o777)).unwrap();
        for change in bundle.changes(&this).unwrap() {
            bundle.make(&change, &this).unwrap();
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(bundle.folder()), 0o700);
        for (path, _) in FILES {
            let file = bundle.folder().join(path);
            let modes = (mode(&file), mode(file.parent().unwrap()));
            assert_eq!(modes, (0o600, 0o700), "{path}");
        }
        let folder = bundle.program();
        assert_eq!(mode(folder.parent().unwrap()), 0o700);
    }

    #[test]
    fn changed_files_are_written_and_foreign_ones_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let this = folder.path().join("program");
        fs::write(&this, "one").unwrap();
        fs::set_permissions(&this, Permissions::from_mode(0o755)).unwrap();
        let bundle = Bundle::in_data(folder.path());
        let settle = || {
            let changes = bundle.changes(&this).unwrap();
            changes
                .iter()
                .for_each(|change| bundle.make(change, &this).unwrap());
            changes.len()
        };
        assert_eq!(settle(), Bundle::size());
        assert_eq!(settle(), 0);

        fs::write(bundle.folder().join("plugin/hooks/old.json"), "{}").unwrap();
        fs::write(bundle.folder().join(FILES[1].0), "{}").unwrap();
        let copy = bundle.folder().join("copy");
        fs::copy(bundle.program(), &copy).unwrap();
        fs::rename(&copy, bundle.program()).unwrap();
        assert_eq!(settle(), 2, "the same bytes are the same program");
        assert_eq!(settle(), 0);

        fs::remove_file(&this).unwrap();
        fs::write(&this, "two").unwrap();
        assert_eq!(bundle.changes(&this).unwrap(), [Change::Program]);
        assert!(bundle.remove().unwrap());
        assert!(!bundle.remove().unwrap());
    }
}
