//! People's inbox in SQLite: the open questions, and the limits of questions and notices.

use std::sync::Arc;

use c3po_shared::ids::MessageId;
use c3po_shared::limits::{
    NOTICES_MAX, NOTICES_PER_HOST, QUESTIONS_MAX, QUESTIONS_PER_AGENT, QUESTIONS_PER_HOST,
};
use c3po_shared::message::Message;

use super::group::Work;
use super::rows::{count, integer, moment, parsed, stamp};
use crate::store::{OpenQuestion, Result, SendOutcome, counted_host};

/// With fewer messages in the inbox than this, no limit can be reached.
pub(super) const LEAST: usize = if QUESTIONS_PER_AGENT < NOTICES_PER_HOST {
    QUESTIONS_PER_AGENT
} else {
    NOTICES_PER_HOST
};

/// Returns the open questions, oldest first.
pub(super) fn open_questions(work: &Work<'_>) -> Result<Arc<[OpenQuestion]>> {
    let mut query = work.connection.prepare_cached(
        "SELECT id, timestamp FROM messages INDEXED BY inbox
         WHERE to_agent = 'human' AND open = 1 AND wants_answer = 1 AND expires_at > ? ORDER BY position",
    )?;
    let found = query.query_map([stamp(work.now)], |row| {
        let question = |row| {
            Ok(OpenQuestion {
                id: parsed(row, "id")?,
                asked_at: moment(row, "timestamp")?,
            })
        };
        Ok(question(row))
    })?;
    found.map(|question| question?).collect()
}

/// Returns the refusal of a question to people if too many are open.
pub(super) fn too_many(work: &Work<'_>, message: &Message) -> Result<Option<SendOutcome>> {
    let mut query = work.connection.prepare_cached(
        "SELECT count(*), count(*) FILTER (WHERE from_agent = ?1), count(*) FILTER (WHERE counts_for = ?2)
         FROM messages INDEXED BY inbox WHERE to_agent = 'human' AND open = 1 AND wants_answer = 1 AND expires_at > ?3",
    )?;
    let whose = (
        message.from_agent.as_str(),
        counted_host(message),
        stamp(work.now),
    );
    let (all, own, of_host) = query.query_row(whose, |row| {
        Ok((count(row.get(0)?), count(row.get(1)?), count(row.get(2)?)))
    })?;
    let limits = [
        (own, QUESTIONS_PER_AGENT),
        (of_host, QUESTIONS_PER_HOST),
        (all, QUESTIONS_MAX),
    ];
    Ok(limits
        .into_iter()
        .find(|(count, limit)| count >= limit)
        .map(|(count, limit)| SendOutcome::TooManyQuestions { count, limit }))
}

/// Returns the notices that a further one replaces: the oldest of the same host, and beyond the limit of all the oldest that is
/// not of the coordinator.
pub(super) fn replaced(work: &Work<'_>, message: &Message) -> Result<Vec<MessageId>> {
    let mut query = work.connection.prepare_cached(
        "SELECT id FROM messages INDEXED BY inbox
         WHERE to_agent = 'human' AND open = 1 AND wants_answer = 0 AND (?1 IS NULL OR counts_for = ?1)
             AND (?1 IS NOT NULL OR from_agent <> 'system')
         ORDER BY position DESC LIMIT -1 OFFSET ?2",
    )?;
    let mut oldest = |host: Option<&str>, latest: usize| {
        let ids = query.query_map((host, integer(latest - 1)), |row| Ok(parsed(row, "id")))?;
        ids.map(|id| id?).collect::<Result<Vec<MessageId>>>()
    };
    let own = oldest(Some(counted_host(message)), NOTICES_PER_HOST)?;
    if own.is_empty() {
        oldest(None, NOTICES_MAX)
    } else {
        Ok(own)
    }
}
