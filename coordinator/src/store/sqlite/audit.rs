//! The audit in one SQLite table.

use c3po_shared::audit::Entry;

use super::rows::{from_json, integer, json};
use super::worker::Work;
use crate::store::Result;

/// Appends entries, and deletes the oldest rows beyond the bound.
pub(super) fn note(work: &Work<'_>, entries: &[Entry], bound: u64) -> Result<()> {
    if entries.is_empty() {
        // Without an insert, the last row id would be that of another table.
        return Ok(());
    }
    let mut insert = work
        .connection
        .prepare_cached("INSERT INTO audit (entry) VALUES (?)")?;
    for entry in entries {
        insert.execute([json(entry)?])?;
    }
    let last = u64::try_from(work.connection.last_insert_rowid()).unwrap_or_default();
    let outdated = i64::try_from(last.saturating_sub(bound)).unwrap_or_default();
    work.connection
        .prepare_cached("DELETE FROM audit WHERE position <= ?")?
        .execute([outdated])?;
    Ok(())
}

/// Returns the position of the last entry.
pub(super) fn end(work: &Work<'_>) -> Result<u64> {
    let mut query = work
        .connection
        .prepare_cached("SELECT coalesce(max(position), 0) FROM audit")?;
    Ok(query
        .query_row([], |row| row.get::<_, i64>(0))
        .map(i64::cast_unsigned)?)
}

/// Returns entries after this position.
pub(super) fn read(work: &Work<'_>, after: u64, limit: usize) -> Result<Vec<Entry>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut query = work.connection.prepare_cached(
        "SELECT position, entry FROM audit WHERE position > ? ORDER BY position LIMIT ?",
    )?;
    let mut rows = query.query((after, integer(limit)))?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let position = u64::try_from(row.get::<_, i64>("position")?).unwrap_or_default();
        entries.push(Entry {
            position,
            ..from_json(row, "entry")?
        });
    }
    Ok(entries)
}
