//! Sends questions and news to the sessions.

use std::time::Duration;

use anyhow::{Context, Result};
use c3po_shared::time::Timestamp;
use serde_json::json;
use tokio::time::sleep;

use super::checker::{Seat, Sent};
use super::token::{Text, Token};
use super::world::World;
use crate::dice::Dice;
use crate::mcp::McpClient;

/// The number of messages to each session per minute, half of them news.
const PER_MINUTE: u64 = 10;

/// Sends messages until the day ends, sometimes several at once.
pub(super) async fn send_all(world: &World, which: usize) {
    let mut dice = Dice::of(world.day.seed, 200 + which as u64);
    let senders = world.senders.len() as u64;
    let twice_the_mean = 2 * 60_000 * senders / (PER_MINUTE * world.day.sessions as u64);
    loop {
        // A burst is sent without pauses.
        let burst = if dice.percent(10) {
            2 + dice.below(4)
        } else {
            1
        };
        for _ in 0..burst {
            let pause = dice.millis(0, twice_the_mean);
            if world.calm.is_cancelled() {
                return;
            }
            let seat = dice.below(world.day.sessions);
            let message = Message::chosen(&mut dice);
            if let Err(error) = send(world, &world.senders[which], seat, &message).await {
                world.say(&format!(
                    "a message to {} was not sent: {error:#}",
                    World::name(seat)
                ));
            }
            if burst == 1 {
                // The result does not matter: at the end of the day the rest of the pause is skipped.
                let _ = world.calm.run_until_cancelled(sleep(pause)).await;
            }
        }
        if burst > 1 {
            let _ = world
                .calm
                .run_until_cancelled(sleep(Duration::from_millis(twice_the_mean)))
                .await;
        }
    }
}

/// The properties of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    wants_answer: bool,
    priority: &'static str,
    /// The number of characters added to its text.
    length: usize,
}

impl Message {
    /// A short question.
    pub(super) const QUESTION: Self = Self {
        wants_answer: true,
        priority: "normal",
        length: 0,
    };

    fn chosen(dice: &mut Dice) -> Self {
        let wants_answer = dice.percent(50);
        let priority = if dice.percent(6) { "urgent" } else { "normal" };
        let length = if dice.percent(8) {
            500 + dice.below(5_000)
        } else {
            dice.below(80)
        };
        Self {
            wants_answer,
            priority,
            length,
        }
    }
}

/// Sends a message, and returns its token.
///
/// Errors: it is not accepted.
pub(super) async fn send(
    world: &World,
    sender: &McpClient,
    seat: Seat,
    message: &Message,
) -> Result<Token> {
    let Message {
        wants_answer,
        priority,
        length,
    } = *message;
    let token = Token {
        text: Text::Message,
        seat,
        number: world.journal.next_number(seat),
    };
    let text = format!("{token} is for you {}", "x".repeat(length));
    let arguments = json!({"target": World::name(seat), "message": text, "requires_response": wants_answer,
        "priority": priority});
    let sent = sender.reply("send_message", arguments).await?;
    let id = sent["id"]
        .as_str()
        .context("a message without id")?
        .to_owned();
    let presses = wants_answer || priority == "urgent";
    world.journal.sent(Sent {
        token,
        id,
        wants_answer,
        presses,
        at: Timestamp::now(),
    });
    Ok(token)
}
