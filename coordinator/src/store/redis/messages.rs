//! Messages in Redis: sends, answers, progress, acknowledgements and reads.

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::limits::{
    NOTICES_MAX, NOTICES_PER_HOST, QUESTIONS_MAX, QUESTIONS_PER_AGENT, QUESTIONS_PER_HOST,
};
use c3po_shared::receipt::{Progress, Stage, Step, Via};
use c3po_shared::time::Timestamp;
use redis::{FromRedisValue, Value};

use super::library::Call;
use super::records::{self, corrupt, person, read};
use super::speaker::{describe_speaker, refused_speaker, unless_refused};
use super::{RedisStore, room};
use crate::store::fill::is_short;
use crate::store::quota::{self, Exceeded};
use crate::store::{
    Actor, AnswerOutcome, Conclusion, PersonReached, REPEAT_MARGIN, REQUEST_CHECKED_EVERY, Result,
    Send, SendOutcome, Settled, Speaker, StoreError, StoredMessage, Wake, counted_host,
    is_client_request,
};

/// How many messages one call changes, with up to 15 commands each: no call runs more than 500.
const STEP: usize = 32;

/// Puts a message into its recipient's inbox.
pub(super) async fn send(store: &RedisStore, send: &Send) -> Result<SendOutcome> {
    let message = &send.message;
    let mut call = store.names.batched_call("send", store.wakes.origin());
    call.arg(message.to_agent.as_str());
    let envelope = records::write(message)?;
    describe(&mut call, send, &envelope)?;
    // A message to people costs more than others.
    let stored = match message.to_agent.is_human() {
        true => Box::pin(store.connection.invoke(&call)).await,
        false => store.connection.invoke_batched(call, 1).await,
    };
    match stored {
        // A full Redis refuses the call before it checks whether this call was sent before.
        Err(StoreError::Full(why)) => Box::pin(sent_before(store, send, &envelope))
            .await?
            .ok_or(StoreError::Full(why)),
        answer => outcome(store, send, read(&answer?)?),
    }
}

/// Publishes the text of a broadcast for monitors.
pub(super) async fn announce(
    store: &RedisStore,
    from: &AgentId,
    speaker: Option<&Speaker>,
    text: &str,
) -> Result<()> {
    let mut call = store.names.call_about("announce", from);
    call.arg(text);
    describe_speaker(&mut call, speaker);
    unless_refused(speaker, store.connection.invoke(&call).await?).map(drop)
}

/// Sends a reply and settles the question in one step.
pub(super) async fn answer(store: &RedisStore, answer: &Send) -> Result<AnswerOutcome> {
    let reply = &answer.message;
    let Some(question) = reply
        .reply_to
        .as_ref()
        .filter(|question| question.to() == reply.from_agent)
    else {
        return Ok(AnswerOutcome::NotFound);
    };
    let keys = [
        store.names.agent(&reply.from_agent),
        store.names.message(question),
        store.names.agent(&reply.to_agent),
        store.names.message(&reply.id),
    ];
    let envelope = records::write(reply)?;
    let call = |function| -> Result<Call> {
        let mut call = store.names.call(function, keys.clone());
        call.arg(store.wakes.origin()).arg(question.as_str());
        describe(&mut call, answer, &envelope)?;
        Ok(call)
    };
    let (into_room, into_reserve) = (call("answer_into_room")?, call("answer")?);
    let first = if answer.is_of_people() {
        &into_reserve
    } else {
        &into_room
    };
    let mut told: Result<Vec<Value>> = store.connection.invoke(first).await;
    if matches!(told, Err(StoreError::Full(_)))
        && is_short(envelope.len())
        && room::has_reserve(&store.connection).await?
    {
        told = store.connection.invoke(&into_reserve).await;
    }
    let told = match told {
        // As for a message: a full Redis refuses the call before it checks whether this call was sent before.
        Err(StoreError::Full(why)) => {
            let earlier = sent_before(store, answer, &envelope).await?;
            return earlier
                .map(AnswerOutcome::Sent)
                .ok_or(StoreError::Full(why));
        }
        told => told?,
    };
    match told.first().map(read::<String>).transpose()?.as_deref() {
        Some("unknown") => Ok(AnswerOutcome::NotFound),
        Some("withdrawn") => Ok(AnswerOutcome::Withdrawn),
        Some("answered") => Ok(AnswerOutcome::AlreadyAnswered(records::parse(&fact::<
            String,
        >(
            &told
        )?)?)),
        _ => outcome(store, answer, told).map(AnswerOutcome::Sent),
    }
}

