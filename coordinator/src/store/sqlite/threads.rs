//! Reads threads through their index; only the envelopes of a page are read.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::receipt::{Step, furthest};
use rusqlite::{Row, Rows, Statement, named_params};

use super::group::Work;
use super::messages::{ENVELOPE, MessageRow};
use super::rows::{from_json, moment, parsed, stamp};
use crate::store::{Excerpt, InThread, Mark, Result, SentStages, Stretch, stored_at};

/// How many messages one step scans, so that one reader does not delay the others.
const STEP: usize = 1_000;

/// The messages after a mark of a thread, in order. The first message of a thread has the thread's id and is not in the
/// index.
const BEHIND: &str = "
    SELECT position, id, from_agent, to_agent, timestamp FROM messages
        WHERE id = :thread AND thread_id = :thread AND (timestamp, id) > (:at, :after)
    UNION ALL
    SELECT position, id, from_agent, to_agent, timestamp FROM messages INDEXED BY threads
        WHERE thread_id = :thread AND thread_id <> id AND (timestamp, id) > (:at, :after)
    ORDER BY timestamp, id";

/// Returns an excerpt of a stored thread.
pub(super) fn read(work: &Work<'_>, thread: &MessageId, stretch: Stretch<'_>) -> Result<Excerpt> {
    let mut query = work.connection.prepare_cached(BEHIND)?;
    let mut rows = behind(&mut query, thread, stretch.after)?;
    let (mut messages, mut last, mut looked, mut bytes) =
        (Vec::new(), stretch.after.cloned(), 0, 0);
    while let Some(row) = rows.next()? {
        if looked == STEP || messages.len() == stretch.limit || bytes > stretch.bytes {
            return Ok(Excerpt {
                messages,
                next: last,
            });
        }
        looked += 1;
        last = Some(mark(row)?);
        let (from, to): (String, String) = (row.get("from_agent")?, row.get("to_agent")?);
        let reader = stretch.reader.as_str();
        if from == reader || to == reader {
            let (found, length) = in_thread(work, row.get("position")?)?;
            bytes += length;
            messages.push(found);
        }
    }
    Ok(Excerpt {
        messages,
        next: None,
    })
}

/// Returns how far the messages of that sender came.
pub(super) fn sent(
    work: &Work<'_>,
    thread: &MessageId,
    sender: &AgentId,
    after: Option<&Mark>,
    limit: usize,
) -> Result<SentStages> {
    let mut query = work.connection.prepare_cached(BEHIND)?;
    let mut rows = behind(&mut query, thread, after)?;
    let (mut stages, mut last, mut looked) = (Vec::new(), after.cloned(), 0);
    while let Some(row) = rows.next()? {
        if looked == STEP || stages.len() == limit {
            return Ok(SentStages { stages, next: last });
        }
        looked += 1;
        let mark = mark(row)?;
        if row.get::<_, String>("from_agent")? == sender.as_str()
            && let Some(found) = MessageRow::find(work, &mark.id)?
        {
            stages.push(furthest(&found.history));
        }
        last = Some(mark);
    }
    Ok(SentStages { stages, next: None })
}

fn behind<'q>(
    query: &'q mut Statement<'_>,
    thread: &MessageId,
    after: Option<&Mark>,
) -> Result<Rows<'q>> {
    Ok(query.query(named_params! {
        ":thread": thread.as_str(), ":at": after.map_or(-1, |mark| stamp(mark.at)),
        ":after": after.map_or("", |mark| mark.id.as_str()),
    })?)
}

fn mark(row: &Row<'_>) -> Result<Mark> {
    Ok(Mark {
        at: moment(row, "timestamp")?,
        id: parsed(row, "id")?,
    })
}

/// Returns the message at that position, and the size of its stored envelope in bytes.
fn in_thread(work: &Work<'_>, position: i64) -> Result<(InThread, usize)> {
    let mut query = work.connection.prepare_cached(&format!(
        "SELECT {ENVELOPE}, history FROM messages WHERE position = ?"
    ))?;
    query.query_row([position], |row| {
        let length = row.get_ref("envelope")?.as_str().map_or(0, str::len);
        Ok(read_in_thread(row).map(|found| (found, length)))
    })?
}

fn read_in_thread(row: &Row<'_>) -> Result<InThread> {
    let history: Vec<Step> = from_json(row, "history")?;
    Ok(InThread {
        message: from_json(row, "envelope")?,
        stored_at: stored_at(&history),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::open::open;

    #[test]
    fn a_thread_is_read_from_a_mark_by_its_index_without_sorting() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = open(
            &folder.path().join("c3po.db"),
            &crate::config::Fleet::default(),
        )
        .expect("a database");
        let mut plan = opened
            .reader
            .prepare(&format!("EXPLAIN QUERY PLAN {BEHIND}"))
            .expect("a plan");
        let params = named_params! { ":thread": "", ":at": -1, ":after": "" };
        let steps = plan
            .query_map(params, |row| row.get::<_, String>("detail"))
            .expect("its steps");
        let steps = steps
            .collect::<rusqlite::Result<Vec<_>>>()
            .expect("its steps")
            .join("; ");
        assert!(
            steps.contains("threads (thread_id=? AND (timestamp,id)>(?,?))"),
            "{steps}"
        );
        assert_eq!(steps.matches("TEMP B-TREE").count(), 0, "{steps}");
    }
}
