//! The kill test of questions to people: agents ask, people and a phone answer at random, and two coordinators, their Redis, the
//! proxies and the ntfy server are killed meanwhile, determined by a seed.

mod close;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::dice::Dice;
use crate::mcp::McpClient;
use crate::ntfy::Ntfy;
use world::World;

/// The pause between two kills of a coordinator, a Redis, a proxy and the ntfy server, in milliseconds.
const PAUSES: [(u64, u64); 4] = [
    (1_500, 4_000),
    (3_000, 6_000),
    (1_000, 4_000),
    (2_000, 6_000),
];
/// How long a killed one stays down, in milliseconds.
const AWAY: (u64, u64) = (0, 1_500);
/// The pause of an agent between two questions, and of a person between two answers, in milliseconds.
const ASKS: (u64, u64) = (0, 3_000);
const PACE: (u64, u64) = (0, 600);
/// How long a call may take that is answered at all: a proxy gives up after 30 s without a link.
const ANSWER: Duration = Duration::from_secs(60);

/// The length of an inquiry.
#[derive(Debug, Clone)]
pub struct Inquiry {
    /// The number of questions that must be accepted.
    pub questions: usize,
    /// The number of agents that ask them.
    pub agents: usize,
    /// The seed of the randomness.
    pub seed: u64,
}

/// The outcome of an inquiry.
#[derive(Debug, Default)]
pub struct Answers {
    /// Everything that must not be.
    pub findings: Vec<String>,
    /// The number of questions that were accepted.
    pub questions: usize,
    /// The number of answers that were accepted over REST, and of taps on the phone.
    pub answers: [usize; 2],
    /// The number of kills of coordinators, the store, proxies and the ntfy server.
    pub kills: [usize; 4],
}

/// The accepted answers of a question over REST: who gave it.
type Accepted = BTreeMap<String, Vec<String>>;

/// Runs the inquiry with a running ntfy server.
///
/// Errors: a part could not be started, which is not a finding.
pub async fn run(inquiry: Inquiry, ntfy: Ntfy) -> Result<Answers> {
    let world = World::start(inquiry.clone(), ntfy).await?;
    let asking = async {
        let agents = (0..inquiry.agents).map(|number| ask(&world, number));
        let asked = join_all(agents).await;
        world.calm.cancel();
        asked.into_iter().collect::<Result<Vec<_>>>()
    };
    let killing = async {
        tokio::join!(
            coordinators(&world),
            store(&world),
            proxies(&world),
            phone_server(&world)
        )
    };
    let people = async { tokio::join!(answer(&world, 0), answer(&world, 1), tap(&world)) };
    let (asked, kills, answers) = tokio::join!(asking, killing, people);
    let mut outcome = Answers {
        kills: kills.into(),
        ..Answers::default()
    };
    let mut accepted = answers.0;
    for (question, by) in answers.1 {
        accepted.entry(question).or_default().extend(by);
    }
    outcome.answers = [accepted.values().map(Vec::len).sum(), answers.2];
    close::check(&world, asked?, &accepted, &mut outcome).await?;
    Ok(outcome)
}

/// Asks the share of an agent, each question until it is accepted. Returns the ids.
async fn ask(world: &World, agent: usize) -> Result<Vec<String>> {
    let mut dice = Dice::of(world.inquiry.seed, 100 + u64::try_from(agent)?);
    let mut ids = Vec::new();
    let numbers =
        (0..world.inquiry.questions).filter(|number| number % world.inquiry.agents == agent);
    for number in numbers {
        sleep(dice.millis(ASKS.0, ASKS.1)).await;
        let arguments = json!({"question": format!("question {number}: which?"), "options": ["one", "two"], "wait": false});
        ids.push(world.ask(agent, arguments).await?);
    }
    Ok(ids)
}

/// Makes one call.
///
/// Errors: it was refused, or has no answer.
async fn call(client: &McpClient, tool: &str, arguments: Value) -> Result<Value> {
    let id = client.begin_call(tool, arguments).await?;
    let result = client.call_result(id, ANSWER).await?;
    ensure!(!result.is_error, "{}", result.text);
    result.json()
}

