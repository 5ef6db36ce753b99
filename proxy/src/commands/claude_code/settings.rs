//! The user's settings of Claude Code: our members in and out of them, every other byte as it was.
//!
//! `claude plugin …` writes that file anew: other order, other indentation, numbers rounded. So the text is kept before,
//! and put back after with nothing but our members changed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use c3po_shared::time::Timestamp;
use serde_json::{Map, Value};

use super::{MARKETPLACE, PLUGIN, json_text};

/// What Claude Code writes there for a marketplace and a plugin, in the order in which it does.
pub(in crate::commands) const OURS: [&[&str]; 2] =
    [&["extraKnownMarketplaces", MARKETPLACE], &["enabledPlugins", PLUGIN]];
/// What the main status line is called there.
pub(in crate::commands) const STATUS_LINE: &[&str] = &["statusLine"];

/// How the names of backups begin, beside the file; a time follows.
const BACKUP: &str = "settings.json.before-c3po-";

/// The file.
#[derive(Debug)]
pub(in crate::commands) struct Settings {
    path: PathBuf,
}

/// How the text is after Claude Code has written it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) enum Kept {
    /// Only our members are different.
    Exactly,
    /// Others are, too: the file stays as Claude Code wrote it.
    Changed,
}

impl Settings {
    /// Names it.
    pub(in crate::commands) fn in_folder(claude_dir: &Path) -> Self {
        Self { path: claude_dir.join("settings.json") }
    }

    /// Returns where it is.
    pub(in crate::commands) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns its text, if there is the file.
    ///
    /// Errors: it cannot be read, or is not what Claude Code reads either.
    pub(in crate::commands) fn text(&self) -> Result<Option<String>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        };
        if !text.trim().is_empty() {
            json_text::parsed(&text).with_context(|| self.path.display().to_string())?;
        }
        Ok(Some(text))
    }

    /// Writes the text: all or nothing, through a link, with the rights that the file has.
    pub(in crate::commands) fn write(&self, text: &str) -> Result<()> {
        let real = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let failed = || format!("cannot write {}", real.display());
        let folder = real.parent().with_context(failed)?;
        fs::create_dir_all(folder).with_context(failed)?;
        let temporary = folder.join(format!(".settings.json.c3po-{}", std::process::id()));
        let mut file = fs::File::create(&temporary).with_context(failed)?;
        if let Ok(about) = fs::metadata(&real) {
            file.set_permissions(about.permissions()).with_context(failed)?;
        }
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(failed)?;
        fs::rename(&temporary, &real).with_context(failed)
    }

    /// Copies it to a name beside it that was not there. Returns the name; `None` where there is no file.
    pub(in crate::commands) fn back_up(&self) -> Result<Option<PathBuf>> {
        if !self.path.exists() {
            return Ok(None);
        }
        let digits: String = Timestamp::now().to_string().chars().filter(char::is_ascii_digit).collect();
        let copy = self.path.with_file_name(format!("{BACKUP}{digits}"));
        if copy.exists() {
            bail!("{} is there already", copy.display());
        }
        fs::copy(&self.path, &copy).with_context(|| format!("cannot write {}", copy.display()))?;
        Ok(Some(copy))
    }

    /// Removes a backup if the file is, byte for byte, what was backed up. Returns it if it stays.
    pub(in crate::commands) fn without_needless(&self, backup: Option<PathBuf>) -> Result<Option<PathBuf>> {
        let Some(backup) = backup else { return Ok(None) };
        let (Ok(now), Ok(before)) = (fs::read(&self.path), fs::read(&backup)) else { return Ok(Some(backup)) };
        if now != before {
            return Ok(Some(backup));
        }
        fs::remove_file(&backup).with_context(|| format!("cannot remove {}", backup.display()))?;
        Ok(None)
    }

    /// Returns the backups that are there.
    pub(in crate::commands) fn backups(&self) -> Result<Vec<PathBuf>> {
        let folder = self.path.parent().unwrap_or(&self.path);
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut found: Vec<_> =
            entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_backup(path)).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Puts `wanted` back where Claude Code wrote the same in another form.
    pub(in crate::commands) fn put_back(&self, wanted: &str) -> Result<Kept> {
        let now = self.text()?.unwrap_or_default();
        if now == wanted {
            return Ok(Kept::Exactly);
        }
        if !same(&now, wanted)? {
            return Ok(Kept::Changed);
        }
        self.write(wanted)?;
        Ok(Kept::Exactly)
    }

    /// Removes the file if it says nothing.
    pub(in crate::commands) fn remove_if_empty(&self) -> Result<bool> {
        let Some(text) = self.text()? else { return Ok(false) };
        if !same(&text, "{}")? {
            return Ok(false);
        }
        fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))?;
        Ok(true)
    }
}

fn is_backup(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(BACKUP))
}

/// Returns a text with our members as they are in another one: set, or taken out.
pub(in crate::commands) fn with_ours_of(text: &str, other: &str) -> Result<String> {
    OURS.iter().try_fold(object(text).to_owned(), |text, path| {
        Ok(match member(other, path)? {
            Some(value) => json_text::with(&text, path, &value)?,
            None => json_text::without(&text, path)?,
        })
    })
}

/// Returns a text without our members.
pub(in crate::commands) fn without_ours(text: &str) -> Result<String> {
    OURS.iter().try_fold(object(text).to_owned(), |text, path| Ok(json_text::without(&text, path)?))
}

/// Returns whether a text has any of our members.
pub(in crate::commands) fn has_ours(text: &str) -> Result<bool> {
    OURS.iter().try_fold(false, |found, path| Ok(found || raw_member(text, path)?.is_some()))
}