/// Records that a message reached a person.
pub(super) async fn reach_person(store: &RedisStore, reached: &PersonReached) -> Result<bool> {
    if !reached.message.to().is_human() {
        return Ok(false);
    }
    let mut call = store
        .names
        .call_about_message("reach_person", &reached.message);
    call.arg(store.wakes.origin())
        .arg(reached.message.as_str())
        .arg(reached.stage.as_str())
        .arg(reached.via.as_str())
        .arg(person(&reached.by));
    let recorded: bool = store.connection.invoke(&call).await?;
    if recorded {
        store.wakes.log_grew();
        store.wakes.wake(Wake::Receipt(reached.message.clone()));
    }
    Ok(recorded)
}

/// Records the outcome of a question.
pub(super) async fn conclude(store: &RedisStore, conclusion: &Conclusion) -> Result<Option<bool>> {
    let question = &conclusion.question;
    if question.from() != conclusion.asker {
        return Ok(None);
    }
    let mut call = store.names.call_about_message("conclude", question);
    call.arg(store.wakes.origin())
        .arg(question.as_str())
        .arg(conclusion.stage.as_str())
        .arg(conclusion.via.as_str())
        .arg(conclusion.key.as_deref().unwrap_or_default());
    let speaker = conclusion.speaker.as_ref();
    describe_speaker(&mut call, speaker);
    let recorded: Option<bool> = match store.connection.invoke(&call).await? {
        Value::Array(refused) => return Err(refused_speaker(speaker, &refused)),
        recorded => read(&recorded)?,
    };
    if recorded == Some(true) {
        store.wakes.log_grew();
        store.wakes.wake(Wake::Receipt(conclusion.question.clone()));
    }
    Ok(recorded)
}

/// Adds the arguments that describe a message to be sent.
fn describe(call: &mut Call, send: &Send, envelope: &str) -> Result<()> {
    let message = &send.message;
    let kept_until = message.expires_at + send.kept;
    let charge = send.quota.bytes.map(|limit| {
        let bytes = quota::cost(envelope.len());
        format!("{bytes} {limit} {}", send.quota.key)
    });
    call.arg(message.id.as_str())
        .arg(send.bound)
        .arg(envelope)
        .arg(records::facts(message, send.call, kept_until))
        .arg(message.expires_at.millis())
        .arg(kept_until.millis())
        .arg(flags_of(send))
        .arg(charge.unwrap_or_default())
        .arg(records::entry(&send.entry())?);
    describe_speaker(call, send.speaker.as_ref());
    if message.to_agent == AgentId::human() {
        call.arg(QUESTIONS_PER_AGENT)
            .arg(QUESTIONS_PER_HOST)
            .arg(QUESTIONS_MAX)
            .arg(NOTICES_PER_HOST)
            .arg(NOTICES_MAX)
            .arg(counted_host(message))
            .arg(match is_client_request(message) {
                true => REQUEST_CHECKED_EVERY.as_millis().to_string(),
                false => String::new(),
            });
    }
    Ok(())
}

/// Returns the letters of what is special about a message, as `put` expects them.
fn flags_of(send: &Send) -> String {
    let message = &send.message;
    let special = [
        ('a', send.spares_away),
        ('o', send.one_shot && message.requires_response),
        ('t', message.thread_id != message.id),
    ];
    special
        .iter()
        .filter_map(|&(letter, is_so)| is_so.then_some(letter))
        .collect()
}

