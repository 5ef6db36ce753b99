//! Parsing of stored values: agents, envelopes and histories.

use std::fmt::Display;
use std::str::FromStr;

use c3po_shared::audit::Entry;
use c3po_shared::ids::{AgentId, CallId};
use c3po_shared::message::Message;
use c3po_shared::receipt::{Step, Via};
use c3po_shared::time::Timestamp;
use c3po_shared::vocabulary::State;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use redis::{FromRedisValue, Value};
use uuid::Uuid;

use crate::store::{Agent, Namesake, Owner, Result, StoreError};

/// The fields of an agent's record, in the order in which they are read.
pub(super) const AGENT_FIELDS: [&str; 17] = [
    "uid",
    "host",
    "session_id",
    "description",
    "capabilities",
    "role",
    "state",
    "current_task",
    "reach",
    "session",
    "held_until",
    "registered_at",
    "last_seen",
    "prompted_at",
    "base",
    "slot",
    "made_by",
];

/// The placeholder for the process of an agent that never had a session.
const NOBODY: &str = "-";

/// The fields of one agent; `None` for each missing field.
pub(super) type Fields = Vec<Option<String>>;

/// Returns the agent as a namesake, or `None` if there is none.
pub(super) fn namesake(id: AgentId, fields: Fields) -> Result<Option<Namesake>> {
    let fields: [Option<String>; 5] = fields.try_into().map_err(|_| {
        corrupt(format_args!(
            "the record of {id} has another number of fields"
        ))
    })?;
    let [base, slot, host, session, held_until] = fields;
    let Some(session) = session else {
        return Ok(None);
    };
    let (_, instance, _) = parts(&session)?;
    let host = text(host);
    let owner = owner(base, slot, host.as_deref())?;
    Ok(Some(Namesake {
        id,
        owner,
        host,
        instance,
        held_until: time(&held_until.unwrap_or_default())?,
    }))
}

fn text(field: Option<String>) -> Option<String> {
    field.filter(|text| !text.is_empty())
}

fn owner(base: Option<String>, slot: Option<String>, host: Option<&str>) -> Result<Option<Owner>> {
    let (Some(base), Some(slot), Some(host)) = (base, slot, host) else {
        return Ok(None);
    };
    Ok(Some(Owner {
        base: parse(&base)?,
        host: host.to_owned(),
        slot: parse(&slot)?,
    }))
}

/// Returns the generation, the process and the context of a session.
pub(super) fn parts(session: &str) -> Result<(u64, Uuid, u64)> {
    let [generation, instance, context] = session.split(' ').collect::<Vec<_>>()[..] else {
        return Err(corrupt(format_args!(
            "'{session}' is not the session of an agent"
        )));
    };
    let instance = if instance == NOBODY {
        Uuid::nil()
    } else {
        parse(instance)?
    };
    Ok((parse(generation)?, instance, parse(context)?))
}

/// Returns the agent, or `None` if there is none.
pub(super) fn agent(id: &AgentId, fields: Fields) -> Result<Option<Agent>> {
    let fields: [Option<String>; AGENT_FIELDS.len()] = fields.try_into().map_err(|_| {
        corrupt(format_args!(
            "the record of {id} has a wrong number of fields"
        ))
    })?;
    let [
        uid,
        host,
        session_id,
        description,
        capabilities,
        role,
        state,
        current_task,
        reach,
        session,
        held_until,
        registered_at,
        last_seen,
        prompted_at,
        base,
        slot,
        made_by,
    ] = fields;
    let Some(uid) = uid else { return Ok(None) };
    let (generation, instance, context) = parts(&session.unwrap_or_default())?;
    let host = text(host);
    let owner = owner(base, slot, host.as_deref())?;
    let list = |field: Option<String>| field.unwrap_or_else(|| "[]".into());
    Ok(Some(Agent {
        id: id.clone(),
        uid: parse(&uid)?,
        owner,
        host,
        session_id: text(session_id),
        description: text(description),
        capabilities: json(&list(capabilities))?,
        role: text(role),
        state: parse::<State>(&state.unwrap_or_default())?,
        current_task: text(current_task),
        reach: json::<Vec<Via>>(&list(reach))?,
        generation,
        context,
        instance,
        held_until: time(&held_until.unwrap_or_default())?,
        registered_at: time(&registered_at.unwrap_or_default())?,
        last_seen: time(&last_seen.unwrap_or_default())?,
        prompted_at: prompted_at.map(|at| time(&at)).transpose()?,
        made_by: made_by.unwrap_or_default(),
    }))
}