/// Returns whether the plugin was there and on.
pub(in crate::commands) fn enabled(text: &str) -> Result<bool> {
    Ok(member(text, OURS[1])? == Some(Value::Bool(true)))
}

/// Returns the value at a path.
pub(in crate::commands) fn member(text: &str, path: &[&str]) -> Result<Option<Value>> {
    let raw = json_text::raw(object(text), path)?;
    raw.map(|raw| serde_json::from_str(raw).context("reading a member")).transpose()
}

/// Returns the value at a path as it is written.
pub(in crate::commands) fn raw_member<'a>(text: &'a str, path: &[&str]) -> Result<Option<&'a str>> {
    Ok(json_text::raw(object(text), path)?)
}

/// Returns a text with a value at a path.
pub(in crate::commands) fn with(text: &str, path: &[&str], value: &Value) -> Result<String> {
    Ok(json_text::with(object(text), path, value)?)
}

/// Returns a text with a value at a path, in the form in which a person had written it.
pub(in crate::commands) fn with_raw(text: &str, path: &[&str], raw: &str) -> Result<String> {
    Ok(json_text::with_raw(object(text), path, raw)?)
}

/// Returns a text without the member at a path.
pub(in crate::commands) fn without(text: &str, path: &[&str]) -> Result<String> {
    Ok(json_text::without(object(text), path)?)
}

/// Claude Code takes an empty file for an empty object.
fn object(text: &str) -> &str {
    if text.trim().is_empty() { "{}" } else { text }
}

/// Returns whether two texts say the same: as programs read it, and whether or not our objects are there when empty.
pub(in crate::commands) fn same(one: &str, other: &str) -> Result<bool> {
    let plain = |text: &str| -> Result<Value> {
        let mut value = json_text::parsed(object(text))?;
        if let Value::Object(map) = &mut value {
            for path in OURS {
                drop_empty(map, path[0]);
            }
        }
        Ok(plain_numbers(value))
    };
    Ok(plain(one)? == plain(other)?)
}

fn drop_empty(map: &mut Map<String, Value>, name: &str) {
    if map.get(name).and_then(Value::as_object).is_some_and(Map::is_empty) {
        map.shift_remove(name);
    }
}

/// Claude Code knows only one kind of number: what it read as 1.00 it writes as 1.
fn plain_numbers(value: Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Number(number), Value::from),
        Value::Array(items) => items.into_iter().map(plain_numbers).collect(),
        Value::Object(map) => Value::Object(map.into_iter().map(|(key, value)| (key, plain_numbers(value))).collect()),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "{ \"big\": 12345678901234567890123,\n\t\"b\": 1.00, \"a\": {\"x\": \"\\u00e9\"} }\n";
    const AFTER: &str = "{\"a\":{\"x\":\"é\"},\"extraKnownMarketplaces\":{\"c3po\":{\"source\":1}},\"b\":1,\
                         \"big\":1.2345678901234568e+22,\"enabledPlugins\":{\"c3po@c3po\":true}}";

    fn with_text(text: &str) -> (tempfile::TempDir, Settings) {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings::in_folder(folder.path());
        fs::write(settings.path(), text).unwrap();
        (folder, settings)
    }

    #[test]
    fn only_our_members_differ_from_what_was_before() {
        let wanted = with_ours_of(BEFORE, AFTER).unwrap();
        assert!(wanted.starts_with(BEFORE.trim_end_matches(" }\n")), "{wanted}");
        let (_folder, settings) = with_text(AFTER);
        assert_eq!(settings.put_back(&wanted).unwrap(), Kept::Exactly);
        assert_eq!(settings.text().unwrap().unwrap(), wanted);
        assert!(enabled(&wanted).unwrap());
        assert_eq!(without_ours(&wanted).unwrap(), BEFORE);
    }

    #[test]
    fn what_another_changed_meanwhile_is_not_undone() {
        let other = AFTER.replace("é", "è");
        let (_folder, settings) = with_text(&other);
        assert_eq!(settings.put_back(&with_ours_of(BEFORE, AFTER).unwrap()).unwrap(), Kept::Changed);
        assert_eq!(settings.text().unwrap().unwrap(), other);
    }

    #[test]
    fn writing_keeps_links_and_rights() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let (folder, settings) = with_text("{}");
        let real = folder.path().join("dotfiles.json");
        fs::rename(settings.path(), &real).unwrap();
        fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).unwrap();
        symlink(&real, settings.path()).unwrap();
        settings.write("{\"a\": 1}").unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "{\"a\": 1}");
        assert!(settings.path().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_backup_goes_when_it_is_not_needed() {
        let (_folder, settings) = with_text("{}");
        let backup = settings.back_up().unwrap();
        settings.write("{\"a\": 1}").unwrap();
        assert_eq!(settings.without_needless(backup.clone()).unwrap(), backup);
        settings.write("{}").unwrap();
        assert_eq!(settings.without_needless(backup).unwrap(), None);
        assert!(settings.remove_if_empty().unwrap());
        assert_eq!((settings.back_up().unwrap(), settings.text().unwrap()), (None, None));
    }

    #[test]
    fn settings_with_comments_are_refused_and_empty_ones_are_an_object() {
        let (_folder, settings) = with_text("{ // mine\n}");
        assert!(format!("{:#}", settings.text().unwrap_err()).contains("not valid JSON"));
        settings.write("\n").unwrap();
        let wanted = with_ours_of(&settings.text().unwrap().unwrap(), AFTER).unwrap();
        assert!(enabled(&wanted).unwrap());
    }
}
