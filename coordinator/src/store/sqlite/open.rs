//! Opens the database. All checks except that of the fleet are done before the schema is changed.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::upgrade;
use crate::config::Fleet;
use crate::files::private;
use crate::store::StoreError;

/// "c3po": distinguishes our databases from those of other programs.
const APPLICATION: u32 = 0x6333_706f;
/// The number of the latest schema. A database with a higher one was written by a newer program.
const VERSION: u32 = 16;
/// The migrations: each one upgrades a database from the version of its index to the next.
const LADDER: [&str; VERSION as usize] = [
    include_str!("schema.sql"),
    include_str!("contexts.sql"),
    include_str!("links.sql"),
    include_str!("keys.sql"),
    include_str!("audit.sql"),
    include_str!("threads.sql"),
    include_str!("fleet.sql"),
    include_str!("guard.sql"),
    include_str!("one_shot.sql"),
    include_str!("owners.sql"),
    include_str!("kept.sql"),
    include_str!("quotas.sql"),
    include_str!("makers.sql"),
    include_str!("alike.sql"),
    include_str!("former.sql"),
    include_str!("former_case.sql"),
];
/// The tables and indexes that every database of this version has.
const PARTS: [&str; 20] = [
    "agents", "messages", "inbox", "unshown", "expiring", "threads", "kept", "keys", "invites", "audit", "fleet",
    "guard", "asked", "owners", "quotas", "makers", "alike", "former", "formers", "reserve",
];
/// How long a statement waits for another connection's lock.
const BUSY_LIMIT: Duration = Duration::from_secs(1);
/// The largest file that is checked completely at startup. Above it the check would take too long.
const CHECKED_MAX: u64 = 8 << 20;
/// The number of write-ahead log pages that triggers a checkpoint. A checkpoint costs the disk as much as a commit.
const LOG_PAGES: u32 = 4_096;
/// The size of the prepared statement cache of each connection: larger than the number of statements.
const STATEMENTS: usize = 96;

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
    #[error("{path} is not a readable c3po database ({reason}); move it away, or use another file with C3PO_STORE")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        reason: String,
    },
    /// The file was written by a newer program.
    #[error("{path} was written by a newer c3po (format {found}, this one knows {VERSION}); update c3po-coordinator")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Another coordinator uses the file.
    #[error("{path} is in use by another coordinator; stop that one, or use another file with C3PO_STORE")]
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
        Ok(Self { path: path.into(), identity: identity(path)?, _lock: lock })
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
    let unreadable = |error: rusqlite::Error| OpenError::Unreadable { path: path.into(), reason: error.to_string() };
    let writer = connect(path).map_err(unreadable)?;
    if writer.is_readonly("main").map_err(unreadable)? {
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        return Err(OpenError::NotWritable { path: path.into(), source });
    }
    check_content(path, &writer)?;
    let copied = upgrade::keep_copy(path, &writer, VERSION);
    copied.map_err(|source| OpenError::NotCopied { path: path.into(), source })?;
    climb(&writer).map_err(unreadable)?;
    let found = fleet_of(&writer, fleet).map_err(unreadable)?;
    if found != fleet.to_string() {
        return Err(OpenError::OtherFleet { path: path.into(), found, wanted: fleet.clone() });
    }
    writer.pragma_update(None, "journal_mode", "wal").map_err(unreadable)?;
    writer.pragma_update(None, "synchronous", "full").map_err(unreadable)?;
    writer.pragma_update(None, "wal_autocheckpoint", LOG_PAGES).map_err(unreadable)?;
    let reader = connect(path).map_err(unreadable)?;
    reader.pragma_update(None, "query_only", true).map_err(unreadable)?;
    let place = OpenFile::of(path, lock).map_err(|source| OpenError::NotWritable { path: path.into(), source })?;
    Ok(Opened { writer, reader, place })
}

