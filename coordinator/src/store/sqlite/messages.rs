//! Sends and answers in SQLite, and the ways by which messages leave an inbox.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use c3po_shared::audit::{Entry, Event};
use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Stage, Step, Via, furthest};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::{Kind, State};
use rusqlite::{CachedStatement, OptionalExtension, Params, Row, named_params};
use uuid::Uuid;

use super::agents::{self, check_speaker};
use super::group::Work;
use super::rows::{count, from_json, integer, json, moment, parsed, stamp, time_until};
use super::{audit, duties, people, quota};
use crate::store::fill::is_short;
use crate::store::quota::cost;
use crate::store::{
    AnswerOutcome, Duty, REPEAT_MARGIN, REQUEST_CHECKED_EVERY, Result, Send, SendOutcome, Wake,
    counted_host, is_client_request, stored_at,
};

/// How many messages one step settles: others wait for it, and a full disk must have room for it.
const SETTLED_MAX: usize = 16;

/// An envelope with more bytes is stored beside the row of its message, which each receipt rewrites: about a page.
const ROW_MAX: usize = 4 << 10;
/// The envelope of a message, as a column of `messages`.
pub(super) const ENVELOPE: &str =
    "iif(envelope = '', (SELECT long.envelope FROM long_messages AS long
    WHERE long.position = messages.position), envelope) AS envelope";

/// The state of a message, without its envelope.
pub(super) struct MessageRow {
    pub(super) id: MessageId,
    pub(super) position: i64,
    pub(super) from: AgentId,
    pub(super) to: AgentId,
    pub(super) wants_answer: bool,
    pub(super) expires_at: Timestamp,
    pub(super) open: bool,
    pub(super) reply: Option<MessageId>,
    pub(super) history: Vec<Step>,
}

impl MessageRow {
    /// Returns the state of this message. If it expired while open, `expired` is its last step.
    pub(super) fn find(work: &Work<'_>, id: &MessageId) -> Result<Option<Self>> {
        let mut query = work.connection.prepare_cached(
            "SELECT position, from_agent, to_agent, wants_answer, expires_at, open, reply, history
             FROM messages WHERE id = ?",
        )?;
        query
            .query_row([id.as_str()], |row| Ok(Self::read(row, id, work.now)))
            .optional()?
            .transpose()
    }

    /// Finds the message if this agent received it: it is in the agent's inbox, or was stored since the name is its host's.
    pub(super) fn received(
        work: &Work<'_>,
        agent: &AgentId,
        id: &MessageId,
    ) -> Result<Option<Self>> {
        let Some(message) = Self::find(work, id)?.filter(|message| message.to == *agent) else {
            return Ok(None);
        };
        if message.open {
            return Ok(Some(message));
        }
        let stored_at = stored_at(&message.history);
        let recipient = agents::find(work, agent)?;
        Ok(recipient
            .is_some_and(|agent| agent.existed(stored_at))
            .then_some(message))
    }

    fn read(row: &Row<'_>, id: &MessageId, now: Timestamp) -> Result<Self> {
        let mut standing = Self {
            id: id.clone(),
            position: row.get("position")?,
            from: parsed(row, "from_agent")?,
            to: parsed(row, "to_agent")?,
            wants_answer: row.get("wants_answer")?,
            expires_at: moment(row, "expires_at")?,
            open: row.get("open")?,
            reply: row
                .get::<_, Option<String>>("reply")?
                .is_some()
                .then(|| parsed(row, "reply"))
                .transpose()?,
            history: from_json(row, "history")?,
        };
        if standing.open && standing.expires_at <= now {
            standing.history.push(expired(standing.expires_at));
        }
        Ok(standing)
    }

    /// Writes the history, and takes the message out of the inbox.
    pub(super) fn settle(&mut self, work: &Work<'_>) -> Result<()> {
        if self.open {
            // It is kept from now on, or from its expiry if that is longer ago.
            let sql = "UPDATE messages SET open = 0, kept_until = kept_until - max(expires_at - ?, 0) WHERE position = ?";
            work.connection
                .prepare_cached(sql)?
                .execute((stamp(work.now), self.position))?;
            let sql = "UPDATE agents SET open_count = open_count - 1 WHERE id = ?";
            work.connection
                .prepare_cached(sql)?
                .execute([self.to.as_str()])?;
            self.open = false;
            if self.to.is_human() {
                duties::hasten(work, &Duty::push(&self.id))?;
            }
            if self.is_expired() {
                audit::record(work, Event::Receipt, &self.to, |entry| Entry {
                    stage: Some(Stage::Expired),
                    ..entry.to(&self.from).about_message(&self.id)
                })?;
            }
        }
        self.write_history(work)
    }

