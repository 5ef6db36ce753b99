//! Reads inboxes and single messages. Expired messages are never part of an inbox, swept or not.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::KindFilter;
use rusqlite::{OptionalExtension, named_params};

use super::group::Work;
use super::messages::{ENVELOPE, MessageRow};
use super::rows::{count, from_json, integer, stamp};
use crate::store::{Backlog, Placed, Result, Selection, StoredMessage};

/// The part of the inbox to read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    Everything,
    Unshown,
}

impl Part {
    /// Returns the query. The index of the inbox has the messages that were not shown before the others, so a read does not
    /// scan rows of the other part, and merges both parts without sorting.
    fn sql(self) -> String {
        let shown = |shown: u8| {
            format!(
                "SELECT position, repeated, {ENVELOPE} FROM messages INDEXED BY inbox
                 WHERE to_agent = :agent AND open = 1 AND shown = {shown} AND expires_at > :now AND position > :after
                     AND (:is_reply IS NULL OR is_reply = :is_reply) AND (:thread IS NULL OR thread_id = :thread)"
            )
        };
        let messages = match self {
            Self::Everything => format!("{} UNION ALL {}", shown(0), shown(1)),
            Self::Unshown => shown(0),
        };
        format!("{messages} ORDER BY position LIMIT :limit")
    }
}

/// Returns the selected messages of the inbox.
pub(super) fn read(
    work: &Work<'_>,
    part: Part,
    agent: &AgentId,
    selection: Selection<'_>,
) -> Result<Vec<Placed>> {
    let is_reply = match selection.kind {
        KindFilter::Any => None,
        KindFilter::Message => Some(false),
        KindFilter::Reply => Some(true),
    };
    let mut query = work.connection.prepare_cached(&part.sql())?;
    let mut rows = query.query(named_params! {
        ":agent": agent.as_str(), ":now": stamp(work.now), ":is_reply": is_reply,
        ":after": i64::try_from(selection.after).unwrap_or(i64::MAX),
        ":thread": selection.thread.map(MessageId::as_str), ":limit": integer(selection.limit),
    })?;
    let (mut placed, mut read) = (Vec::new(), 0);
    while read <= selection.bytes
        && let Some(row) = rows.next()?
    {
        let position = row.get::<_, i64>("position")?.cast_unsigned();
        let bytes = row.get_ref("envelope")?.as_str().map_or(0, str::len);
        read += bytes;
        let message = Message {
            repeated: row.get("repeated")?,
            ..from_json(row, "envelope")?
        };
        placed.push(Placed {
            position,
            message,
            bytes,
        });
    }
    Ok(placed)
}

/// Returns the number of messages in the inbox and the age of the oldest.
pub(super) fn pending(work: &Work<'_>, agent: &AgentId) -> Result<Backlog> {
    let mut query = work.connection.prepare_cached(
        "SELECT number, (SELECT timestamp FROM messages WHERE position = first) FROM
            (SELECT count(*) AS number, min(position) AS first FROM messages INDEXED BY inbox
                WHERE to_agent = ? AND open = 1 AND expires_at > ?)",
    )?;
    let (number, oldest) = query.query_row((agent.as_str(), stamp(work.now)), |row| {
        Ok((row.get(0)?, row.get::<_, Option<i64>>(1)?))
    })?;
    let oldest = oldest.map(|at| Timestamp::from_millis(u64::try_from(at).unwrap_or_default()));
    Ok(Backlog {
        count: count(number),
        oldest,
    })
}

/// Returns the message with its history.
pub(super) fn message(work: &Work<'_>, id: &MessageId) -> Result<Option<StoredMessage>> {
    let Some(standing) = MessageRow::find(work, id)? else {
        return Ok(None);
    };
    let mut query = work.connection.prepare_cached(&format!(
        "SELECT {ENVELOPE} FROM messages WHERE position = ?"
    ))?;
    let envelope = query
        .query_row([standing.position], |row| Ok(from_json(row, "envelope")))
        .optional()?
        .transpose()?;
    Ok(envelope.map(|message| StoredMessage {
        message,
        history: standing.history,
        reply: standing.reply,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::open::open;

    #[test]
    fn an_inbox_and_its_unshown_part_are_read_by_one_index_without_sorting() {
        let folder = tempfile::tempdir().expect("a folder");
        let opened = open(
            &folder.path().join("c3po.db"),
            &crate::config::Fleet::default(),
        )
        .expect("a database");
        for part in [Part::Everything, Part::Unshown] {
            let mut plan = opened
                .reader
                .prepare(&format!("EXPLAIN QUERY PLAN {}", part.sql()))
                .expect("a plan");
            // The parameters stay NULL.
            let steps: Vec<_> = plan
                .raw_query()
                .mapped(|row| row.get::<_, String>("detail"))
                .collect::<rusqlite::Result<_>>()
                .expect("its steps");
            let steps = steps.join("; ");
            assert!(
                steps.contains("inbox (to_agent=? AND shown=? AND position>?)"),
                "{steps}"
            );
            assert_eq!(steps.matches("TEMP B-TREE").count(), 0, "{steps}");
        }
    }
}
