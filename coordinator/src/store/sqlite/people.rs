//! The limits of people's inbox in SQLite: open questions and notices.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::{NOTICES_MAX, QUESTIONS_MAX, QUESTIONS_PER_AGENT};
use c3po_shared::message::Message;

use super::rows::{count, integer, parsed};
use super::worker::Work;
use crate::store::{Result, SendOutcome};

/// With fewer messages in the inbox than this, no limit can be reached.
pub(super) const LEAST: usize = if QUESTIONS_PER_AGENT < NOTICES_MAX {
    QUESTIONS_PER_AGENT
} else {
    NOTICES_MAX
};

/// Returns the refusal of a question to people if too many are open.
pub(super) fn too_many(work: &Work<'_>, message: &Message) -> Result<Option<SendOutcome>> {
    let sql =
        "SELECT count(*), count(*) FILTER (WHERE from_agent = ?) FROM messages INDEXED BY inbox
               WHERE to_agent = ? AND open = 1 AND wants_answer = 1";
    let mut query = work.connection.prepare_cached(sql)?;
    let whose = (message.from_agent.as_str(), message.to_agent.as_str());
    let (all, own) = query.query_row(whose, |row| Ok((count(row.get(0)?), count(row.get(1)?))))?;
    let limits = [(own, QUESTIONS_PER_AGENT), (all, QUESTIONS_MAX)];
    Ok(limits
        .into_iter()
        .find(|(count, limit)| count >= limit)
        .map(|(count, limit)| SendOutcome::TooManyQuestions { count, limit }))
}

/// Returns the notices that a further one replaces.
pub(super) fn replaced(work: &Work<'_>) -> Result<Vec<MessageId>> {
    let sql = "SELECT id FROM messages INDEXED BY inbox WHERE to_agent = ? AND open = 1 AND wants_answer = 0
               ORDER BY position DESC LIMIT -1 OFFSET ?";
    let mut query = work.connection.prepare_cached(sql)?;
    let latest = (AgentId::human().to_string(), integer(NOTICES_MAX - 1));
    let ids = query.query_map(latest, |row| Ok(parsed(row, "id")))?;
    ids.map(|id| id?).collect()
}