    /// Returns whether its life ended while it was in the inbox.
    pub(super) fn is_expired(&self) -> bool {
        self.history.iter().any(|step| step.stage == Stage::Expired)
    }

    pub(super) fn write_history(&self, work: &Work<'_>) -> Result<()> {
        let sql = "UPDATE messages SET history = ? WHERE position = ?";
        work.connection
            .prepare_cached(sql)?
            .execute((json(&self.history)?, self.position))?;
        Ok(())
    }
}

/// Returns the step of a message that expired at this time.
pub(super) fn expired(at: Timestamp) -> Step {
    Step {
        stage: Stage::Expired,
        at,
        via: None,
        session: None,
        by: None,
        reply_id: None,
    }
}

/// Puts a message into its recipient's inbox if the store accepts new messages.
pub(super) fn send(work: &mut Work<'_>, send: &Send) -> Result<SendOutcome> {
    check_speaker(work, send.speaker.as_ref())?;
    match work.full {
        Some(full) if sent_before(work, send)?.is_none() => Err(full.error.clone()),
        _ => put(work, send),
    }
}

/// Puts a message into its recipient's inbox without checking whether the store is full.
fn put(work: &mut Work<'_>, send: &Send) -> Result<SendOutcome> {
    let message = &send.message;
    if let Some(earlier) = sent_before(work, send)? {
        return Ok(earlier);
    }
    if send.spares_away && is_away(work, &message.to_agent)? {
        return Ok(SendOutcome::Away);
    }
    if work
        .connection
        .prepare_cached("SELECT 1 FROM messages WHERE id = ?")?
        .exists([message.id.as_str()])?
    {
        return Ok(SendOutcome::IdTaken);
    }
    let bound = if message.to_agent == AgentId::human() {
        if let Some(refused) = make_room_for_people(work, message)? {
            return Ok(refused);
        }
        usize::MAX
    } else {
        send.bound
    };
    let mut holder = make_room(work, &message.to_agent, bound)?;
    if holder.is_none() {
        // The counter still includes expired messages until they are settled; one of them is enough.
        settle_expired(work, &message.to_agent)?;
        holder = make_room(work, &message.to_agent, bound)?;
    }
    let Some(session) = holder else {
        return Ok(open_count(work, &message.to_agent)?
            .map_or(SendOutcome::NoSuchAgent, SendOutcome::Full));
    };
    let envelope = json(message)?;
    quota::charge(work, &send.quota, cost(envelope.len()))?;
    let position = insert(work, send, &envelope)?;
    audit::record_whole(work, || send.entry())?;
    // Only this process writes to the store, so it has seen every message.
    work.wakes
        .push(Wake::arrived(position, None, true, session, message));
    Ok(SendOutcome::Stored)
}

/// Makes room for a message to people: a question is refused beyond the limits, and a notice replaces the oldest one.
fn make_room_for_people(work: &mut Work<'_>, message: &Message) -> Result<Option<SendOutcome>> {
    if open_count(work, &message.to_agent)?.is_none_or(|open| open < people::LEAST) {
        return Ok(None);
    }
    settle_expired(work, &message.to_agent)?;
    if message.requires_response {
        return people::too_many(work, message);
    }
    let replaced = people::replaced(work, message)?;
    settle_all(work, &replaced)?;
    Ok(None)
}

/// Returns the outcome of a call that sent a message to the same recipient before, if it did.
fn sent_before(work: &Work<'_>, send: &Send) -> Result<Option<SendOutcome>> {
    let mut find = work.connection.prepare_cached(
        "SELECT position, max(octet_length(envelope), ifnull((SELECT octet_length(long.envelope)
            FROM long_messages AS long WHERE long.position = messages.position), 0))
        FROM messages WHERE call = ? AND to_agent = ?",
    )?;
    let call = (send.call.0.as_bytes(), send.message.to_agent.as_str());
    let found: Option<(i64, i64)> = find
        .query_row(call, |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((position, length)) = found else {
        return Ok(None);
    };
    if count(length) > json(&send.message)?.len() + REPEAT_MARGIN {
        return Ok(Some(SendOutcome::CallTaken));
    }
    let sql = format!("SELECT {ENVELOPE} FROM messages WHERE position = ?");
    let earlier = work
        .connection
        .prepare_cached(&sql)?
        .query_row([position], |row| Ok(from_json(row, "envelope")))??;
    Ok(Some(SendOutcome::Repeated(Box::new(earlier))))
}

