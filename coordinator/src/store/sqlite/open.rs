//! Opens the database. All checks except that of the fleet are done before the schema is changed.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::ladder::{APPLICATION, VERSION, climb, version};
use super::{parts, room, upgrade};
use crate::config::Fleet;
use crate::files::{self, private};
use crate::store::StoreError;

/// The largest file that is checked completely at startup. Above it the check would take too long.
const CHECKED_MAX: u64 = 8 << 20;
/// The number of write-ahead log pages that triggers a checkpoint. A checkpoint costs the disk as much as a commit.
const LOG_PAGES: u32 = 4_096;
/// The size of the prepared statement cache of each connection: larger than the number of statements.
const STATEMENTS: usize = 120;

/// The advice about a database that others could change.
const CHANGED: &str = "They can have forged messages, answers, logins and keys, and may still have it open: stop the \
    coordinator, and restore a backup with `c3po-coordinator restore FILE`. Only if you trust these users, put a copy \
    in its place (`install -m 600`, then `mv`)";

/// Why a database was not opened. No stored message was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or its folder cannot be created or written.
    #[error("{path} cannot be written: {source}")]
    NotWritable {
        /// The file, or its parent folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file belongs to another program, or is damaged.
    #[error(
        "{path} is not a readable c3po database ({reason}); move it away, or use another file with C3PO_STORE"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        reason: String,
    },
    /// The file contains something that this program does not make, such as a trigger.
    #[error(
        "{path} is not as c3po makes it ({difference}), so others may have changed it: restore a backup with \
         `c3po-coordinator restore FILE`, or undo the change with `sqlite3` if it is your own"
    )]
    Altered {
        /// The file.
        path: PathBuf,
        /// The first difference.
        difference: String,
    },
    /// The file was written by a newer program.
    #[error(
        "{path} was written by a newer c3po (format {found}, this one knows {VERSION}); update c3po-coordinator"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Another coordinator uses the file.
    #[error(
        "{path} is in use by another coordinator; stop that one, or use another file with C3PO_STORE"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to another fleet.
    #[error(
        "{path} has the fleet {found}, and this coordinator serves {wanted}: set C3PO_FLEET={found}, or use another \
         file with C3PO_STORE"
    )]
    OtherFleet {
        /// The file.
        path: PathBuf,
        /// The fleet that it contains.
        found: String,
        /// The fleet of this coordinator.
        wanted: Fleet,
    },
    /// The file has an older format, and no backup for a downgrade could be made.
    #[error(
        "{path} has the format of an earlier c3po, and copying it before the upgrade failed ({source}); check \
         the permissions and the free space of its folder"
    )]
    NotCopied {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The threads of the store could not be started.
    #[error("starting the store's threads: {0}")]
    Threads(#[from] io::Error),
}

/// The connections of an open store, and the lock that keeps other processes out.
pub(super) struct Opened {
    pub(super) writer: Connection,
    pub(super) reader: Connection,
    pub(super) place: OpenFile,
}

/// The identity of the file at its path, and its lock, which is held until this is dropped.
#[derive(Debug)]
pub(super) struct OpenFile {
    path: PathBuf,
    identity: (u64, u64),
    _lock: File,
}

impl OpenFile {
    fn of(path: &Path, lock: File) -> io::Result<Self> {
        Ok(Self {
            path: path.into(),
            identity: identity(path)?,
            _lock: lock,
        })
    }

    /// Refuses writes if the file is no longer at its path. Writes to a deleted file would be lost when this process ends.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        match identity(&self.path) {
            Ok(found) if found == self.identity => Ok(()),
            _ => Err(StoreError::Unavailable(format!(
                "{} was deleted or replaced; put it back, or restart the coordinator",
                self.path.display()
            ))),
        }
    }
}

/// Returns the device and inode of a file, which do not depend on its name.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Opens the database, creating it if there is none.
pub(super) fn open(path: &Path, fleet: &Fleet) -> Result<Opened, OpenError> {
    // A database has one lock, whichever path leads to it.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    check_header(path)?;
    let lock = lock(path)?;
    make_file(path)?;
    let unreadable = |error: rusqlite::Error| OpenError::Unreadable {
        path: path.into(),
        reason: error.to_string(),
    };
    let writer = connect(path).map_err(unreadable)?;
    if writer.is_readonly("main").map_err(unreadable)? {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        return Err(OpenError::NotWritable {
            path: path.into(),
            source,
        });
    }
    check_content(path, &writer)?;
    let copied = upgrade::keep_copy(path, &writer, VERSION);
    copied.map_err(|source| OpenError::NotCopied {
        path: path.into(),
        source,
    })?;
    climb(&writer).map_err(unreadable)?;
    let found = fleet_of(&writer, fleet).map_err(unreadable)?;
    if found != fleet.to_string() {
        return Err(OpenError::OtherFleet {
            path: path.into(),
            found,
            wanted: fleet.clone(),
        });
    }
    writer
        .pragma_update(None, "journal_mode", "wal")
        .map_err(unreadable)?;
    writer
        .pragma_update(None, "synchronous", "full")
        .map_err(unreadable)?;
    let page: i64 = writer
        .pragma_query_value(None, "page_size", |row| row.get(0))
        .map_err(unreadable)?;
    let pages = room::log_pages(path, page.cast_unsigned(), LOG_PAGES);
    writer
        .pragma_update(None, "wal_autocheckpoint", pages)
        .map_err(unreadable)?;
    // Without a limit, the log of one long transaction would take its room from then on.
    writer
        .pragma_update(None, "journal_size_limit", i64::from(pages) * page)
        .map_err(unreadable)?;
    let reader = connect(path).map_err(unreadable)?;
    reader
        .pragma_update(None, "query_only", true)
        .map_err(unreadable)?;
    let place = OpenFile::of(path, lock).map_err(|source| OpenError::NotWritable {
        path: path.into(),
        source,
    })?;
    Ok(Opened {
        writer,
        reader,
        place,
    })
}