/// Checks the header of the file without SQLite, which might repair or create something.
pub(super) fn check_header(path: &Path) -> Result<(), OpenError> {
    let unreadable = |reason: String| OpenError::Unreadable { path: path.into(), reason };
    let mut header = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(100).read_to_end(&mut header).map_err(|error| unreadable(error.to_string()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(OpenError::NotWritable { path: path.into(), source }),
    };
    if header.is_empty() {
        return Ok(());
    }
    if header.len() < 100 || !header.starts_with(b"SQLite format 3\0") {
        return Err(unreadable("it is not an SQLite database".into()));
    }
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if number(68) != APPLICATION {
        return Err(unreadable("it belongs to another program".into()));
    }
    if number(60) > VERSION {
        return Err(OpenError::Newer { path: path.into(), found: number(60) });
    }
    Ok(())
}

/// Takes the lock file that one coordinator holds while it has the database open.
pub(super) fn lock(path: &Path) -> Result<File, OpenError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|source| OpenError::NotWritable { path: folder.into(), source })?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let file = private(&name).map_err(|source| OpenError::NotWritable { path: name.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse { path: path.into() }),
        Err(TryLockError::Error(source)) => Err(OpenError::NotWritable { path: name, source }),
    }
}

/// Creates the file if there is none. SQLite gives its other files the same mode. Existing files are made private.
fn make_file(path: &Path) -> Result<(), OpenError> {
    let beside = ["-wal", "-shm"].map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    });
    let there = beside.into_iter().filter(|path| fs::symlink_metadata(path).is_ok());
    for path in [path.to_owned()].into_iter().chain(there) {
        private(&path).map_err(|source| OpenError::NotWritable { path, source })?;
    }
    Ok(())
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_LIMIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Checks the content through SQLite: the write-ahead log may have a newer version than the header.
fn check_content(path: &Path, connection: &Connection) -> Result<(), OpenError> {
    let unreadable = |reason: String| OpenError::Unreadable { path: path.into(), reason };
    let found = version(connection).map_err(|error| unreadable(error.to_string()))?;
    if found > VERSION {
        return Err(OpenError::Newer { path: path.into(), found });
    }
    if found == VERSION {
        for part in PARTS {
            let sql = "SELECT count(*) FROM sqlite_schema WHERE name = ?";
            match connection.query_row(sql, [part], |row| row.get(0)) {
                Ok(1) => {}
                Ok(_) => return Err(unreadable(format!("it has no {part}"))),
                Err(error) => return Err(unreadable(error.to_string())),
            }
        }
    }
    if fs::metadata(path).is_ok_and(|file| file.len() <= CHECKED_MAX) {
        let check = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match check {
            Ok(verdict) if verdict == "ok" => {}
            Ok(verdict) => return Err(unreadable(verdict)),
            Err(error) => return Err(unreadable(error.to_string())),
        }
    }
    Ok(())
}

fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Migrates the schema in one transaction. An empty file is migrated before the write-ahead log is on, so its header is
/// correct. A later migration may exist only in the log, which [`check_content`] reads.
fn climb(connection: &Connection) -> rusqlite::Result<()> {
    let found = version(connection)?;
    if found == VERSION {
        return Ok(());
    }
    let steps = LADDER[found as usize..].concat();
    connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; {steps} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT"
    ))
}

/// Returns the fleet of the database. The first fleet that opens it becomes its fleet.
fn fleet_of(connection: &Connection, fleet: &Fleet) -> rusqlite::Result<String> {
    let noted = "INSERT INTO fleet (name) SELECT ? WHERE NOT EXISTS (SELECT 1 FROM fleet)";
    connection.execute(noted, [fleet.to_string()])?;
    connection.query_row("SELECT name FROM fleet", [], |row| row.get(0))
}

#[cfg(test)]
pub(super) mod tests {
    use std::ops::Range;

    use c3po_shared::time::Timestamp;

    use super::*;
    use crate::store::sqlite::SqliteStore;
    use crate::store::{Selection, Store};

