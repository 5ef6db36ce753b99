//! The race for a decision: a person at the terminal, people elsewhere, and the end of processes, within half a second, by a
//! seed. One decision takes effect, and every receipt agrees with what the session did.
//!
//! `C3PO_RACE_SECONDS` and `C3PO_RACE_SEED` set the length and the seed, `C3PO_RACE_STORE` the store, `C3PO_RACE_ONLY` the one kind
//! of requests. `C3PO_RACE_TABLE` runs the whole table, however long that takes.

mod arena;
mod check;
mod table;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use harness::dice::Dice;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::relay::id;
use super::scene::SOON;
use arena::{Arena, act, give, until};
use check::{Scenery, Story};
use table::{Column, Deed, trials};

/// How long the test lasts unless the environment sets more.
const SECONDS: u64 = 60;
/// The delay of each decision, in milliseconds.
const APART: u64 = 500;
/// How long a dialog is open before the decisions, in milliseconds: it ignores keys in its first moments.
const OPEN: u64 = 600;
/// The age of an old dialog.
const OLD: Duration = Duration::from_secs(30);
/// The time that an impatient client gives a hook, less half of what the decisions are apart.
const SHORT: Duration = Duration::from_millis(2_500);
/// How long a dialog stays open that nothing closed, before its person decides.
const LEFT_OPEN: Duration = Duration::from_secs(2);
/// How long a client may take to use a verdict; then the receipt cannot reach `taken` any more.
const TAKEN_WITHIN: Duration = Duration::from_secs(11);

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str, default: u64) -> u64 {
    let value = setting(name).and_then(|value| value.parse().ok());
    value.unwrap_or(default)
}

/// One race.
struct Race {
    deed: Deed,
    rival: Deed,
    column: Column,
    number: u64,
    /// The requests to the model before it.
    from: usize,
    scenery: Scenery,
    /// The questions that were seen, each with its part and its story.
    questions: Vec<(Value, u32, Story)>,
}

impl Race {
    /// Adds the questions that are open now.
    async fn look(&mut self, arena: &Arena) -> Result<usize> {
        let open = arena.relayed.ann.questions().await?;
        let mut count = 0;
        for (text, part) in self.column.questions(self.number).into_iter().zip(1..) {
            let is_it = |one: &&Value| {
                one["message"]
                    .as_str()
                    .is_some_and(|all| all.contains(&text))
            };
            let Some(question) = open.iter().find(is_it) else {
                continue;
            };
            count += 1;
            self.add(question.clone(), part);
        }
        Ok(count)
    }

    fn add(&mut self, question: Value, part: u32) {
        if !self
            .questions
            .iter()
            .any(|(known, ..)| id(known) == id(&question))
        {
            self.questions.push((question, part, Story::default()));
        }
    }

    /// Makes both decisions, each after a delay of its own.
    async fn decide(&mut self, arena: &mut Arena, dice: &mut Dice) -> Result<()> {
        let delays = [(); 2].map(|()| dice.millis(0, APART));
        let again = dice.millis(0, APART);
        let (deed, rival) = (self.deed, self.rival);
        let which = dice.below(self.questions.len());
        let question = &self.questions[which].0;
        let (mut first, mut second) = (dice.clone(), dice.clone());
        let (relayed, bob) = (&mut arena.relayed, &arena.bob);
        let (session, coordinator) = (&relayed.session, &mut relayed.scene.coordinator);
        let ann = &relayed.ann;
        let of_row = async {
            sleep(delays[0]).await;
            if deed == Deed::KillCoordinator {
                coordinator.kill().await?;
                sleep(again).await;
                coordinator.restart().await?;
            } else if deed.is_verdict() {
                return Ok(Some(give(ann, question, deed, &mut first).await));
            } else {
                act(session, deed).await?;
            }
            anyhow::Ok(None)
        };
        let of_rival = async {
            // A client's time-out comes by itself.
            sleep(delays[1] * if deed == Deed::TimeOut { 2 } else { 1 }).await;
            if rival.is_verdict() {
                return Ok(Some(give(bob, question, rival, &mut second).await));
            }
            act(session, rival).await?;
            anyhow::Ok(None)
        };
        let (one, other) = tokio::join!(of_row, of_rival);
        dice.throw();
        for (deed, outcome) in [(deed, one?), (rival, other?)] {
            match outcome {
                Some(status) => self.questions[which].2.verdicts.push((deed, status)),
                None => self.scenery.deeds.push(deed),
            }
        }
        Ok(())
    }

