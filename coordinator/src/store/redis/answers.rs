//! An answer is in two inboxes at once, and no script may touch both: claim, send, finish, each safe to repeat.
//!
//! The claim says which reply it will be. While it stands no other answer is taken, and whoever finds it, a sweep or
//! the same call again, can go on from there. Where the reply cannot be sent the claim is taken back.

use std::time::Duration;

use c3po_shared::ids::{AgentId, CallId, MessageId};
use futures_util::future::join;

use super::records::{self, corrupt};
use super::scripts::Call;
use super::{RedisStore, keys, messages, millis, scripts};
use crate::store::{AnswerOutcome, Result, Send, SendOutcome, StoreError, Wake};

/// After how long an unfinished answer counts as left behind: longer than any process works on one.
const LEFT_BEHIND: Duration = Duration::from_secs(5);
/// How long a note of an unfinished answer stays at least; longer than the time between note and claim.
const NOTE_LIFE: Duration = Duration::from_secs(60);
/// How many unfinished answers of one agent, and how many agents, one sweep takes up.
const SWEPT: usize = 100;

/// A claim that is to be carried out.
struct Claim {
    question: MessageId,
    reply: Send,
    attempt: u64,
}

/// What became of an attempt at a claim.
enum Attempt {
    /// The reply is in the asker's inbox, and the question is settled.
    Sent(SendOutcome),
    /// It cannot be sent, and the question is open again.
    Refused(SendOutcome),
}

/// Answers a question.
pub(super) async fn answer(store: &RedisStore, answer: &Send) -> Result<AnswerOutcome> {
    let Some(question) = &answer.message.reply_to else { return Ok(AnswerOutcome::NotFound) };
    let replier = &answer.message.from_agent;
    let (noted, answered) = join(note(store, replier), give(store, question, answer)).await;
    if let Err(error) = noted {
        tracing::debug!("an answer of {replier} was not noted, a sweep finds it if need be: {error}");
    }
    answered
}

async fn give(store: &RedisStore, question: &MessageId, answer: &Send) -> Result<AnswerOutcome> {
    let found = claim(store, &answer.message.from_agent, question, answer).await?;
    let word = found.first().map(String::as_str);
    match (word, found.get(1..).unwrap_or_default()) {
        (Some("unknown"), _) => Ok(AnswerOutcome::NotFound),
        (Some("answered"), [reply]) => Ok(AnswerOutcome::AlreadyAnswered(records::parse(reply)?)),
        (Some("repeated"), [reply]) => repeated(store, records::parse(reply)?).await,
        (Some("new"), facts) => match carry_out(store, &read_claim(question.clone(), facts)?).await? {
            Attempt::Sent(outcome) | Attempt::Refused(outcome) => Ok(AnswerOutcome::Sent(outcome)),
        },
        // The reply is the one of the first attempt, so its envelope is what the caller gets.
        (Some("again"), facts) => {
            let claim = read_claim(question.clone(), facts)?;
            match carry_out(store, &claim).await? {
                Attempt::Sent(_) => Ok(AnswerOutcome::Sent(SendOutcome::Repeated(Box::new(claim.reply.message)))),
                Attempt::Refused(outcome) => Ok(AnswerOutcome::Sent(outcome)),
            }
        }
        _ => Err(corrupt("a claim of an answer in another form")),
    }
}

/// Notes that the agent may have an unfinished answer: a hint, for a sweep that comes by finds what it has.
async fn note(store: &RedisStore, replier: &AgentId) -> Result<()> {
    store.connection.invoke(Call::new(&scripts::OUTBOXES_NOTE, keys::OUTBOXES).arg(replier.as_str())).await
}

/// Runs the first step of an answer.
async fn claim(store: &RedisStore, replier: &AgentId, question: &MessageId, answer: &Send) -> Result<Vec<String>> {
    let claimed = store
        .connection
        .invoke(
            scripts::about(&scripts::ANSWER_CLAIM, replier)
                .arg(question.as_str())
                .arg(answer.message.id.as_str())
                .arg(answer.call.to_string())
                .arg(answer.bound)
                .arg(records::write(&answer.message)?),
        )
        .await;
    match claimed {
        // Redis did not even look whether this call has begun before. Where it has, a sweep completes it.
        Err(StoreError::Full(why)) if has_begun(store, question, answer).await? => Err(StoreError::Unavailable(why)),
        claimed => claimed,
    }
}

async fn has_begun(store: &RedisStore, question: &MessageId, answer: &Send) -> Result<bool> {
    let mut calls = redis::cmd("HMGET");
    calls.arg(keys::message(question)).arg("claim_call").arg("reply_call");
    let calls: Vec<Option<String>> = store.connection.run(&calls).await?;
    Ok(calls.into_iter().flatten().any(|call| call == answer.call.to_string()))
}

