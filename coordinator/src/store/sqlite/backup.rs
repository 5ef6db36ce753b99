//! Backup of the embedded store and the coordinator's certificate in one file, and its restore.
//!
//! The backup is a database like the store's own with one more table, which contains the certificate. Hosts recognise the
//! coordinator by it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use c3po_shared::time::Timestamp;
use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use super::ladder::version;
use super::{open, parts};

/// The folder of the certificate inside the data folder.
const CERTIFICATE: &str = "tls";
/// Makes the table of the certificate's files in a backup.
const COPIED_FILES: &str =
    "CREATE TABLE copied_files (name TEXT PRIMARY KEY, content BLOB NOT NULL)";
/// The largest size of a certificate file.
const FILE_MAX: u64 = 1 << 20;

/// Copies the database and the certificate into a new file that only its owner can read. A coordinator may run meanwhile: the
/// copy has the state at the start of the copy.
///
/// Errors: there is no database, it contains what this program does not make, the file already exists, or it cannot be written.
/// A partial file is removed.
pub(super) fn back_up(database: &Path, data_dir: &Path, target: &Path) -> Result<()> {
    open::check_header(database)?;
    let source = Connection::open_with_flags(database, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .with_context(|| format!("there is no database to copy at {}", database.display()))?;
    open::check_parts(database, &source, version(&source)?)?;
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target);
    let file = made.with_context(|| {
        format!(
            "cannot create {}; pass the name of a new file",
            target.display()
        )
    })?;
    drop(file);
    // Others may create files beside the new one, and SQLite reads files beside a database: it is written where only its owner
    // can.
    let folder = beside(target, &format!("{}.new", Uuid::new_v4().simple()));
    let made = DirBuilder::new().mode(0o700).create(&folder);
    let copied = made.map_err(anyhow::Error::from).and_then(|()| {
        let new = folder.join("c3po.db");
        copy(&source, data_dir, &new)?;
        File::open(&new)?.sync_all()?;
        Ok(fs::rename(&new, target)?)
    });
    // The first failure is more important than a failure to remove a file.
    let _ = fs::remove_dir_all(&folder);
    if copied.is_err() {
        let _ = fs::remove_file(target);
    }
    copied.with_context(|| format!("copying {} to {}", database.display(), target.display()))
}

fn copy(source: &Connection, data_dir: &Path, target: &Path) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target)?;
    source.execute("VACUUM INTO ?", [text(target)?])?;
    let copy = Connection::open(target)?;
    copy.execute_batch(COPIED_FILES)?;
    let folder = match fs::read_dir(data_dir.join(CERTIFICATE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        folder => folder?,
    };
    for entry in folder {
        let entry = entry?;
        let content = crate::files::read(&entry.path(), FILE_MAX)
            .with_context(|| entry.path().display().to_string())?;
        let name = entry.file_name();
        copy.execute(
            "INSERT INTO copied_files VALUES (?, ?)",
            (name.to_string_lossy(), content),
        )?;
    }
    Ok(())
}

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