    /// Decides at the terminal, and elsewhere, about everything that is still open, until the session rests.
    async fn rest(&mut self, arena: &Arena, dice: &mut Dice) -> Result<()> {
        let (began, mut asks_since, mut rests_since) = (Instant::now(), None, None);
        let mut open = 0;
        while began.elapsed() < 2 * SOON {
            sleep(Duration::from_millis(100)).await;
            if arena.relayed.session.has_ended().await? {
                return Ok(());
            }
            open = self.look(arena).await?;
            let has_proxy = !self.scenery.deeds.contains(&Deed::KillProxy);
            if arena.is_asking().await? {
                rests_since = None;
                let since = *asks_since.get_or_insert_with(Instant::now);
                let waits_for_its_time = self.deed == Deed::TimeOut && open > 0;
                if since.elapsed() > LEFT_OPEN && !waits_for_its_time {
                    act(&arena.relayed.session, Deed::Yes).await?;
                    self.scenery.deeds.push(Deed::Yes);
                    asks_since = None;
                }
                continue;
            }
            asks_since = None;
            // A turn whose agent in the background waits for a decision goes on until then.
            let may_lack_a_dialog = open > 0 && self.column.may_lack_a_dialog();
            if !may_lack_a_dialog && !arena.relayed.is_idle().await? {
                rests_since = None;
                continue;
            }
            let since: &Instant = rests_since.get_or_insert_with(Instant::now);
            if open == 0 || !has_proxy {
                // A subagent may be about to ask.
                if since.elapsed() > Duration::from_millis(500) {
                    return Ok(());
                }
            } else if since.elapsed() > LEFT_OPEN && may_lack_a_dialog {
                self.decide_elsewhere(arena, dice).await?;
                rests_since = None;
            }
        }
        bail!(
            "it does not rest, idle: {}, open: {open}, {:?}:\n{}",
            arena.relayed.is_idle().await?,
            self.questions,
            arena.relayed.session.screen().await?
        )
    }

    /// Decides about the open requests of subagents in the background, which have no dialog.
    async fn decide_elsewhere(&mut self, arena: &Arena, dice: &mut Dice) -> Result<()> {
        let open = arena.relayed.ann.questions().await?;
        for (question, _, story) in &mut self.questions {
            if open.iter().any(|one| id(one) == id(question)) {
                let deed = [Deed::Allow, Deed::Deny][dice.below(2)];
                let status = give(&arena.relayed.ann, question, deed, dice).await;
                story.verdicts.push((deed, status));
            }
        }
        Ok(())
    }

    /// Waits until nothing about the questions changes any more, and completes their stories.
    async fn settle(&mut self, arena: &mut Arena) -> Result<()> {
        let is_killed = self.scenery.deeds.iter().any(|deed| deed.kills());
        if is_killed {
            arena.restart().await?;
        }
        let began = Instant::now();
        for (question, part, story) in &mut self.questions {
            let asked = id(question);
            if is_killed {
                let (late, _) = arena.bob.decide(question, "deny", &json!({})).await?;
                story.late = Some(late);
            }
            loop {
                story.stages = arena.relayed.ann.stages(asked).await?;
                let has = |word: &str| story.stages.iter().any(|step| step.starts_with(word));
                let is_late = began.elapsed() > TAKEN_WITHIN;
                if has("applied")
                    || has("withdrawn")
                    || is_killed
                    || (is_late && !has("taken"))
                    || began.elapsed() > SOON
                {
                    break;
                }
                sleep(Duration::from_millis(100)).await;
            }
            let reply = arena.relayed.ann.reply(asked).await?;
            let decision = reply["answer"]["verdict"]["decision"].as_str();
            story.stored = decision.map(|decision| decision == "allow");
            if !is_killed {
                let (late, _) = arena.bob.decide(question, "deny", &json!({})).await?;
                story.late = Some(late);
            }
            story.effects = arena
                .effects(self.column, self.number, *part, self.from)
                .await?;
            if self.column == Column::Choice {
                story.is_of_terminal = arena.has_chosen(self.number, self.from);
            }
        }
        Ok(())
    }