/// Returns the outcome of an answer that was finished before.
async fn repeated(store: &RedisStore, reply: MessageId) -> Result<AnswerOutcome> {
    Ok(match messages::message(store, &reply).await? {
        Some(kept) => AnswerOutcome::Sent(SendOutcome::Repeated(Box::new(kept.message))),
        None => AnswerOutcome::AlreadyAnswered(reply),
    })
}

fn read_claim(question: MessageId, facts: &[String]) -> Result<Claim> {
    let [envelope, call, bound, attempt] = facts else { return Err(corrupt("a claim with other facts")) };
    let reply = Send {
        message: records::envelope(envelope)?,
        call: CallId(records::parse(call)?),
        bound: records::parse(bound)?,
        spares_away: false,
    };
    Ok(Claim { question, reply, attempt: records::parse(attempt)? })
}

/// Sends the claimed reply and settles the question, or opens it again.
///
/// Where nothing is known of the send the claim stands: the reply may have arrived.
async fn carry_out(store: &RedisStore, claim: &Claim) -> Result<Attempt> {
    let outcome = messages::send(store, &claim.reply).await.map_err(|error| match error {
        // The claim stands, so this is not nothing: a sweep sends the reply when there is room.
        StoreError::Full(why) => StoreError::Unavailable(why),
        error => error,
    })?;
    let replier = &claim.reply.message.from_agent;
    let is_sent = match &outcome {
        // The same call may have sent something else before, which answers nothing.
        SendOutcome::Repeated(before) => before.reply_to.as_ref() == Some(&claim.question),
        outcome => *outcome == SendOutcome::Stored,
    };
    if is_sent {
        finish(store, replier, claim).await?;
        return Ok(Attempt::Sent(outcome));
    }
    let mut release = scripts::about(&scripts::ANSWER_RELEASE, replier);
    let released: bool = store.connection.invoke(release.arg(claim.question.as_str()).arg(claim.attempt)).await?;
    if released {
        return Ok(Attempt::Refused(outcome));
    }
    Err(StoreError::Unavailable("another attempt at the same answer is under way".into()))
}

async fn finish(store: &RedisStore, replier: &AgentId, claim: &Claim) -> Result<()> {
    let reply = &claim.reply.message;
    let asker = claim.question.from();
    let () = store
        .connection
        .invoke(
            scripts::about(&scripts::ANSWER_FINISH, replier)
                .arg(claim.question.as_str())
                .arg(reply.id.as_str())
                .arg(claim.reply.call.to_string())
                .arg(asker.as_str())
                .arg(store.wakes.origin()),
        )
        .await?;
    store.wakes.wake(Wake::Receipt(asker));
    Ok(())
}

/// Completes the answers that were left behind.
pub(super) async fn sweep(store: &RedisStore) -> Result<()> {
    let repliers: Vec<String> =
        store.connection.run(redis::cmd("ZRANGE").arg(keys::OUTBOXES).arg(0).arg(SWEPT - 1)).await?;
    let mut outcome = Ok(());
    for replier in &repliers {
        // One whose server is away does not keep the others from theirs.
        if let Err(error) = resume(store, &records::parse(replier)?).await {
            outcome = Err(error);
        }
    }
    outcome
}

/// Completes the answers that one agent left behind.
pub(super) async fn resume(store: &RedisStore, replier: &AgentId) -> Result<()> {
    let left: Vec<String> = store
        .connection
        .invoke(scripts::about(&scripts::ANSWER_RESUME, replier).arg(millis(LEFT_BEHIND)).arg(SWEPT))
        .await?;
    let Some((unfinished, claims)) = left.split_first() else { return Err(corrupt("no count of answers")) };
    for facts in claims.chunks_exact(5) {
        complete(store, facts).await;
    }
    if unfinished == "0" { forget(store, replier).await } else { note(store, replier).await }
}

/// Completes one answer. One that fails stays for the next sweep and does not keep it from the others.
async fn complete(store: &RedisStore, facts: &[String]) {
    let attempt = async { carry_out(store, &read_claim(records::parse(&facts[0])?, &facts[1..])?).await };
    match attempt.await {
        Ok(Attempt::Sent(_)) => tracing::info!("completed an answer that was left behind, to {}", facts[0]),
        Ok(Attempt::Refused(outcome)) => tracing::info!("gave up an answer to {}: {outcome:?}", facts[0]),
        Err(error) => tracing::warn!(%error, "could not complete the answer to {}: {error}", facts[0]),
    }
}

async fn forget(store: &RedisStore, replier: &AgentId) -> Result<()> {
    store
        .connection
        .invoke(Call::new(&scripts::OUTBOXES_FORGET, keys::OUTBOXES).arg(replier.as_str()).arg(NOTE_LIFE.as_secs()))
        .await
}
