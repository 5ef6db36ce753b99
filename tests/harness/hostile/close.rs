//! The end of the day: every session comes to rest and is shown its remaining messages, and every message's history is
//! fetched.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::time::Timestamp;
use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::checker::Step;
use super::person::Person;
use super::screens::wait_idle;
use super::sending::{Message, send};
use super::token::Token;
use super::world::World;

/// How long a session may take to come to rest, and to be shown the messages that start a turn.
const REST: Duration = Duration::from_secs(45);
/// The time limit of a turn at the end.
const TURN: Duration = Duration::from_secs(40);
/// The pause after a turn, for reads and receipts that come late.
const SETTLED: Duration = Duration::from_secs(3);
/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(300);

/// Ends the day for all sessions. Records the history of each message, and the last message to each session.
///
/// Errors: a session cannot be brought to rest, or the coordinator does not respond.
pub(super) async fn close(world: &World, persons: &mut [Person]) -> Result<()> {
    let lasts = join_all(persons.iter_mut().map(|person| last_words(world, person))).await;
    for (seat, last) in lasts.into_iter().enumerate() {
        world.journal.last(
            seat,
            last.with_context(|| format!("the end of {}", World::name(seat)))?,
        );
    }
    for sent in world.journal.record().sent {
        let status = world
            .sender_of(&sent.id)
            .reply("message_status", serde_json::json!({"message_id": sent.id}));
        let status = status.await?;
        let steps = status["history"]
            .as_array()
            .into_iter()
            .flatten()
            .map(step)
            .collect::<Result<_>>()?;
        world.journal.history(sent.token, steps);
    }
    for seat in 0..world.day.sessions {
        let left = world.inbox(seat).await?;
        world
            .journal
            .left(Token::find_all(&left).into_iter().map(|(_, token)| token));
    }
    Ok(())
}

/// Brings a session to rest, with a new client if necessary. Returns the last message to it.
async fn last_words(world: &World, person: &mut Person) -> Result<Token> {
    person.seat.model.calms_down();
    match ends_well(world, person).await {
        Ok(token) => Ok(token),
        Err(error) => {
            world.say(&format!(
                "{} did not come to rest: {error:#}",
                World::name(person.seat.number)
            ));
            person.begins_again().await?;
            ends_well(world, person).await
        }
    }
}

/// Waits until all messages that start a turn are shown, then sends one more message and types more prompts.
async fn ends_well(world: &World, person: &mut Person) -> Result<Token> {
    let seat = person.seat.number;
    person.recover().await?;
    wait_idle(&person.seat, REST).await?;
    let pressing = world.journal.pressing(seat);
    // The checker reports the messages that are not shown.
    let _ = until("what may start a turn", REST, || {
        world.journal.are_shown(seat, &pressing)
    })
    .await;
    prompt(world, person).await?;
    let last = send(world, &world.senders[0], seat, &Message::QUESTION).await?;
    until("the last message", REST, || {
        world.journal.are_shown(seat, &[last])
    })
    .await?;
    for _ in 0..2 {
        prompt(world, person).await?;
    }
    Ok(last)
}

/// Types a prompt and waits for the end of its turn.
async fn prompt(world: &World, person: &mut Person) -> Result<()> {
    wait_idle(&person.seat, TURN).await?;
    sleep(SETTLED).await;
    let token = person.types("").await?;
    until("an answer", TURN, || world.journal.is_answered(token)).await?;
    wait_idle(&person.seat, TURN).await?;
    sleep(SETTLED).await;
    Ok(())
}

/// Waits for a condition that is expensive to check.
async fn until(what: &str, within: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let end = Instant::now() + within;
    while !holds() {
        anyhow::ensure!(Instant::now() < end, "after {within:?} still not: {what}");
        sleep(LOOK).await;
    }
    Ok(())
}

fn step(step: &Value) -> Result<Step> {
    let text = |name: &str| step[name].as_str().map(str::to_owned);
    Ok(Step {
        stage: text("stage").context("a step without a stage")?,
        via: text("via"),
        at: text("at")
            .context("a step without a time")?
            .parse::<Timestamp>()?,
        session: text("session"),
    })
}