/// Parses an envelope.
pub(super) fn envelope(text: &str) -> Result<Message> {
    json(text)
}

/// Serializes a value as JSON.
pub(super) fn write<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(corrupt)
}

/// Returns the facts of a message that functions need, so that they need not parse its envelope. Functions add the storage
/// time.
pub(super) fn facts(message: &Message, call: CallId, kept_until: Timestamp) -> String {
    let Message {
        id,
        from_agent,
        kind,
        thread_id,
        ..
    } = message;
    let wants = u8::from(message.requires_response);
    let (expires, at) = (message.expires_at.millis(), message.timestamp.millis());
    format!(
        "{id} {from_agent} {wants} {} {expires} {at} {} {thread_id} {call}",
        kept_until.millis(),
        kind.as_str()
    )
}

/// Returns the call that sent a message, from the facts of the message.
pub(super) fn call_of(facts: &str) -> Option<&str> {
    facts.rsplit(' ').nth(1)
}

/// Parses a history: one line per step, with stage, time, evidence, session and reply.
pub(super) fn history(text: &str) -> Result<Vec<Step>> {
    text.lines().map(step).collect()
}

/// The prefix of the name of a person, in the place of a session.
const PERSON: char = '@';

/// Returns a person as a step of a history names it.
pub(super) fn person(name: &str) -> String {
    format!("{PERSON}{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

fn step(line: &str) -> Result<Step> {
    let parts: Vec<&str> = line.split(' ').collect();
    let [stage, at, via, session, reply] = parts[..] else {
        return Err(corrupt(format_args!("'{line}' is not a step of a history")));
    };
    let given = |text: &str| (text != "-").then(|| text.to_owned());
    let (session, by) = match session.strip_prefix(PERSON) {
        Some(name) => (
            None,
            Some(percent_decode_str(name).decode_utf8_lossy().into_owned()),
        ),
        None => (given(session), None),
    };
    Ok(Step {
        stage: parse(stage)?,
        at: time(at)?,
        via: given(via).map(|text| parse(&text)).transpose()?,
        session,
        by,
        reply_id: given(reply).map(|text| parse(&text)).transpose()?,
    })
}

/// Parses a time in milliseconds.
fn time(text: &str) -> Result<Timestamp> {
    Ok(Timestamp::from_millis(parse(text)?))
}

/// Parses a value from its text.
pub(super) fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T> {
    text.parse().map_err(|error| {
        corrupt(format_args!(
            "'{}': {error}",
            text.chars().take(80).collect::<String>()
        ))
    })
}

fn json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(corrupt)
}

/// Reads a value of a function's result.
pub(super) fn read<T: FromRedisValue>(value: &Value) -> Result<T> {
    redis::from_redis_value_ref(value).map_err(corrupt)
}

/// The length of the time of an entry of the log, which is its beginning.
const TIME: usize = "{\"at\":\"2026-01-15T10:30:00.000Z".len();

/// Returns an entry of the log as functions expect it: all that follows its time, which is the one of the step.
pub(super) fn entry(entry: &Entry) -> Result<String> {
    let mut text = write(entry)?;
    if !text
        .get(TIME..)
        .is_some_and(|rest| rest.starts_with("\",\"event\":"))
    {
        return Err(corrupt("an entry of another form"));
    }
    Ok(text.split_off(TIME))
}

/// Returns the error for data that cannot be parsed.
pub(super) fn corrupt(what: impl Display) -> StoreError {
    StoreError::Corrupt(what.to_string())
}
