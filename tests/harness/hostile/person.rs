//! The person of one session: types, waits, and recovers the session if something went wrong.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use c3po_shared::time::Timestamp;
use tokio::time::sleep;

use super::checker::{Deed, Effect};
use super::screens::{clear_line, error_of_ours, is_ready};
use super::seat::{Beginning, Seat};
use super::token::{Text, Token};
use super::world::World;
use crate::dice::Dice;

/// How often Esc is pressed before the client is given up: no dialog is nested deeper.
const ESCAPES: usize = 8;
/// How long the client may take to close a dialog after Esc.
const CLOSES: Duration = Duration::from_millis(400);

/// A person.
pub(super) struct Person {
    pub(super) seat: Seat,
    pub(super) world: Arc<World>,
    pub(super) dice: Dice,
    prompts: usize,
    actions: u64,
}

impl Person {
    pub(super) fn new(seat: Seat, world: Arc<World>) -> Self {
        let dice = Dice::of(world.day.seed, 10 + seat.number as u64);
        Self {
            seat,
            world,
            dice,
            prompts: 0,
            actions: 0,
        }
    }

    /// Returns the number of the next action, and derives the randomness within it from this number alone.
    pub(super) fn next_action(&mut self) -> u64 {
        self.actions += 1;
        self.dice = Dice::of(
            self.world.day.seed,
            1_000 * (self.seat.number as u64 + 1) + self.actions,
        );
        self.actions
    }

    pub(super) fn note(&self, name: &str, from: Timestamp, effect: Effect) {
        let deed = Deed {
            seat: self.seat.number,
            name: name.to_owned(),
            from,
            to: Timestamp::now(),
            effect,
        };
        self.world.journal.deed(deed);
    }

    /// Waits for that time, or until the day ends.
    pub(super) async fn rests(&self, time: Duration) {
        // The result does not matter: at the end of the day the rest is skipped.
        let _ = self.world.calm.run_until_cancelled(sleep(time)).await;
    }

    /// Returns a random time from `from` milliseconds up to the person's patience.
    pub(super) fn while_patient(&mut self, from: u64) -> Duration {
        let patience = u64::try_from(self.world.day.patience().as_millis()).unwrap_or(u64::MAX);
        self.dice.millis(from, patience.max(from + 1))
    }

    /// Types a prompt that contains an order for the model. Returns its token.
    pub(super) async fn types(&mut self, order: &str) -> Result<Token> {
        self.prompts += 1;
        let token = Token {
            text: Text::Prompt,
            seat: self.seat.number,
            number: self.prompts,
        };
        let session = self.seat.session()?;
        clear_line(session).await?;
        session.type_line(&format!("{token} {order} go on")).await?;
        Ok(token)
    }

    /// Brings the session back to its input prompt, with a new client if necessary.
    ///
    /// Errors: no client starts.
    pub(super) async fn recover(&mut self) -> Result<()> {
        if let Err(error) = self.escapes().await {
            self.world.say(&format!(
                "{} begins again: {error:#}",
                World::name(self.seat.number)
            ));
            return self.begins_again().await;
        }
        self.seat.watch.occupied(false);
        Ok(())
    }

    /// Kills the client, and resumes its conversation with a new one.
    ///
    /// Errors: no client starts.
    pub(super) async fn begins_again(&mut self) -> Result<()> {
        let from = Timestamp::now();
        self.seat.watch.occupied(true);
        // There may be no client to kill.
        let _ = self.seat.kill().await;
        let carries = match self.seat.start(Beginning::Resumed).await {
            Ok(carries) => carries,
            Err(_) => self.seat.start(Beginning::Anew).await?,
        };
        self.note(
            "begin-again",
            from,
            if carries {
                Effect::Disturbs
            } else {
                Effect::Renews
            },
        );
        Ok(())
    }

    /// Presses Esc until the input prompt appears, and clears its line.
    async fn escapes(&self) -> Result<()> {
        let session = self.seat.session()?;
        for _ in 0..ESCAPES {
            let screen = session.screen().await?;
            if session.has_ended().await? {
                bail!("the client ended:\n{}", screen.trim());
            }
            if let Some(error) = error_of_ours(&screen) {
                self.world.journal.screen(self.seat.number, &error);
            }
            if is_ready(&screen) {
                session
                    .proxy_pid()
                    .context("nobody connected the proxy again")?;
                return clear_line(session).await;
            }
            session.key("Escape").await?;
            sleep(CLOSES).await;
        }
        bail!("nothing can be typed:\n{}", session.screen().await?.trim())
    }
}
