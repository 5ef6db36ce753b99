//! Restore of the embedded store and the coordinator's certificate from a backup.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use c3po_shared::time::Timestamp;
use rusqlite::Connection;

use super::backup::{CERTIFICATE, COPIED_FILES, beside, with_end};
use super::ladder::version;
use super::{open, parts};

/// Replaces the database and the certificate with a backup, without its open invites and codes of logins. Returns the new paths
/// of the replaced files.
///
/// Errors: a coordinator is running on that database, the file is not a backup, contains what `backup` does not
/// make, or comes from a newer program, or a folder cannot be written.
pub(super) fn restore(source: &Path, database: &Path, data_dir: &Path) -> Result<Vec<PathBuf>> {
    let source_is_there = fs::metadata(source).with_context(|| source.display().to_string())?;
    if source_is_there.len() == 0 {
        bail!("{} is empty", source.display());
    }
    open::check_header(source)?;
    let _lock = open::lock(database)?;
    let new = beside(database, "restoring");
    // Removes the remains of an interrupted restore; usually there are none.
    let _ = fs::remove_file(&new);
    let placed = place(source, &new, database, data_dir);
    if placed.is_err() {
        let _ = fs::remove_file(&new);
    }
    placed.with_context(|| format!("restoring {}", source.display()))
}

fn place(source: &Path, new: &Path, database: &Path, data_dir: &Path) -> Result<Vec<PathBuf>> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(new)?;
    io::copy(&mut File::open(source)?, &mut file)?;
    let copy = Connection::open(new)?;
    if !copy.table_exists(None, "copied_files")? {
        bail!("it is a database, but not a copy made by `backup`");
    }
    if let Some(difference) = parts::difference(&copy, version(&copy)?, COPIED_FILES)? {
        bail!(
            "it is not as `backup` makes it ({difference}), so others may have changed it: use another backup"
        );
    }
    let verdict: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if verdict != "ok" {
        bail!("it is damaged: {verdict}");
    }
    let files = copied_files(&copy)?;
    copy.execute_batch("DROP TABLE copied_files")?;
    // A code may have been used after the backup. A backup of an earlier format has fewer tables.
    for codes in ["invites", "login_codes"] {
        if copy.table_exists(None, codes)? {
            copy.execute(&format!("DELETE FROM {codes}"), [])?;
        }
    }
    drop(copy);
    file.sync_all()?;
    let before = format!("before-{}", Timestamp::now().millis());
    let mut moved = Vec::new();
    for name in ["", "-wal", "-shm"] {
        moved.extend(move_aside(&with_end(database, name), &before)?);
    }
    fs::rename(new, database)?;
    for (name, content) in files {
        let path = data_dir.join(CERTIFICATE).join(&name);
        if fs::read(&path).is_ok_and(|found| found == content) {
            continue;
        }
        moved.extend(move_aside(&path, &before)?);
        write_file(&path, &content).with_context(|| path.display().to_string())?;
    }
    Ok(moved)
}

/// Returns the certificate files by name. Names that would lead out of the folder are skipped.
fn copied_files(copy: &Connection) -> rusqlite::Result<Vec<(String, Vec<u8>)>> {
    let mut query = copy.prepare("SELECT name, content FROM copied_files")?;
    let files = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let mut files = files.collect::<rusqlite::Result<Vec<(String, Vec<u8>)>>>()?;
    files.retain(|(name, _)| {
        Path::new(name)
            .file_name()
            .is_some_and(|last| last == name.as_str())
    });
    Ok(files)
}

/// Renames a file if it exists. Returns the new name.
fn move_aside(path: &Path, end: &str) -> Result<Option<PathBuf>> {
    let aside = beside(path, end);
    match fs::rename(path, &aside) {
        Ok(()) => Ok(Some(aside)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
