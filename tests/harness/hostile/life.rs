//! A person's day: one random action after the other.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::time::Timestamp;
use tokio::time::timeout;

use super::action::Action;
use super::checker::Effect;
use super::deeds::act;
use super::person::Person;
use super::world::World;

/// The pause of a person between two actions, in milliseconds.
const BETWEEN: (u64, u64) = (300, 3_500);
/// The time limit of one action.
const ACTION_MAX: Duration = Duration::from_secs(180);

/// Performs actions until the day ends.
///
/// Errors: the session cannot be brought back.
pub(super) async fn live(person: &mut Person) -> Result<()> {
    while !person.world.calm.is_cancelled() {
        let number = person.next_action();
        let action = Action::choose(&mut person.dice, &person.world.day.actions);
        let name = World::name(person.seat.number);
        person.world.say(&format!("{name} {number}: {action}"));
        let from = Timestamp::now();
        let done = timeout(ACTION_MAX, act(person, action)).await;
        let done = done.context("it takes too long").and_then(|done| done);
        person.note(
            &action.to_string(),
            from,
            *done.as_ref().unwrap_or(&Effect::Disturbs),
        );
        if let Err(error) = done {
            person
                .world
                .say(&format!("{name} {number}: {action} went wrong: {error:#}"));
            person.note("stumble", from, Effect::Disturbs);
        }
        person.recover().await?;
        let pause = person.dice.millis(BETWEEN.0, BETWEEN.1);
        person.rests(pause).await;
    }
    Ok(())
}