fn is_away(work: &Work<'_>, agent: &AgentId) -> Result<bool> {
    let sql = "SELECT 1 FROM agents WHERE id = ? AND state = ? AND held_until > ?";
    Ok(work.connection.prepare_cached(sql)?.exists((
        agent.as_str(),
        State::Away.as_str(),
        stamp(work.now),
    ))?)
}

/// Adds one to the message count if the bound allows it. Returns the number and the process of the recipient's latest session
/// then.
fn make_room(work: &Work<'_>, recipient: &AgentId, bound: usize) -> Result<Option<(u64, Uuid)>> {
    let sql = "UPDATE agents SET open_count = open_count + 1 WHERE id = ? AND open_count < ?
        RETURNING generation, instance";
    let session = |row: &Row<'_>| {
        let generation = row.get::<_, i64>(0)?.cast_unsigned();
        Ok((generation, Uuid::from_bytes(row.get(1)?)))
    };
    let mut update = work.connection.prepare_cached(sql)?;
    Ok(update
        .query_row((recipient.as_str(), integer(bound)), session)
        .optional()?)
}

fn open_count(work: &Work<'_>, agent: &AgentId) -> Result<Option<usize>> {
    let mut query = work
        .connection
        .prepare_cached("SELECT open_count FROM agents WHERE id = ?")?;
    Ok(query
        .query_row([agent.as_str()], |row| row.get(0))
        .optional()?
        .map(count))
}

/// Inserts the message and returns its position.
fn insert(work: &Work<'_>, send: &Send, envelope: &str) -> Result<u64> {
    let (message, is_long) = (&send.message, envelope.len() > ROW_MAX);
    let stored = Step {
        stage: Stage::Stored,
        at: work.now,
        via: None,
        session: None,
        by: None,
        reply_id: None,
    };
    let mut insert = work.connection.prepare_cached(
        "INSERT INTO messages (id, thread_id, from_agent, to_agent, call, is_reply, wants_answer, timestamp,
            expires_at, kept_until, one_shot, counts_for, envelope, history) VALUES (:id, :thread, :from, :to, :call, :is_reply,
            :wants_answer, :timestamp, :expires_at, :kept_until, :one_shot, :counts_for, :envelope, :history)",
    )?;
    insert.execute(named_params! {
        ":id": message.id.as_str(), ":thread": message.thread_id.as_str(), ":from": message.from_agent.as_str(),
        ":to": message.to_agent.as_str(), ":call": send.call.0.as_bytes(), ":is_reply": message.kind == Kind::Reply,
        ":wants_answer": message.requires_response, ":timestamp": stamp(message.timestamp),
        ":expires_at": stamp(message.expires_at),
        ":kept_until": stamp(message.expires_at + send.kept), ":one_shot": send.one_shot && message.requires_response,
        ":counts_for": message.to_agent.is_human().then(|| counted_host(message)),
        ":envelope": if is_long { "" } else { envelope }, ":history": json(&[stored])?,
    })?;
    let position = work.connection.last_insert_rowid();
    if is_long {
        let sql = "INSERT INTO long_messages (position, envelope) VALUES (?, ?)";
        work.connection
            .prepare_cached(sql)?
            .execute((position, envelope))?;
    }
    duties::plan(work, &Duty::expire(&message.to_agent), message.expires_at)?;
    if message.to_agent.is_human() {
        duties::plan(work, &Duty::push(&message.id), work.now)?;
        if is_client_request(message) {
            let first = work.now + REQUEST_CHECKED_EVERY;
            duties::plan(work, &Duty::end_request(&message.id), first)?;
        }
    }
    Ok(position.cast_unsigned())
}

/// Puts a reply into the asker's inbox and settles the question.
pub(super) fn answer(work: &mut Work<'_>, answer: &Send) -> Result<AnswerOutcome> {
    check_speaker(work, answer.speaker.as_ref())?;
    let reply = &answer.message;
    if let Some(earlier) = sent_before(work, answer)? {
        return Ok(AnswerOutcome::Sent(earlier));
    }
    let Some(question) = &reply.reply_to else {
        return Ok(AnswerOutcome::NotFound);
    };
    let Some(mut question) = MessageRow::received(work, &reply.from_agent, question)? else {
        return Ok(AnswerOutcome::NotFound);
    };
    if let Some(first) = question.reply {
        return Ok(AnswerOutcome::AlreadyAnswered(first));
    }
    if furthest(&question.history) == Stage::Withdrawn {
        return Ok(AnswerOutcome::Withdrawn);
    }
    if is_asker_gone(work, &question)? {
        return Ok(AnswerOutcome::Sent(SendOutcome::NoSuchAgent));
    }
    if let Some(full) = work.full
        && !answer.is_of_people()
        && (full.is_spent || !is_short(json(reply)?.len()))
    {
        return Err(full.error.clone());
    }
    let outcome = put(work, answer)?;
    if outcome == SendOutcome::Stored {
        question.history.push(Step {
            stage: Stage::Answered,
            at: work.now,
            via: Some(Via::Reply),
            session: None,
            by: None,
            reply_id: Some(reply.id.clone()),
        });
        question.settle(work)?;
        let sql = "UPDATE messages SET reply = ? WHERE position = ?";
        work.connection
            .prepare_cached(sql)?
            .execute((reply.id.as_str(), question.position))?;
        work.wakes.push(Wake::Receipt(question.id));
    }
    Ok(AnswerOutcome::Sent(outcome))
}

