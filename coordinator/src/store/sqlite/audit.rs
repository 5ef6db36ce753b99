//! The log in one SQLite table.

use std::ops::ControlFlow::{self, Break, Continue};

use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::AgentId;
use c3po_shared::limits::AUDIT_ENTRIES_LEAST;
use c3po_shared::vocabulary::State;

use super::group::Work;
use super::rows::{from_json, integer, json};
use crate::store::{Ending, Result, Tenure};

/// How many older entries an entry replaces at most. The longest entry is not longer than so many short ones.
const REPLACED: usize = 4;
/// How many entries one step deletes.
const TRIM_STEP: usize = 500;

/// Appends an entry if a log is kept. It shrinks before the store is full: refused requests, which it records, must not keep
/// messages out.
pub(super) fn append(work: &Work<'_>, entry: &Entry) -> Result<()> {
    let Some(has_grown) = work.log else {
        return Ok(());
    };
    let sql = "INSERT INTO audit (entry) VALUES (?)";
    work.connection
        .prepare_cached(sql)?
        .execute([json(entry)?])?;
    if work.is_tight {
        let sql = "DELETE FROM audit WHERE position IN
            (SELECT position FROM audit WHERE position <= ? ORDER BY position LIMIT ?)";
        let older = work.connection.last_insert_rowid() - AUDIT_ENTRIES_LEAST.cast_signed();
        work.connection
            .prepare_cached(sql)?
            .execute((older, integer(REPLACED)))?;
    }
    has_grown.set(true);
    Ok(())
}

/// Appends the entry of a change that happened at this moment, if a log is kept.
pub(super) fn append_if(work: &Work<'_>, happened: bool, entry: Option<&Entry>) -> Result<()> {
    match entry {
        Some(entry) if happened => {
            let at = work.now;
            append(
                work,
                &Entry {
                    at,
                    ..entry.clone()
                },
            )
        }
        _ => Ok(()),
    }
}

/// Appends an entry about a change by that agent, made at this moment, if a log is kept.
pub(super) fn record(
    work: &Work<'_>,
    event: Event,
    agent: &AgentId,
    complete: impl FnOnce(Entry) -> Entry,
) -> Result<()> {
    record_whole(work, || complete(Entry::new(event).by(agent)))
}

/// Appends an entry about a change that is made at this moment, if a log is kept.
pub(super) fn record_whole(work: &Work<'_>, make: impl FnOnce() -> Entry) -> Result<()> {
    if work.log.is_none() {
        return Ok(());
    }
    let at = work.now;
    append(work, &Entry { at, ..make() })
}

/// Records the end of a session.
pub(super) fn record_end(work: &Work<'_>, tenure: &Tenure, ending: &Ending) -> Result<()> {
    let key = tenure.key.as_deref();
    match ending.new_name() {
        Some(name) => record(work, Event::Renamed, &tenure.agent, |entry| {
            entry.under(key).to(name)
        }),
        None => record(work, Event::SessionEnded, &tenure.agent, |entry| {
            entry.under(key).verb(ending.word())
        }),
    }
}

/// Records another state of a session.
pub(super) fn record_state(
    work: &Work<'_>,
    id: &AgentId,
    tenure: Option<&Tenure>,
    state: State,
) -> Result<()> {
    let sql = "SELECT 1 FROM agents WHERE id = ? AND state <> ?";
    let changed = (id.as_str(), state.as_str());
    if !work.connection.prepare_cached(sql)?.exists(changed)? {
        return Ok(());
    }
    let key = tenure.and_then(|tenure| tenure.key.as_deref());
    record(work, Event::StatusChanged, id, |entry| {
        entry.under(key).verb(state.as_str())
    })
}

/// Returns how many entries are kept: few by a full store, until the next sweep.
pub(super) fn bound(work: &Work<'_>, most: u64) -> u64 {
    match work.full {
        Some(_) => most.min(AUDIT_ENTRIES_LEAST),
        None => most,
    }
}

/// Deletes some of the oldest entries beyond the bound: sends wait for one step only, and a full disk must have room for it.
pub(super) fn trim(work: &Work<'_>, bound: u64) -> Result<ControlFlow<()>> {
    let outdated = i64::try_from(end(work)?.saturating_sub(bound)).unwrap_or_default();
    let sql = "DELETE FROM audit WHERE position IN
        (SELECT position FROM audit WHERE position <= ? ORDER BY position LIMIT ?)";
    let mut delete = work.connection.prepare_cached(sql)?;
    let deleted = delete.execute((outdated, integer(TRIM_STEP)))?;
    Ok(match deleted < TRIM_STEP {
        true => Break(()),
        false => Continue(()),
    })
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