/// Checks the header of the file without SQLite, which might repair or create something.
pub(super) fn check_header(path: &Path) -> Result<(), OpenError> {
    let unreadable = |reason: String| OpenError::Unreadable {
        path: path.into(),
        reason,
    };
    let mut header = Vec::new();
    match File::open(path) {
        Ok(file) => file
            .take(100)
            .read_to_end(&mut header)
            .map_err(|error| unreadable(error.to_string()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => {
            return Err(OpenError::NotWritable {
                path: path.into(),
                source,
            });
        }
    };
    if header.is_empty() {
        return Ok(());
    }
    if header.len() < 100 || !header.starts_with(b"SQLite format 3\0") {
        return Err(unreadable("it is not an SQLite database".into()));
    }
    let number = |at: usize| {
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    if number(68) != APPLICATION {
        return Err(unreadable("it belongs to another program".into()));
    }
    if number(60) > VERSION {
        return Err(OpenError::Newer {
            path: path.into(),
            found: number(60),
        });
    }
    Ok(())
}

/// Takes the lock file that one coordinator holds while it has the database open.
pub(super) fn lock(path: &Path) -> Result<File, OpenError> {
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
    {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| OpenError::NotWritable {
            path: folder.into(),
            source,
        })?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let (file, _) = private(&name).map_err(|source| OpenError::NotWritable {
        path: name.clone(),
        source,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.into() }),
        Err(TryLockError::Error(source)) => Err(OpenError::NotWritable { path: name, source }),
    }
}

/// Creates the file if there is none. SQLite gives its other files the same mode. Existing files are made private if this user
/// may, with a warning if others could change one.
fn make_file(path: &Path) -> Result<(), OpenError> {
    let beside = ["-wal", "-shm"].map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    });
    let there = beside
        .into_iter()
        .filter(|path| fs::symlink_metadata(path).is_ok());
    for path in [path.to_owned()].into_iter().chain(there) {
        let closed = private(&path).and_then(|(file, before)| Ok((file.metadata()?, before)));
        let (now, before) = closed.map_err(|source| OpenError::NotWritable {
            path: path.clone(),
            source,
        })?;
        let outcome = files::outcome(&path, &now);
        let advice = format!("{outcome}. {CHANGED}");
        if let Some(warning) = files::warning(&path, &before, files::WRITE, &advice) {
            tracing::warn!("{warning}");
        }
    }
    Ok(())
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(room::BUSY_LIMIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Checks that a database of that format contains only what this program makes, before a statement could run a trigger.
pub(super) fn check_parts(
    path: &Path,
    connection: &Connection,
    format: u32,
) -> Result<(), OpenError> {
    match parts::difference(connection, format, "") {
        Ok(None) => Ok(()),
        Ok(Some(difference)) => Err(OpenError::Altered {
            path: path.into(),
            difference,
        }),
        Err(error) => Err(OpenError::Unreadable {
            path: path.into(),
            reason: error.to_string(),
        }),
    }
}

/// Checks the content through SQLite: the write-ahead log may have a newer version than the header.
fn check_content(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let unreadable = |reason: String| OpenError::Unreadable {
        path: path.into(),
        reason,
    };
    let found = version(connection).map_err(|error| unreadable(error.to_string()))?;
    if found > VERSION {
        return Err(OpenError::Newer {
            path: path.into(),
            found,
        });
    }
    check_parts(path, connection, found)?;
    if fs::metadata(path).is_ok_and(|file| file.len() <= CHECKED_MAX) {
        let check =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match check {
            Ok(verdict) if verdict == "ok" => {}
            Ok(verdict) => return Err(unreadable(verdict)),
            Err(error) => return Err(unreadable(error.to_string())),
        }
    }
    Ok(())
}

/// Returns the fleet of the database. The first fleet that opens it becomes its fleet.
fn fleet_of(connection: &Connection, fleet: &Fleet) -> rusqlite::Result<String> {
    let noted = "INSERT INTO fleet (name) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM fleet)";
    connection.execute(noted, [fleet.to_string()])?;
    connection.query_row("SELECT name FROM fleet", [], |row| row.get(0))
}
