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

use super::json_text::{self, Unsafe};
use super::{MARKETPLACE, PLUGIN};

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
    /// Only our members differ from what was before, and these others, which Claude Code or somebody else changed.
    AllBut(Vec<String>),
    /// The file stays as Claude Code wrote it: it cannot be taken apart safely.
    Rewritten,
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

    /// Gives the text the form of `before` again, wherever it says the same.
    pub(in crate::commands) fn put_back(&self, before: &str) -> Result<Kept> {
        let now = self.text()?.unwrap_or_default();
        let Some((wanted, others)) = in_form_of(before, &now)? else { return Ok(Kept::Rewritten) };
        if wanted != now {
            self.write(&wanted)?;
        }
        Ok(Kept::AllBut(others))
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

/// Returns what `now` says, in the form of `before` wherever both say the same, and the other members than ours that
/// differ. Nothing where that cannot be done safely.
pub(in crate::commands) fn in_form_of(before: &str, now: &str) -> Result<Option<(String, Vec<String>)>> {
    let (was, is) = (json_text::parsed(object(before))?, json_text::parsed(object(now))?);
    let (Value::Object(was), Value::Object(is)) = (was, is) else { return Ok(None) };
    let mut others = Vec::new();
    let Ok(text) = merged(object(before).to_owned(), &mut Vec::new(), &was, &is, &mut others) else { return Ok(None) };
    Ok(same(&text, now)?.then_some((text, others)))
}

fn merged<'a>(
    mut text: String,
    path: &mut Vec<&'a str>,
    was: &'a Map<String, Value>,
    is: &'a Map<String, Value>,
    others: &mut Vec<String>,
) -> Result<String, Unsafe> {
    for name in is.keys().chain(was.keys().filter(|name| !is.contains_key(*name))) {
        path.push(name);
        let (before, now) = (was.get(name), is.get(name));
        let differ = before.cloned().map(plain_numbers) != now.cloned().map(plain_numbers);
        if differ && !is_ours(path, before.or(now)) {
            others.push(path.join("."));
        }
        text = match (before, now) {
            _ if !differ => text,
            (Some(Value::Object(was)), Some(Value::Object(is))) => {
                // What differs in it is told instead.
                let whole = path.join(".");
                others.retain(|other| *other != whole);
                merged(text, path, was, is, others)?
            }
            (_, Some(now)) => json_text::with(&text, path, now)?,
            (_, None) => json_text::without(&text, path)?,
        };
        path.pop();
    }
    Ok(text)
}

/// Returns whether it is our member, or an object that holds nothing else.
fn is_ours(path: &[&str], value: Option<&Value>) -> bool {
    let holds_ours = |ours: &&[&str]| match (path, value.and_then(Value::as_object)) {
        ([name], Some(members)) => *name == ours[0] && members.len() == 1 && members.contains_key(ours[1]),
        _ => false,
    };
    OURS.contains(&path) || OURS.iter().any(holds_ours)
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
        let (_folder, settings) = with_text(AFTER);
        assert_eq!(settings.put_back(BEFORE).unwrap(), Kept::AllBut(Vec::new()));
        let now = settings.text().unwrap().unwrap();
        assert!(now.starts_with(BEFORE.trim_end_matches(" }\n")), "{now}");
        assert_eq!(now, with_ours_of(BEFORE, AFTER).unwrap());
        assert!(enabled(&now).unwrap());
        assert_eq!(without_ours(&now).unwrap(), BEFORE);
    }

    #[test]
    fn what_another_changed_meanwhile_is_not_undone() {
        let (_folder, settings) = with_text(&AFTER.replace("\"b\":1,", "\"c\":[1.0],").replace("é", "è"));
        let others = ["a.x", "c", "b"].map(str::to_owned).to_vec();
        assert_eq!(settings.put_back(BEFORE).unwrap(), Kept::AllBut(others));
        let now = settings.text().unwrap().unwrap();
        assert!(now.starts_with("{ \"big\": 12345678901234567890123, \"a\": {\"x\": \"è\"}"), "{now}");
        assert!(now.contains("\"c\": [1.0]") && !now.contains("\"b\""), "{now}");
    }

    #[test]
    fn what_cannot_be_taken_apart_stays_as_it_is() {
        let before = "{\"a\": 1, \"a\": 2}";
        let (_folder, settings) = with_text("{\"a\":3}");
        assert_eq!(settings.put_back(before).unwrap(), Kept::Rewritten);
        assert_eq!(settings.text().unwrap().unwrap(), "{\"a\":3}");
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