/// Answers open questions until the inquiry is calm. Returns the accepted answers.
async fn answer(world: &World, person: usize) -> Accepted {
    let mut dice = Dice::of(world.inquiry.seed, 10 + person as u64);
    let mut accepted = Accepted::new();
    while world.goes_on(dice.millis(PACE.0, PACE.1)).await {
        let at = &world.people[person][dice.below(2)];
        let Ok(open) = at.questions().await else {
            continue;
        };
        if open.is_empty() {
            continue;
        }
        // Both often choose the same one.
        let question = &open[dice.below(open.len().min(2))];
        let number = 1 + dice.below(2);
        let option = json!([{"options": [number.to_string()]}]);
        if let Ok((201, _)) = at.answer(question, &option).await {
            let id = question["id"].as_str().unwrap_or_default().to_owned();
            accepted
                .entry(id)
                .or_default()
                .push(world::PEOPLE[person].to_owned());
        }
    }
    accepted
}

/// Taps buttons on the phone until the inquiry is calm. Returns their number.
async fn tap(world: &World) -> usize {
    let mut dice = Dice::of(world.inquiry.seed, 20);
    let mut taps = 0;
    while world.goes_on(dice.millis(PACE.0, 2 * PACE.1)).await {
        let ntfy = world.ntfy.lock().await;
        let Ok(shown) = ntfy.shown().await else {
            continue;
        };
        let actions = shown.iter().filter_map(|push| push["actions"].as_array());
        let buttons: Vec<_> = actions
            .flatten()
            .filter(|action| action["action"] == "http")
            .collect();
        if !buttons.is_empty() && ntfy.tap(buttons[dice.below(buttons.len())]).await.is_ok() {
            taps += 1;
        }
    }
    taps
}

async fn coordinators(world: &World) -> usize {
    let mut dice = Dice::of(world.inquiry.seed, 1);
    let mut kills = 0;
    while world.goes_on(dice.millis(PAUSES[0].0, PAUSES[0].1)).await {
        let mut victim = world.coordinators[dice.below(2)].lock().await;
        // It is running: only this loop kills it, and restarts it.
        let _ = victim.kill().await;
        kills += 1;
        sleep(dice.millis(AWAY.0, AWAY.1)).await;
        while victim.restart().await.is_err() {}
    }
    kills
}

async fn store(world: &World) -> usize {
    let mut dice = Dice::of(world.inquiry.seed, 2);
    let mut kills = 0;
    while world.goes_on(dice.millis(PAUSES[1].0, PAUSES[1].1)).await {
        let mut redis = world.redis.lock().await;
        // It is running, and the system does not refuse to kill it.
        let _ = redis.kill();
        kills += 1;
        sleep(dice.millis(AWAY.0, AWAY.1)).await;
        while redis.restart().await.is_err() {}
    }
    kills
}

async fn proxies(world: &World) -> usize {
    let mut dice = Dice::of(world.inquiry.seed, 3);
    let mut kills = 0;
    while world.goes_on(dice.millis(PAUSES[2].0, PAUSES[2].1)).await {
        let client = world.seats[dice.below(world.inquiry.agents)]
            .lock()
            .await
            .clone();
        if let Some(client) = client {
            // It may have ended.
            let _ = client.signal("KILL").await;
            kills += 1;
        }
    }
    kills
}

async fn phone_server(world: &World) -> usize {
    let mut dice = Dice::of(world.inquiry.seed, 4);
    let mut kills = 0;
    while world.goes_on(dice.millis(PAUSES[3].0, PAUSES[3].1)).await {
        world.ntfy.lock().await.kill();
        kills += 1;
        sleep(dice.millis(AWAY.0, AWAY.1)).await;
        let mut ntfy = world.ntfy.lock().await;
        while ntfy.begin().await.is_err() {}
    }
    kills
}
