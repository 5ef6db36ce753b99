//! Room for new messages: space used in the file and free on its disk.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use rusqlite::Connection;
use rustix::fs::{StatVfs, statvfs};

use crate::store::{Fill, Result, StoreError};

/// The disk space reserved for writes that are not new messages: short replies, receipts, the write-ahead log.
const FLOOR: u64 = 64_000_000;
/// On a small disk, the reserved space is the size of the disk divided by this number.
const FLOOR_PART: u64 = 4;
/// The write-ahead log is moved into the file at this part of the reserved space: the file grows by as much meanwhile.
const LOG_PART: u64 = 4;

/// How long a statement waits for another connection's lock.
pub(super) const BUSY_LIMIT: Duration = Duration::from_secs(1);
/// How long the writer waits for readers before it cuts the write-ahead log.
const READER_LIMIT: Duration = Duration::from_millis(20);

/// The file and its size limit.
#[derive(Debug, Clone)]
pub(super) struct DiskRoom {
    pub(super) path: PathBuf,
    pub(super) max: Option<u64>,
}

impl DiskRoom {
    /// Returns how full the store is. Pages on the free list count as free, because later messages reuse them.
    pub(super) fn measure(&self, connection: &Connection) -> Result<Fill> {
        let size = number(connection, "PRAGMA page_size")?;
        let disk = disk_of(&self.path)?;
        Ok(Fill {
            bytes: pages_in_use(connection)? * size,
            max: self.max,
            free: free_bytes(&disk).saturating_add(reusable_pages(connection)? * size),
            floor: floor(&disk),
        })
    }

    /// Returns how many bytes a further file may have on the disk beside the reserved space.
    pub(super) fn for_another_file(&self) -> Result<u64> {
        let disk = disk_of(&self.path)?;
        Ok(free_bytes(&disk).saturating_sub(floor(&disk)))
    }
}

fn free_bytes(disk: &StatVfs) -> u64 {
    disk.f_bavail.saturating_mul(disk.f_frsize)
}

/// Returns the number of pages in use. The connection may be in a transaction.
pub(super) fn pages_in_use(connection: &Connection) -> Result<u64> {
    let count = number(connection, "PRAGMA page_count")?;
    Ok(count.saturating_sub(reusable_pages(connection)?))
}

fn reusable_pages(connection: &Connection) -> Result<u64> {
    number(connection, "PRAGMA freelist_count")
}

fn number(connection: &Connection, sql: &str) -> Result<u64> {
    let number: i64 = connection
        .prepare_cached(sql)?
        .query_row([], |row| row.get(0))?;
    Ok(number.cast_unsigned())
}

fn disk_of(path: &Path) -> Result<StatVfs> {
    statvfs(path).map_err(|error| {
        let error = io::Error::from(error);
        StoreError::Unavailable(format!("the disk of {}: {error}", path.display()))
    })
}

fn floor(disk: &StatVfs) -> u64 {
    FLOOR.min(disk.f_blocks.saturating_mul(disk.f_frsize) / FLOOR_PART)
}

/// Returns the number of pages of the write-ahead log that triggers a checkpoint: that many, or less on a small disk. A longer
/// log is cut to as many afterwards.
pub(super) fn log_pages(path: &Path, page_size: u64, most: u32) -> u32 {
    let part = disk_of(path).map_or(FLOOR, |disk| floor(&disk)) / LOG_PART;
    let pages = part / page_size.max(1);
    u32::try_from(pages).unwrap_or(most).clamp(1, most)
}

/// Moves the write-ahead log into the file and cuts it, if it is longer than its limit because readers kept it from beginning
/// anew. If a reader takes too long, the next group tries again.
pub(super) fn bound_log(connection: &Connection) {
    let is_long = || -> rusqlite::Result<bool> {
        let limit: i64 = connection
            .prepare_cached("PRAGMA journal_size_limit")?
            .query_row([], |row| row.get(0))?;
        let log = connection.path().map(|path| format!("{path}-wal"));
        let length = log.and_then(|log| fs::metadata(log).ok());
        let limit = limit.cast_unsigned();
        Ok(length.is_some_and(|log| log.len() > limit.saturating_add(limit / LOG_PART)))
    };
    if is_long().unwrap_or_default() {
        let wait = |limit| connection.busy_timeout(limit);
        let cut = || connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let outcome = wait(READER_LIMIT).and_then(|()| cut());
        if let Err(error) = outcome.and(wait(BUSY_LIMIT)) {
            tracing::debug!("the write-ahead log was not cut: {error}");
        }
    }
}