fn beside(path: &Path, end: &str) -> PathBuf {
    with_end(path, &format!(".{end}"))
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str()
        .with_context(|| format!("{} is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use c3po_shared::vocabulary::{LoginScope, Scope};

    use super::*;
    use crate::config::Fleet;
    use crate::store::sqlite::SqliteStore;
    use crate::store::{Invite, KeyStore as _, Login, LoginCode, LoginStore as _, Quota, Store};

    /// Makes a data folder with an open store and a certificate.
    async fn served(folder: &Path, key: &str) -> SqliteStore {
        fs::create_dir_all(folder.join(CERTIFICATE)).expect("a folder");
        fs::write(folder.join("tls/key.pem"), key).expect("written");
        SqliteStore::open(&folder.join("c3po.db"), &Fleet::default())
            .await
            .expect("it opens")
    }

    async fn agents(store: &SqliteStore) -> usize {
        store.agents(None, 10).await.expect("readable").len()
    }

    #[tokio::test]
    async fn a_copy_of_a_running_store_takes_the_place_of_another_and_that_one_stays() {
        let (folder, other) = (
            tempfile::tempdir().expect("a folder"),
            tempfile::tempdir().expect("a folder"),
        );
        let store = served(folder.path(), "old key").await;
        store
            .introduce(&"a".parse().expect("an id"), None, &Quota::default())
            .await
            .expect("made");
        let copy = folder.path().join("copy");
        back_up(&folder.path().join("c3po.db"), folder.path(), &copy).expect("copied");
        assert_eq!(
            fs::metadata(&copy).expect("there").permissions().mode() & 0o777,
            0o600
        );
        store.close().await;

        let database = other.path().join("c3po.db");
        let running = served(other.path(), "new key").await;
        let refused = format!(
            "{:#}",
            restore(&copy, &database, other.path()).expect_err("it runs")
        );
        assert!(
            refused.contains("in use by another coordinator"),
            "{refused}"
        );
        assert_eq!(agents(&running).await, 0);
        running.close().await;

        let moved = restore(&copy, &database, other.path()).expect("restored");
        let names: Vec<_> = moved
            .iter()
            .filter_map(|path| path.file_name()?.to_str())
            .collect();
        assert!(
            names.iter().any(|name| name.starts_with("c3po.db.before-")),
            "{names:?}"
        );
        assert!(
            names.iter().any(|name| name.starts_with("key.pem.before-")),
            "{names:?}"
        );
        assert_eq!(
            fs::read_to_string(other.path().join("tls/key.pem")).expect("there"),
            "old key"
        );
        let store = SqliteStore::open(&database, &Fleet::default())
            .await
            .expect("it opens");
        assert_eq!(agents(&store).await, 1);
        store.close().await;
    }

    fn code(hash: &str) -> LoginCode {
        LoginCode {
            id: hash.into(),
            hash: hash.into(),
            name: "ann".into(),
            scope: LoginScope::Admin,
            made_by: "local".into(),
            login: None,
            expires_at: Timestamp::now() + Duration::from_secs(900),
        }
    }

    fn credentials() -> (Login, Invite) {
        let later = Timestamp::now() + Duration::from_secs(900);
        let login = Login {
            id: "0a1b2c3d".into(),
            hash: "a token".into(),
            name: "ann".into(),
            scope: LoginScope::Admin,
            created_at: Timestamp::now(),
            expires_at: later,
            revoked_at: None,
            made_by: "local".into(),
            device: None,
            revision: 1,
        };
        let invite = Invite {
            id: "0a1b2c3d".into(),
            made_by: None,
            key_hash: None,
            hash: "an invite".into(),
            agents: vec!["*".into()],
            scope: Scope::Agent,
            host: None,
            uses: 1,
            expires_at: later,
            key_seconds: None,
        };
        (login, invite)
    }

    #[tokio::test]
    async fn codes_are_not_restored_and_ended_logins_are_valid_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, copy) = (folder.path().join("c3po.db"), folder.path().join("copy"));
        let store = served(folder.path(), "key").await;
        let (login, invite) = credentials();
        store.put_invite(&invite, None).await.expect("stored");
        for hash in ["spent", "open"] {
            assert!(
                store
                    .put_login_code(&code(hash), 9, None)
                    .await
                    .expect("stored")
            );
        }
        let spent = store.spend_login_code("spent", &login, None, 9, None).await;
        assert!(spent.expect("spent"));
        back_up(&database, folder.path(), &copy).expect("copied");
        let ended = Login {
            revoked_at: Some(Timestamp::now()),
            revision: 2,
            ..login
        };
        assert!(store.put_login(&ended, None, None).await.expect("revoked"));
        store.close().await;

        restore(&copy, &database, folder.path()).expect("restored");
        let store = SqliteStore::open(&database, &Fleet::default())
            .await
            .expect("it opens");
        assert_eq!(store.logins().await.expect("readable")[0].revoked_at, None);
        assert_eq!(store.login_codes().await.expect("readable"), []);
        assert_eq!(store.invites().await.expect("readable"), []);
        store.close().await;
    }

    #[tokio::test]
    async fn files_beside_a_backup_are_neither_read_nor_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let data = folder.path().join("data");
        let store = served(&data, "key").await;
        let target = folder.path().join("backup");
        let beside = ["-wal", "-journal", "-shm"].map(|end| with_end(&target, end));
        for path in &beside {
            fs::write(path, "of others").expect("written");
        }
        back_up(&data.join("c3po.db"), &data, &target).expect("a backup");
        for path in &beside {
            assert_eq!(fs::read_to_string(path).expect("kept"), "of others");
        }
        let mode = fs::metadata(&target).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let left = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(left, 5, "the data, the backup and the files beside it");
        store.close().await;
    }

    #[tokio::test]
    async fn nothing_is_overwritten_and_nothing_else_is_restored() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = folder.path().join("c3po.db");
        let missing = back_up(&database, folder.path(), &folder.path().join("copy"))
            .expect_err("nothing to copy");
        assert!(
            format!("{missing:#}").contains("there is no database"),
            "{missing:#}"
        );
        served(folder.path(), "key").await.close().await;
        let file = folder.path().join("mine");
        fs::write(
            &file,
            "my own text, which is long enough to be looked at as the header of some database file; and more",
        )
        .expect("written");
        back_up(&database, folder.path(), &file).expect_err("it is there");
        assert!(
            fs::read_to_string(&file)
                .expect("there")
                .starts_with("my own text")
        );
        let not_sqlite = format!(
            "{:#}",
            restore(&file, &database, folder.path()).expect_err("no database")
        );
        assert!(
            not_sqlite.contains("not an SQLite database"),
            "{not_sqlite}"
        );
        let plain = folder.path().join("plain.db");
        fs::copy(&database, &plain).expect("copied");
        let no_copy = format!(
            "{:#}",
            restore(&plain, &database, folder.path()).expect_err("no copy")
        );
        assert!(no_copy.contains("not a copy made by `backup`"), "{no_copy}");
        SqliteStore::open(&database, &Fleet::default())
            .await
            .expect("it is as before")
            .close()
            .await;
    }

    #[tokio::test]
    async fn a_trigger_of_others_is_neither_copied_nor_restored() {
        let folder = tempfile::tempdir().expect("a folder");
        let (database, copy) = (folder.path().join("c3po.db"), folder.path().join("copy"));
        served(folder.path(), "key").await.close().await;
        back_up(&database, folder.path(), &copy).expect("copied");
        for path in [&copy, &database] {
            let trigger = "CREATE TRIGGER t AFTER INSERT ON audit BEGIN INSERT INTO logins VALUES ('a', 1, 'b'); END";
            let file = Connection::open(path).expect("a database");
            file.execute_batch(trigger).expect("added");
        }
        let again = back_up(&database, folder.path(), &folder.path().join("again"));
        let errors = [
            again.expect_err("it is not copied"),
            restore(&copy, &database, folder.path()).expect_err("it is not restored"),
        ];
        for error in errors {
            let error = format!("{error:#}");
            assert!(error.contains("it has the trigger \"t\""), "{error}");
        }
        let left: Vec<_> = fs::read_dir(folder.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert!(
            !left
                .iter()
                .any(|name| name == "again" || name == "c3po.db.restoring"),
            "{left:?}"
        );
    }
}