    fn judge(&self) -> Result<()> {
        ensure!(!self.questions.is_empty(), "no question");
        for (question, _, story) in &self.questions {
            let violations = story.violations(self.column, &self.scenery);
            ensure!(
                violations.is_empty(),
                "{violations:?} of {}: {story:?}",
                id(question)
            );
        }
        Ok(())
    }
}

async fn race(arena: &mut Arena, cell: (Deed, Column), number: u64, dice: &mut Dice) -> Result<()> {
    let (deed, column) = cell;
    let mut race = Race {
        deed,
        rival: deed.rival(dice),
        column,
        number,
        from: arena.relayed.scene.model.asked().len(),
        scenery: Scenery::default(),
        questions: Vec::new(),
    };
    let questions = arena.ask(column, number).await?;
    let asked = Instant::now();
    for (question, part) in questions.into_iter().zip(1..) {
        race.add(question, part);
    }
    match (column, deed) {
        (Column::Old, _) => until(asked, OLD).await,
        (_, Deed::TimeOut) => until(asked, SHORT).await,
        _ => sleep(dice.millis(0, OPEN)).await,
    }
    let about = format!("{deed:?} and {:?}", race.rival);
    let raced = async {
        race.decide(arena, dice).await?;
        race.rest(arena, dice).await?;
        race.settle(arena).await?;
        if column == Column::Plan {
            arena.set_mode("manual mode on").await?;
        }
        race.judge()
    };
    let raced = raced.await;
    raced.with_context(|| format!("{about} about {column:?}: {:?}", race.scenery.deeds))
}

#[tokio::test(flavor = "multi_thread")]
async fn one_decision_takes_effect_and_every_receipt_agrees() -> Result<()> {
    let seed = number("C3PO_RACE_SEED", 1);
    let is_embedded = setting("C3PO_RACE_STORE").as_deref() != Some("redis");
    let is_whole = setting("C3PO_RACE_TABLE").is_some();
    let Some(mut arena) = Arena::open(is_embedded).await? else {
        return Ok(());
    };
    let mut dice = Dice::new(seed);
    let cells = trials(&mut dice, is_embedded);
    // In a short run, few are about a dialog that is old before it begins.
    let cells = cells
        .into_iter()
        .filter(|(_, column)| is_whole || *column != Column::Old)
        .filter(|(_, column)| {
            setting("C3PO_RACE_ONLY").is_none_or(|only| format!("{column:?}") == only)
        });
    let (timed, others): (Vec<_>, Vec<_>) = cells.partition(|(deed, _)| *deed == Deed::TimeOut);
    let lasts = Duration::from_secs(number("C3PO_RACE_SECONDS", SECONDS));
    let (mut raced, mut broken) = (0, Vec::new());
    for (cells, lasts) in [(others, lasts * 3 / 4), (timed, lasts / 4)] {
        if cells.iter().any(|(deed, _)| *deed == Deed::TimeOut) {
            arena.lose_patience().await?;
        }
        let began = Instant::now();
        for cell in cells {
            if !is_whole && began.elapsed() > lasts {
                break;
            }
            raced += 1;
            eprintln!("race {raced}: {cell:?}");
            if let Err(why) = race(&mut arena, cell, raced, &mut dice).await {
                eprintln!("race {raced} of C3PO_RACE_SEED={seed}: {why:#}");
                broken.push(format!("race {raced}: {why:#}"));
                arena.restart().await?;
            }
        }
    }
    ensure!(
        broken.is_empty(),
        "C3PO_RACE_SEED={seed}:\n{}",
        broken.join("\n")
    );
    ensure!(raced > 3, "only {raced} races");
    Ok(())
}