/// Returns whether the agent that has the sender's name is another one: it was made later, and is of another host.
fn is_asker_gone(work: &Work<'_>, question: &MessageRow) -> Result<bool> {
    let Some(agent) = agents::find(work, &question.from)? else {
        return Ok(true);
    };
    let stored_at = stored_at(&question.history);
    if agent.existed(stored_at) {
        return Ok(false);
    }
    let sql = format!("SELECT {ENVELOPE} FROM messages WHERE position = ?");
    let asked: Message = work
        .connection
        .prepare_cached(&sql)?
        .query_row([question.position], |row| Ok(from_json(row, "envelope")))??;
    Ok(!agent.sent(&asked, stored_at))
}

/// Takes expired messages out of the agent's inbox permanently, as many as one step may. Returns whether these were all.
pub(super) fn settle_expired(work: &mut Work<'_>, agent: &AgentId) -> Result<bool> {
    let ids = read_ids(
        work.connection.prepare_cached(
            "SELECT id FROM messages INDEXED BY inbox WHERE to_agent = ? AND open = 1 AND expires_at <= ? LIMIT ?",
        )?,
        (agent.as_str(), stamp(work.now), integer(SETTLED_MAX)),
    )?;
    settle_all(work, &ids)?;
    Ok(ids.len() < SETTLED_MAX)
}

/// Takes messages to an agent, its questions to people, and all questions of a one-shot session out of all inboxes, as many as
/// one step may. Returns whether these were all.
pub(super) fn settle_everything(work: &mut Work<'_>, agent: &AgentId) -> Result<bool> {
    let ids = read_ids(
        work.connection.prepare_cached(
            "SELECT id FROM messages INDEXED BY inbox WHERE to_agent = :agent AND open = 1
             UNION SELECT id FROM messages INDEXED BY asked
                 WHERE from_agent = :agent AND one_shot = 1 AND open = 1
             UNION SELECT id FROM messages INDEXED BY inbox
                 WHERE to_agent = 'human' AND open = 1 AND wants_answer = 1 AND from_agent = :agent LIMIT :most",
        )?,
        named_params! { ":agent": agent.as_str(), ":most": integer(SETTLED_MAX) },
    )?;
    settle_all(work, &ids)?;
    Ok(ids.len() < SETTLED_MAX)
}

/// Takes expired messages out of the agent's inbox, as its duty. The last step returns the time until the next one expires.
pub(super) fn expire(
    work: &mut Work<'_>,
    agent: &AgentId,
) -> Result<ControlFlow<Option<Duration>>> {
    if !settle_expired(work, agent)? {
        return Ok(Continue(()));
    }
    let sql = "SELECT min(expires_at) AS next FROM messages INDEXED BY inbox WHERE to_agent = ? AND open = 1";
    let mut query = work.connection.prepare_cached(sql)?;
    let next: Option<i64> = query.query_row([agent.as_str()], |row| row.get("next"))?;
    Ok(Break(next.map(|next| time_until(work.now, next))))
}

fn read_ids(mut query: CachedStatement<'_>, params: impl Params) -> Result<Vec<MessageId>> {
    let ids = query.query_map(params, |row| Ok(parsed(row, "id")))?;
    ids.map(|id| id?).collect()
}

/// Records the expiry of these messages, at the present time if they had not yet expired, and wakes their senders.
fn settle_all(work: &mut Work<'_>, ids: &[MessageId]) -> Result<()> {
    for id in ids {
        if let Some(mut message) = MessageRow::find(work, id)? {
            if message.expires_at > work.now {
                message.history.push(expired(work.now));
            }
            message.settle(work)?;
            work.wakes.push(Wake::Receipt(message.id));
        }
    }
    Ok(())
}
