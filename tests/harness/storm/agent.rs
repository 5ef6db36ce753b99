//! One agent: sends and receives concurrently, in one session after another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::session::{Answer, Session};
use super::world::World;
use crate::checker::{Event, Key, Outcome};
use crate::dice::Dice;
use crate::eventually::eventually;

/// How long all agents may take to connect.
const ARRIVAL: Duration = Duration::from_secs(60);
/// The delay before a refused call is repeated.
const AGAIN: Duration = Duration::from_millis(150);
/// The delay before a session with another name ends, so that the next one can ask for the agent's own name.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The percentage of sends that are queued on the host if there is no coordinator.
const QUEUED: usize = 40;

/// Drives one agent through all its sessions.
pub(super) struct Driver {
    number: usize,
    name: String,
    world: Arc<World>,
    dice: Dice,
    sends: Numbered,
    replies: Numbered,
    first: Option<Arc<Session>>,
}

/// A source of randomness, and the last number of each lane.
struct Numbered {
    dice: Dice,
    lanes: BTreeMap<String, u64>,
}

impl Numbered {
    fn new(dice: Dice) -> Self {
        Self {
            dice,
            lanes: BTreeMap::new(),
        }
    }

    fn key(&mut self, lane: String) -> Key {
        let number = self.lanes.entry(lane.clone()).or_default();
        *number += 1;
        Key {
            number: *number,
            lane,
        }
    }
}

impl Driver {
    pub(super) fn new(number: usize, world: Arc<World>) -> Self {
        let first = 1_000 + 3 * u64::try_from(number).unwrap_or_default();
        let dice = |which: u64| Dice::of(world.storm.seed, first + which);
        let (sends, replies) = (Numbered::new(dice(1)), Numbered::new(dice(2)));
        Self {
            number,
            name: World::name(number),
            dice: dice(0),
            sends,
            replies,
            first: None,
            world,
        }
    }

    /// Starts the first session, so that every agent exists before the first send.
    pub(super) async fn arrive(&mut self) -> Result<()> {
        let session = self.world.session(&self.name, &mut self.dice).await?;
        eventually("an agent arrives", ARRIVAL, async || {
            matches!(session.call("ping", json!({})).await, Answer::Reply(_)).then_some(())
        })
        .await?;
        self.first = Some(session);
        Ok(())
    }

    /// Sends and receives until the run is over. Returns the last session, which has the agent's own name and has read its
    /// whole inbox.
    pub(super) async fn live(&mut self) -> Result<Arc<Session>> {
        loop {
            let session = match self.first.take() {
                Some(session) => session,
                None => self.world.session(&self.name, &mut self.dice).await?,
            };
            self.world.present(self.number, Some(Arc::clone(&session)));
            let sending = send(&self.world, self.number, &session, &mut self.sends);
            tokio::join!(
                sending,
                receive(&self.world, &self.name, &session, &mut self.replies)
            );
            if session.is_dead() {
                sleep(self.dice.millis(0, 300)).await;
            } else if name_of(&session).await.as_deref() == Some(&self.name) {
                return Ok(session);
            } else {
                session.end().await;
                sleep(ASK_AGAIN).await;
            }
        }
    }
}

/// Returns the agent id of a session.
async fn name_of(session: &Session) -> Option<String> {
    match session.call("ping", json!({})).await {
        Answer::Reply(pong) => pong["agent_id"].as_str().map(str::to_owned),
        Answer::Refused(_) | Answer::Gone => None,
    }
}

/// Sends messages one after another, until enough were sent or the session is dead.
async fn send(world: &World, number: usize, session: &Session, chance: &mut Numbered) {
    let pace = u64::try_from(world.storm.pace.as_millis()).unwrap_or(u64::MAX);
    loop {
        let pause = chance.dice.millis(0, pace);
        if world.calm.run_until_cancelled(sleep(pause)).await.is_none() || session.is_dead() {
            return;
        }
        // Any other agent.
        let other = (number + 1 + chance.dice.below(world.storm.agents - 1)) % world.storm.agents;
        let target = World::name(other);
        let key = chance.key(format!("{}>{target}/send", World::name(number)));
        let wants_answer = chance.dice.percent(60);
        let queued = chance.dice.percent(QUEUED);
        let arguments = json!({
            "target": target, "message": format!("{key} says {}", World::name(number)),
            "requires_response": wants_answer, "queue_if_down": queued,
        });
        let outcome = outcome(world.send(session, "send_message", arguments).await);
        let counts = matches!(outcome, Outcome::Accepted(_) | Outcome::Queued);
        world.record.add(Event::Sent {
            key,
            outcome,
            answers: None,
        });
        if counts {
            world.one_more_is_sent();
        }
    }
}

/// Waits for messages one after another, and answers, acknowledges or ignores each.
async fn receive(world: &World, name: &str, session: &Session, chance: &mut Numbered) {
    while !session.is_dead() {
        let over = world.over.is_cancelled();
        let timeout = if over { 1 } else { 1 + chance.dice.below(4) };
        match session
            .call("wait_for_message", json!({"timeout": timeout}))
            .await
        {
            Answer::Gone => return,
            Answer::Refused(_) => sleep(AGAIN).await,
            Answer::Reply(reply) if reply["timeout"] == true => {
                if over {
                    return;
                }
            }
            Answer::Reply(message) => {
                session.shown(&message);
                deal_with(world, name, session, &message, chance).await;
            }
        }
    }
}

async fn deal_with(
    world: &World,
    name: &str,
    session: &Session,
    message: &Value,
    chance: &mut Numbered,
) {
    let (answers, acknowledges, queued) = (
        chance.dice.percent(50),
        chance.dice.percent(50),
        chance.dice.percent(QUEUED),
    );
    let (Some(id), Some(sender)) = (message["id"].as_str(), message["from_agent"].as_str()) else {
        return;
    };
    if message["requires_response"] == true && answers && !world.calm.is_cancelled() {
        let key = chance.key(format!("{name}>{sender}/reply"));
        let response = format!("{key} says {name}");
        let arguments = json!({"message_id": id, "response": response, "queue_if_down": queued});
        let outcome = outcome(world.send(session, "reply", arguments).await);
        world.record.add(Event::Sent {
            key,
            outcome,
            answers: Some(id.to_owned()),
        });
    } else if acknowledges {
        // If that fails, the message stays in the inbox and is shown to the next session.
        session
            .call("ack_messages", json!({"message_ids": [id]}))
            .await;
    }
}

/// Returns the outcome of a send, as its answer shows it.
fn outcome(answer: Answer) -> Outcome {
    match answer {
        Answer::Gone => Outcome::Unknown,
        Answer::Reply(reply) if reply["receipt"]["stage"] == "queued_on_host" => Outcome::Queued,
        Answer::Reply(reply) => match reply["id"].as_str() {
            Some(id) => Outcome::Accepted(id.to_owned()),
            None => Outcome::Unknown,
        },
        Answer::Refused(refusal) => match (
            refusal["code"].as_str(),
            refusal["details"]["applied"].as_str(),
        ) {
            (_, Some("no")) => Outcome::Refused,
            (Some("STORE_UNAVAILABLE" | "INTERNAL" | "INTERRUPTED" | "COORD_DOWN"), _)
            | (_, Some(_)) => Outcome::Unknown,
            _ => Outcome::Refused,
        },
    }
}
