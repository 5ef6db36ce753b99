//! One message on its way: sent, advanced, acknowledged, read again.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::ARCHIVE_LIFE;
use c3po_shared::receipt::Stage;
use redis::{FromRedisValue, Value};

use super::records::{self, corrupt};
use super::{RedisStore, keys, scripts};
use crate::store::{Advance, Kept, Result, Send, SendOutcome, Settled, StoreError, Tenure, Wake};

/// Puts a message into its recipient's inbox.
pub(super) async fn send(store: &RedisStore, send: &Send) -> Result<SendOutcome> {
    let message = &send.message;
    let settled_until = message.timestamp + ARCHIVE_LIFE;
    let answer: Result<Vec<Value>> = store
        .connection
        .invoke(
            scripts::about(&scripts::SEND, &message.to_agent)
                .arg(message.id.as_str())
                .arg(send.call.to_string())
                .arg(send.bound)
                .arg(records::write(message)?)
                .arg(records::facts(message, send.call, settled_until))
                .arg(message.expires_at.millis())
                .arg(settled_until.max(message.expires_at + ARCHIVE_LIFE).millis())
                .arg(if message.thread_id == message.id { "" } else { message.thread_id.as_str() })
                .arg(message.timestamp.millis())
                .arg(store.wakes.origin())
                .arg(u8::from(send.spares_away)),
        )
        .await;
    if let Err(StoreError::Full(why)) = answer {
        // Redis did not even look whether this call has sent before.
        return sent_before(store, send).await?.ok_or(StoreError::Full(why));
    }
    let mut answer = answer?.into_iter();
    let (word, fact): (String, _) = (read(answer.next())?, answer.next());
    match word.as_str() {
        "stored" => {
            let (position, sole): (u64, bool) = (read(fact)?, read(answer.next())?);
            store.wakes.wake(Wake::arrived(position, Some(position - 1), sole, message));
            Ok(SendOutcome::Stored)
        }
        "repeated" => {
            // The first time its answer may have been lost, and with it the wake.
            store.wakes.wake(Wake::Inbox(message.to_agent.clone(), None));
            let before: String = read(fact)?;
            Ok(SendOutcome::Repeated(Box::new(records::envelope(&before)?)))
        }
        "full" => Ok(SendOutcome::Full(read(fact)?)),
        "nobody" => Ok(SendOutcome::NoSuchAgent),
        "away" => Ok(SendOutcome::Away),
        "taken" => Ok(SendOutcome::IdTaken),
        other => Err(corrupt(format_args!("'{other}' is not an outcome of a send"))),
    }
}

/// Returns what the same call has sent to the same recipient before, if it has.
async fn sent_before(store: &RedisStore, send: &Send) -> Result<Option<SendOutcome>> {
    let key = keys::message(&send.message.id);
    let mut kept = redis::cmd("HMGET");
    let kept = store.connection.run(kept.arg(key).arg("facts").arg("env")).await?;
    let (Some(facts), Some(envelope)): (Option<String>, Option<String>) = kept else { return Ok(None) };
    if records::call_of(&facts) != Some(send.call.to_string().as_str()) {
        return Ok(None);
    }
    Ok(Some(SendOutcome::Repeated(Box::new(records::envelope(&envelope)?))))
}

fn read<T: FromRedisValue>(value: Option<Value>) -> Result<T> {
    redis::from_redis_value(value.unwrap_or(Value::Nil)).map_err(corrupt)
}

/// Takes messages out of an inbox.
pub(super) async fn acknowledge(
    store: &RedisStore,
    agent: &AgentId,
    tenure: Option<&Tenure>,
    messages: &[MessageId],
) -> Result<Settled> {
    let mut script = scripts::about(&scripts::ACKNOWLEDGE, agent);
    fence(&mut script, tenure);
    for id in messages {
        script.arg(id.as_str());
    }
    let answer: Vec<String> = store.connection.invoke(&script).await?;
    let flags = unless_outdated(agent, &answer)?;
    let mut settled = Settled::default();
    for (id, flag) in messages.iter().zip(flags) {
        let list = if flag == "1" { &mut settled.acked } else { &mut settled.unknown };
        list.push(id.clone());
    }
    Ok(settled)
}

/// Records that messages got further. Returns which of them did.
pub(super) async fn advance(store: &RedisStore, advance: Advance<'_>) -> Result<Vec<MessageId>> {
    if !matches!(advance.stage, Stage::OnHost | Stage::InSession | Stage::Seen) {
        return Ok(Vec::new());
    }
    let mut script = scripts::about(&scripts::ADVANCE, advance.recipient);
    fence(&mut script, advance.tenure);
    script.arg(advance.context.map(|context| context.to_string()).unwrap_or_default());
    script.arg(advance.stage.as_str()).arg(advance.via.as_str()).arg(store.wakes.origin());
    for id in advance.messages {
        script.arg(id.as_str());
    }
    let answer: Vec<String> = store.connection.invoke(&script).await?;
    let mut parts = unless_outdated(advance.recipient, &answer)?.split(String::is_empty);
    for sender in parts.next().unwrap_or_default() {
        store.wakes.wake(Wake::Receipt(records::parse(sender)?));
    }
    parts.next().unwrap_or_default().iter().map(|id| records::parse(id)).collect()
}

/// Names the session that speaks, two empty texts for none.
pub(super) fn fence(script: &mut scripts::Call, tenure: Option<&Tenure>) {
    match tenure {
        Some(tenure) => script.arg(tenure.generation).arg(tenure.instance.to_string()),
        None => script.arg("").arg(""),
    };
}

/// Returns what stands behind the first word of an answer, which says whether the session was the present one.
fn unless_outdated<'a>(agent: &AgentId, answer: &'a [String]) -> Result<&'a [String]> {
    match answer.split_first() {
        Some((word, rest)) if word == "done" => Ok(rest),
        Some((word, _)) if word == "outdated" => Err(StoreError::TakenOver(agent.clone())),
        _ => Err(corrupt("an answer without its first word")),
    }
}

/// Reads a message with its history.
pub(super) async fn message(store: &RedisStore, id: &MessageId) -> Result<Option<Kept>> {
    let (envelope, history, reply): (Option<String>, Option<String>, Option<String>) =
        store.connection.invoke(scripts::about(&scripts::MESSAGE, &id.to()).arg(id.as_str())).await?;
    let (Some(envelope), Some(history)) = (envelope, history) else { return Ok(None) };
    Ok(Some(Kept {
        message: records::envelope(&envelope)?,
        history: records::history(&history)?,
        reply: reply.map(|reply| records::parse(&reply)).transpose()?,
    }))
}
