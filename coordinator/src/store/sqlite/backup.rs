//! Backup of the embedded store and the coordinator's certificate in one file.
//!
//! The backup is a database like the store's own with one more table, which contains the certificate. Hosts recognise the
//! coordinator by it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rusqlite::{Connection, OpenFlags};

use super::ladder::version;
use super::open;
use super::room::DiskRoom;

/// The folder of the certificate inside the data folder.
pub(super) const CERTIFICATE: &str = "tls";
/// Makes the table of the certificate's files in a backup.
pub(super) const COPIED_FILES: &str =
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
    check_room(database, target, &source)?;
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target);
    let mut file = made.with_context(|| {
        format!(
            "cannot create {}; pass the name of a new file",
            target.display()
        )
    })?;
    let copied = copy_into(&mut file, &source, database, data_dir);
    if copied.is_err() {
        let _ = fs::remove_file(target);
    }
    copied.with_context(|| format!("copying {} to {}", database.display(), target.display()))
}

/// Checks that the disk of the database has room for the copy, and for the backup if it is on the same disk, beside what the
/// coordinator reserves there.
fn check_room(database: &Path, target: &Path, source: &Connection) -> Result<()> {
    let (path, max) = (database.to_owned(), None);
    let room = DiskRoom { path, max };
    let (size, free) = (room.measure(source)?.bytes, room.for_another_file()?);
    let disk_of = |path: &Path| {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let found = fs::metadata(folder.unwrap_or(Path::new(".")));
        found.ok().map(|found| found.dev())
    };
    let copies = if disk_of(database) == disk_of(target) {
        2
    } else {
        1
    };
    let needed = size * copies;
    if free < needed {
        bail!(
            "the disk of {} has room for {free} bytes beside what the coordinator reserves, and a backup needs {needed} there \
             for a while: make room first",
            database.display()
        );
    }
    Ok(())
}

/// Copies through a file beside the database: others may create or exchange files beside the target, and SQLite opens files by
/// name, also some that lie beside a database.
fn copy_into(file: &mut File, source: &Connection, database: &Path, data_dir: &Path) -> Result<()> {
    let folder = beside(database, "copying");
    let made = DirBuilder::new().mode(0o700).create(&folder);
    if let Err(error) = made
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(error).with_context(|| folder.display().to_string());
    }
    let lock = File::open(&folder).with_context(|| folder.display().to_string())?;
    lock.try_lock()
        .context("another backup of this database is being made")?;
    let new = folder.join("c3po.db");
    // Usually there are no remains of an interrupted backup.
    for end in ["", "-wal", "-shm", "-journal"] {
        let _ = fs::remove_file(with_end(&new, end));
    }
    let copied = copy(source, data_dir, &new).and_then(|()| {
        io::copy(&mut File::open(&new)?, file)?;
        Ok(file.sync_all()?)
    });
    // The first failure is more important than a failure to remove a file.
    let _ = fs::remove_dir_all(&folder);
    copied
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

/// Returns the path of a file beside that one: its name, a dot, and `end`.
pub(super) fn beside(path: &Path, end: &str) -> PathBuf {
    with_end(path, &format!(".{end}"))
}

/// Returns the path with `end` after its name.
pub(super) fn with_end(path: &Path, end: &str) -> PathBuf {
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

    use c3po_shared::time::Timestamp;
    use c3po_shared::vocabulary::{LoginScope, Scope};

    use super::super::restore::restore;
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
    async fn one_backup_is_made_at_a_time_and_the_remains_of_an_interrupted_one_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let database = folder.path().join("c3po.db");
        let store = served(folder.path(), "key").await;
        let (copying, target) = (
            folder.path().join("c3po.db.copying"),
            folder.path().join("backup"),
        );
        fs::create_dir(&copying).expect("made");
        for remains in ["c3po.db", "c3po.db-journal"] {
            fs::write(copying.join(remains), "of an earlier one").expect("written");
        }
        let other = File::open(&copying).expect("a folder");
        other.lock().expect("locked");
        let refused = back_up(&database, folder.path(), &target).expect_err("another runs");
        let refused = format!("{refused:#}");
        assert!(refused.contains("another backup"), "{refused}");
        assert!(!target.exists());
        drop(other);
        back_up(&database, folder.path(), &target).expect("a backup");
        assert!(!copying.exists());
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