    /// Rows as the released program of format 1 left them: an agent in its first session with three kinds of messages.
    const RELEASED: &str = r#"
        INSERT INTO agents (id, uid, capabilities, state, reach, generation, instance, suffixed, held_until,
            registered_at, last_seen, open_count)
            VALUES ('b', zeroblob(16), '[]', 'ready', '["get_messages"]', 1, zeroblob(16), 0, 0, 1, 1, 3);
        WITH mail (number, shown, steps) AS (VALUES
            (1, 0, ''),
            (2, 0, ',{"stage":"in_session","at":"2026-01-15T10:30:00.000Z","via":"get_messages","session":"1"}'),
            (3, 1, ',{"stage":"in_session","at":"2026-01-15T10:30:00.000Z","via":"get_messages","session":"1"}'))
        INSERT INTO messages (id, thread_id, from_agent, to_agent, call, is_reply, wants_answer, timestamp, expires_at,
            shown, envelope, history)
            SELECT 'a::b::0000000' || number, 'a::b::0000000' || number, 'a', 'b', randomblob(16), 0, 1, 1,
                4000000000000, shown,
                '{"id":"a::b::0000000' || number || '","thread_id":"a::b::0000000' || number || '","kind":"message",
                  "from_agent":"a","to_agent":"b","message":"hello","priority":"normal","requires_response":true,
                  "timestamp":"2026-01-15T10:30:00.000Z","expires_at":"2096-10-02T07:06:40.000Z"}',
                '[{"stage":"stored","at":"2026-01-15T10:30:00.000Z"}' || steps || ']' FROM mail;
    "#;

    /// Returns the formats that this program can upgrade.
    pub(in crate::store::sqlite) fn earlier_formats() -> Range<u32> {
        1..VERSION
    }

    /// Makes a database of an earlier format with the rows of the released program.
    pub(in crate::store::sqlite) fn make(path: &Path, format: u32) {
        let steps = LADDER[1..format as usize].concat();
        let marks = format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {format};");
        let old = Connection::open(path).expect("a database");
        let script = format!("{}; {RELEASED} {steps} {marks} PRAGMA journal_mode = wal", LADDER[0]);
        old.execute_batch(&script).expect("that format");
    }

    #[tokio::test]
    async fn a_database_of_the_released_format_climbs_with_everything_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let old = Connection::open(&path).expect("a database");
        let format =
            format!("PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1; PRAGMA journal_mode = wal");
        old.execute_batch(&format!("{}; {RELEASED} {format}", LADDER[0])).expect("format 1");
        drop(old);

        let store = SqliteStore::open(&path, &Fleet::default()).await.expect("it climbs");
        let b: c3po_shared::ids::AgentId = "b".parse().expect("an id");
        let agent = store.agent(&b).await.expect("readable").expect("it is there");
        assert_eq!((agent.generation, agent.context), (1, 0));
        let everything = Selection { limit: 10, ..Selection::default() };
        let mail = store.inbox(&b, everything).await.expect("readable");
        let repeated: Vec<_> = mail.iter().map(|placed| placed.message.repeated).collect();
        assert_eq!(repeated, [false, true, false], "only what an older session had and the present one has not");
        assert_eq!(store.unshown(&b, everything).await.expect("readable").len(), 2);
        store.close().await;
        SqliteStore::open(&path, &Fleet::default()).await.expect("it has climbed").close().await;
    }

    #[tokio::test]
    async fn agents_of_every_format_before_get_the_host_that_had_them_last() {
        for format in 1..=9 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("c3po.db");
            let old = Connection::open(&path).expect("a database");
            old.execute_batch(&LADDER[..format].concat()).expect("the schema");
            let mut add = old
                .prepare(
                    "INSERT INTO agents (id, uid, host, capabilities, state, reach, generation, instance, suffixed,
                        held_until, registered_at, last_seen)
                        VALUES (?, zeroblob(16), ?, '[]', 'ready', '[]', ?, zeroblob(16), ?, 0, 1, 1)",
                )
                .expect("an insert");
            for (id, host, generation, suffixed) in [
                ("ha", Some("laptop"), 3, false),
                ("ha-2", Some("nas"), 1, true),
                ("ha-3", Some("laptop"), 1, true),
                ("ha-10", Some("laptop"), 1, true),
                ("solo-2", Some("nas"), 1, false),
                ("human", Some("nas"), 0, false),
                ("cron", None, 0, false),
            ] {
                add.execute((id, host, generation, suffixed)).expect("a row");
            }
            drop(add);
            old.pragma_update(None, "application_id", APPLICATION).expect("ours");
            old.pragma_update(None, "user_version", format as u32).expect("its format");
            drop(old);

            let store = SqliteStore::open(&path, &Fleet::default()).await.expect("it climbs");
            let found = store.agents(None, 10).await.expect("readable");
            let owners: Vec<_> = found
                .iter()
                .map(|agent| {
                    let owner = agent.owner.as_ref();
                    (agent.id.as_str(), owner.map(|owner| (owner.base.as_str(), owner.host.as_str(), owner.slot)))
                })
                .collect();
            assert_eq!(
                owners,
                [
                    ("cron", None),
                    ("ha", Some(("ha", "laptop", 1))),
                    ("ha-10", Some(("ha", "laptop", 3))),
                    ("ha-2", Some(("ha", "nas", 1))),
                    ("ha-3", Some(("ha", "laptop", 2))),
                    ("human", None),
                    ("solo-2", Some(("solo-2", "nas", 1))),
                ],
                "format {format}"
            );
            store.close().await;
        }
    }

    #[tokio::test]
    async fn messages_of_every_format_before_are_kept_as_long_as_they_were_or_as_new_ones_are() {
        const DAY: i64 = 24 * 60 * 60 * 1_000;
        for format in 1..=10 {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("c3po.db");
            make(&path, format);
            let old = Connection::open(&path).expect("a database");
            let changes = "UPDATE messages SET open = 0 WHERE position = 1;
                UPDATE messages SET wants_answer = 0 WHERE position = 2;
                UPDATE messages SET wants_answer = 0, is_reply = 1 WHERE position = 3";
            old.execute_batch(changes).expect("one settled, a news and a reply");
            drop(old);
            SqliteStore::open(&path, &Fleet::default()).await.expect("it climbs").close().await;
            let new = Connection::open(&path).expect("a database");
            let mut query = new.prepare("SELECT kept_until FROM messages ORDER BY position").expect("a query");
            let kept: Vec<i64> =
                query.query_map([], |row| row.get(0)).expect("rows").map(|row| row.expect("a number")).collect();
            let end = 4_000_000_000_000;
            assert_eq!(kept, [1 + 7 * DAY, end + DAY, end + 7 * DAY], "format {format}");
        }
    }

    #[tokio::test]
    async fn a_host_keeps_a_name_for_30_days_and_no_longer() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let store = SqliteStore::open(&path, &Fleet::default()).await.expect("a store");
        let seen = Connection::open(&path).expect("the same database");
        let days_ago = |days: u64| Timestamp::now().millis() - days * 24 * 60 * 60 * 1_000;
        let add = "INSERT INTO agents (id, base, host, slot, uid, capabilities, state, reach, generation, instance,
                fleeting, held_until, registered_at, last_seen, open_count)
            VALUES (?1, ?1, 'nas', ?2, zeroblob(16), '[]', 'ready', '[]', 1, zeroblob(16), 0, ?3, 1, ?3, ?4)";
        for (id, slot, days, mail) in
            [("gone", 1, 31, 0), ("late", 1, 29, 0), ("mail", 1, 31, 1), ("human", 0, 31, 0), ("held", 1, 31, 0)]
        {
            let seen_at = i64::try_from(days_ago(days)).expect("a time");
            seen.execute(add, (id, slot, seen_at, mail)).expect("a row");
        }
        seen.execute("UPDATE agents SET held_until = 4000000000000 WHERE id = 'held'", []).expect("held");
        store.sweep().await.expect("it sweeps");
        let kept = store.agents(None, 10).await.expect("readable");
        let kept: Vec<_> = kept.iter().map(|agent| agent.id.as_str()).collect();
        assert_eq!(kept, ["held", "human", "late", "mail"]);
        store.close().await;
    }
}