/// Parses the outcome of a send, and wakes the affected listeners of this process.
fn outcome(store: &RedisStore, send: &Send, told: Vec<Value>) -> Result<SendOutcome> {
    let message = &send.message;
    match told
        .first()
        .map(read::<String>)
        .transpose()?
        .as_deref()
        .unwrap_or_default()
    {
        "stored" => {
            let position: u64 = fact(&told)?;
            let sole = told.get(2).map(read).transpose()?.unwrap_or_default();
            let session: String = told.get(3).map_or(Ok(String::new()), read)?;
            let (generation, instance, _) = records::parts(&session)?;
            let holder = (generation, instance);
            let wake = Wake::arrived(position, Some(position - 1), sole, holder, message);
            store.wakes.wake(wake);
            store.wakes.log_grew();
            if let Some(question) = &message.reply_to {
                store.wakes.wake(Wake::Receipt(question.clone()));
            }
            Ok(SendOutcome::Stored)
        }
        "repeated" => {
            // The reply to the first call may have been lost, and its wakes with it.
            store
                .wakes
                .wake(Wake::Inbox(message.to_agent.clone(), None));
            if let Some(question) = &message.reply_to {
                store.wakes.wake(Wake::Receipt(question.clone()));
            }
            Ok(SendOutcome::Repeated(Box::new(records::envelope(
                &fact::<String>(&told)?,
            )?)))
        }
        "over" => Err(StoreError::OverQuota(exceeded(send, &told)?)),
        "full" => Ok(SendOutcome::Full(fact(&told)?)),
        "questions" => Ok(SendOutcome::TooManyQuestions {
            count: fact(&told)?,
            limit: told.get(2).map_or(Ok(0), read)?,
        }),
        "nobody" => Ok(SendOutcome::NoSuchAgent),
        "outdated" | "reserved" => Err(refused_speaker(send.speaker.as_ref(), &told)),
        "away" => Ok(SendOutcome::Away),
        "taken" => Ok(SendOutcome::IdTaken),
        "call_taken" => Ok(SendOutcome::CallTaken),
        other => Err(corrupt(format_args!(
            "'{other}' is not an outcome of a send"
        ))),
    }
}

/// Returns the details of a quota that would be exceeded.
fn exceeded(send: &Send, told: &[Value]) -> Result<Exceeded> {
    let until = told.get(2).map(read).transpose()?.unwrap_or_default();
    Ok(Exceeded {
        key: send.quota.key.clone(),
        count: fact(told)?,
        limit: send.quota.bytes.unwrap_or_default(),
        until: Timestamp::from_millis(until),
    })
}

/// Returns the outcome of a call that sent a message to the same recipient before, if it did.
async fn sent_before(
    store: &RedisStore,
    send: &Send,
    envelope: &str,
) -> Result<Option<SendOutcome>> {
    let key = store.names.message(&send.message.id);
    let field = |command: &str, field: &str| {
        let mut command = redis::cmd(command);
        command.arg(&key).arg(field);
        command
    };
    let facts: Option<String> = store.connection.run(&field("HGET", "facts")).await?;
    let call = send.call.to_string();
    if facts.as_deref().and_then(records::call_of) != Some(call.as_str()) {
        return Ok(None);
    }
    let length: usize = store.connection.run(&field("HSTRLEN", "env")).await?;
    if length > envelope.len() + REPEAT_MARGIN {
        return Ok(Some(SendOutcome::CallTaken));
    }
    let envelope: Option<String> = store.connection.run(&field("HGET", "env")).await?;
    let Some(envelope) = envelope else {
        return Ok(None);
    };
    Ok(Some(SendOutcome::Repeated(Box::new(records::envelope(
        &envelope,
    )?))))
}

/// Returns the second word of a function's reply.
fn fact<T: FromRedisValue>(told: &[Value]) -> Result<T> {
    told.get(1)
        .map(read)
        .unwrap_or_else(|| Err(corrupt("an answer of one word")))
}

