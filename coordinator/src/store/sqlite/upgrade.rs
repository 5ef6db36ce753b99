//! Copies a database before its format changes, so that the earlier program can be used again.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use c3po_shared::text::shell_word;
use rusqlite::Connection;

/// Copies the database to a file beside it if its format is older than the program's, and logs how to go back. An earlier
/// copy of the same format is replaced.
///
/// Errors: for example, there is no room for a copy. The database is then unchanged.
pub(super) fn keep_copy(
    path: &Path,
    connection: &Connection,
    format: u32,
) -> io::Result<Option<PathBuf>> {
    let found = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(io::Error::other)?;
    if found == 0 || found >= format {
        return Ok(None);
    }
    let copy = beside(path, &format!(".format-{found}"));
    let made = beside(&copy, ".new");
    let copied = write_copy(connection, &made).and_then(|()| fs::rename(&made, &copy));
    if copied.is_err() {
        // The first failure is more important than a failure to remove the file.
        let _ = fs::remove_file(&made);
    }
    copied?;
    tracing::warn!("{}", way_back(path, &copy, found, format));
    Ok(Some(copy))
}

fn write_copy(connection: &Connection, target: &Path) -> io::Result<()> {
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target)?;
    let name = target
        .to_str()
        .ok_or_else(|| io::Error::other("its path is not UTF-8"))?;
    connection
        .execute("VACUUM INTO ?", [name])
        .map_err(io::Error::other)?;
    file.sync_all()
}

/// Returns the logged instructions. The log files must be removed, because SQLite would apply them to the copy.
fn way_back(path: &Path, copy: &Path, found: u32, format: u32) -> String {
    let word = |path: &Path, end: &str| shell_word(&beside(path, end).display().to_string());
    let (log, shared, from, to) = (
        word(path, "-wal"),
        word(path, "-shm"),
        word(copy, ""),
        word(path, ""),
    );
    let (path, copy) = (path.display(), copy.display());
    format!(
        "{path} has format {found} and becomes format {format}, which earlier versions cannot read; the copy is \
         {copy}. To go back to the earlier version, without the data stored since: stop the coordinator, then run `rm \
         -f {log} {shared} && mv {from} {to}`"
    )
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use crate::config::Fleet;
    use crate::store::sqlite::SqliteStore;
    use crate::store::sqlite::ladder::tests::{earlier_formats, make};
    use crate::store::{Quota, Store};

    /// Returns the format of a database, the result of its integrity check, and its number of agents.
    fn state(path: &Path) -> (u32, String, u32) {
        let database = Connection::open(path).expect("a database");
        let number = |sql: &str| {
            database
                .query_row(sql, [], |row| row.get(0))
                .expect("a number")
        };
        let verdict = database
            .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
            .expect("a verdict");
        (
            number("PRAGMA user_version"),
            verdict,
            number("SELECT count(*) FROM agents"),
        )
    }

    #[tokio::test]
    async fn a_database_of_every_earlier_format_is_copied_before_it_climbs_and_can_be_put_back() {
        for format in earlier_formats() {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("ann's c3po.db");
            make(&path, format);
            let open = async || {
                SqliteStore::open(&path, &Fleet::default())
                    .await
                    .expect("it opens")
            };
            let store = open().await;
            store
                .introduce(&"later".parse().expect("an id"), None, &Quota::default())
                .await
                .expect("made");
            store.close().await;
            let copy = beside(&path, &format!(".format-{format}"));
            assert_eq!(
                state(&copy),
                (format, "ok".to_owned(), 1),
                "as it was, with its one agent"
            );
            assert_eq!(
                fs::metadata(&copy).expect("there").permissions().mode() & 0o777,
                0o600
            );

            let said = way_back(&path, &copy, format, format + 1);
            let pasted = said.split('`').nth(1).expect("a command");
            let put_back = Command::new("sh")
                .args(["-c", pasted])
                .status()
                .expect("a shell");
            assert!(put_back.success(), "{pasted}");
            assert_eq!(
                state(&path),
                (format, "ok".to_owned(), 1),
                "the earlier program has what it had"
            );
            let store = open().await;
            assert_eq!(
                store.agents(None, 10).await.expect("readable").len(),
                1,
                "format {format} climbs again"
            );
            store.close().await;
            assert!(copy.exists(), "with a copy again");
        }
    }

    #[tokio::test]
    async fn a_new_database_and_one_of_this_format_are_not_copied() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        for _ in 0..2 {
            SqliteStore::open(&path, &Fleet::default())
                .await
                .expect("it opens")
                .close()
                .await;
        }
        let names = fs::read_dir(folder.path())
            .expect("a folder")
            .flatten()
            .map(|entry| entry.file_name());
        let copies: Vec<_> = names
            .filter(|name| name.to_string_lossy().contains("format"))
            .collect();
        assert!(copies.is_empty(), "{copies:?}");
    }

    #[tokio::test]
    async fn a_database_that_cannot_be_copied_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("c3po.db");
        let format = earlier_formats().next_back().expect("there is one");
        make(&path, format);
        // A rename does not replace a folder that is not empty.
        let in_the_way = beside(&path, &format!(".format-{format}"));
        fs::create_dir_all(in_the_way.join("mine")).expect("a folder");
        let refused = SqliteStore::open(&path, &Fleet::default())
            .await
            .expect_err("no copy")
            .to_string();
        assert!(
            refused.contains("copying it before the upgrade failed"),
            "{refused}"
        );
        assert_eq!(state(&path).0, format);
    }

    #[test]
    fn the_way_back_names_both_files() {
        let said = way_back(
            Path::new("/d/c3po.db"),
            Path::new("/d/c3po.db.format-9"),
            9,
            10,
        );
        let command = "`rm -f /d/c3po.db-wal /d/c3po.db-shm && mv /d/c3po.db.format-9 /d/c3po.db`";
        assert!(
            said.contains("format 9 and becomes format 10") && said.ends_with(command),
            "{said}"
        );
    }
}
