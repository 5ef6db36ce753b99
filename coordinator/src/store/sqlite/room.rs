//! Room for new messages: space used in the file and free on its disk.

use std::io;
use std::path::PathBuf;

use rusqlite::Connection;
use rustix::fs::statvfs;

use crate::store::{Fill, Result, StoreError};

/// The disk space reserved for writes that are not new messages: answers, receipts, the write-ahead log.
const FLOOR: u64 = 64_000_000;
/// On a small disk, the reserved space is the size of the disk divided by this number.
const FLOOR_PART: u64 = 20;

/// The file and its size limit.
#[derive(Debug, Clone)]
pub(super) struct DiskRoom {
    pub(super) path: PathBuf,
    pub(super) max: Option<u64>,
}

impl DiskRoom {
    /// Returns how full the store is. Pages on the free list count as free, because later messages reuse them.
    pub(super) fn measure(&self, connection: &Connection) -> Result<Fill> {
        let number = |sql: &str| -> Result<u64> {
            let number: i64 = connection
                .prepare_cached(sql)?
                .query_row([], |row| row.get(0))?;
            Ok(number.cast_unsigned())
        };
        let (size, pages) = (number("PRAGMA page_size")?, number("PRAGMA page_count")?);
        let reusable = number("PRAGMA freelist_count")?;
        let disk = statvfs(&self.path).map_err(|error| {
            StoreError::Unavailable(format!(
                "the disk of {}: {}",
                self.path.display(),
                io::Error::from(error)
            ))
        })?;
        Ok(Fill {
            bytes: pages.saturating_sub(reusable) * size,
            max: self.max,
            free: disk
                .f_bavail
                .saturating_mul(disk.f_frsize)
                .saturating_add(reusable * size),
            floor: FLOOR.min(disk.f_blocks.saturating_mul(disk.f_frsize) / FLOOR_PART),
        })
    }
}