/// Takes messages out of an inbox.
pub(super) async fn acknowledge(
    store: &RedisStore,
    agent: &AgentId,
    actor: &Actor,
    messages: &[MessageId],
) -> Result<Settled> {
    let mut settled = Settled::default();
    for step in messages.chunks(STEP) {
        let mut call = store
            .names
            .batched_call("acknowledge", store.wakes.origin());
        call.arg(agent.as_str());
        describe_speaker(&mut call, actor.speaker.as_ref());
        for id in step {
            call.arg(id.as_str())
                .arg(records::entry(&actor.acknowledged(agent, id))?);
        }
        let flags = flags::<bool>(store, actor, call, step.len()).await?;
        for (id, is_out) in step.iter().zip(flags) {
            let list = if is_out {
                &mut settled.acked
            } else {
                &mut settled.unknown
            };
            list.push(id.clone());
        }
    }
    store.wakes.log_grew();
    Ok(settled)
}

/// Records that messages reached a later stage. Returns each recorded stage with its message.
pub(super) async fn advance(
    store: &RedisStore,
    recipient: &AgentId,
    actor: &Actor,
    progress: &Progress,
) -> Result<Vec<(MessageId, Stage)>> {
    if !matches!(
        progress.stage,
        Stage::OnHost | Stage::InSession | Stage::Seen
    ) {
        return Ok(Vec::new());
    }
    let (mut recorded, mut further) = (Vec::new(), Vec::new());
    for step in progress.message_ids.chunks(STEP) {
        let mut call = store.names.batched_call("advance", store.wakes.origin());
        call.arg(recipient.as_str()).arg(progress.context);
        call.arg(progress.stage.as_str()).arg(progress.via.as_str());
        call.arg(progress.seen_via.map_or("", Via::as_str));
        describe_speaker(&mut call, actor.speaker.as_ref());
        for id in step {
            call.arg(id.as_str());
            for (stage, via) in progress.stages() {
                call.arg(records::entry(&actor.received(recipient, id, stage, via))?);
            }
        }
        for (id, flags) in step
            .iter()
            .zip(flags::<u8>(store, actor, call, step.len()).await?)
        {
            let stages = [(1, progress.stage), (2, Stage::Seen)]
                .into_iter()
                .filter(|(flag, _)| flags & flag != 0);
            recorded.extend(stages.map(|(_, stage)| (id.clone(), stage)));
            further.extend((flags & 4 != 0).then(|| id.clone()));
        }
    }
    if !recorded.is_empty() {
        store.wakes.log_grew();
    }
    for id in further {
        store.wakes.wake(Wake::Receipt(id));
    }
    Ok(recorded)
}

/// Makes a call about messages of the actor's agent, of which there are `count`, and returns one result per message.
async fn flags<T: FromRedisValue>(
    store: &RedisStore,
    actor: &Actor,
    call: Call,
    count: usize,
) -> Result<Vec<T>> {
    let flags = store.connection.invoke_batched(call, count).await?;
    redis::from_redis_value(unless_refused(actor.speaker.as_ref(), flags)?).map_err(corrupt)
}

/// Reads a message with its history.
pub(super) async fn message(store: &RedisStore, id: &MessageId) -> Result<Option<StoredMessage>> {
    let kept = read_message(store, id, "env").await?;
    let Some((envelope, history, reply)) = kept else {
        return Ok(None);
    };
    Ok(Some(StoredMessage {
        message: records::envelope(&envelope)?,
        history: records::history(&history)?,
        reply: reply.map(|reply| records::parse(&reply)).transpose()?,
    }))
}

/// Returns the history of a message alone.
pub(super) async fn history(store: &RedisStore, id: &MessageId) -> Result<Option<Vec<Step>>> {
    let kept = read_message(store, id, "facts").await?;
    kept.map(|(_, history, _)| records::history(&history))
        .transpose()
}

/// Returns that field of a message, its history, and the id of its reply.
async fn read_message(
    store: &RedisStore,
    id: &MessageId,
    field: &str,
) -> Result<Option<(String, String, Option<String>)>> {
    let mut call = store.names.call_about_message("message", id);
    store
        .connection
        .invoke(call.arg(id.as_str()).arg(field))
        .await
}
