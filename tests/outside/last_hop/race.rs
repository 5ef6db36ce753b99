//! The race for a decision: a person at the terminal and people elsewhere decide about the same request within half a second,
//! by a seed. One decision takes effect, and every receipt agrees with what the session did.
//!
//! `C3PO_RACE_SECONDS` and `C3PO_RACE_SEED` set the length and the seed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use harness::dice::Dice;
use harness::eventually::eventually;
use harness::fake_api::{Block, Script};
use harness::person::Person;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::relay::{Relayed, id};
use super::scene::SOON;

/// How long the test lasts unless the environment sets more.
const SECONDS: u64 = 45;
/// The delay between two decisions, in milliseconds.
const APART: u64 = 500;
/// A letter that follows Esc sooner is taken for Alt and that letter.
const AFTER_ESCAPE: Duration = Duration::from_millis(300);
/// How long a client may take to use a verdict; then the receipt cannot reach `taken` any more.
const TAKEN_WITHIN: Duration = Duration::from_secs(11);

/// One decision in a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Yes,
    Escape,
    Allow,
    Deny,
}

impl Deed {
    const ALL: [Self; 4] = [Self::Yes, Self::Escape, Self::Allow, Self::Deny];

    fn is_at_the_terminal(self) -> bool {
        matches!(self, Self::Yes | Self::Escape)
    }

    fn allows(self) -> bool {
        matches!(self, Self::Yes | Self::Allow)
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// A model that writes the file which the prompt names.
fn script() -> Script {
    let said = |asked: &harness::fake_api::Asked| {
        let text = asked.last_user_text();
        let name = text.rsplit("write file-").next()?;
        let digits: String = name.chars().take_while(char::is_ascii_digit).collect();
        (text.contains("write file-") && !digits.is_empty()).then(|| format!("file-{digits}"))
    };
    Script::new().when("write file-", move |asked| {
        let name = said(asked).unwrap_or_default();
        vec![Block::call(
            "Write",
            json!({"file_path": name, "content": "x"}),
        )]
    })
}

/// Makes one decision. Returns the status of a verdict.
async fn decide(
    relayed: &Relayed,
    person: &Person,
    question: &Value,
    deed: Deed,
    after: Duration,
) -> Result<Option<u16>> {
    sleep(after).await;
    let decision = match deed {
        Deed::Yes => return relayed.session.key("Enter").await.map(|()| None),
        Deed::Escape => {
            relayed.session.key("Escape").await?;
            sleep(AFTER_ESCAPE).await;
            return Ok(None);
        }
        Deed::Allow => "allow",
        Deed::Deny => "deny",
    };
    let (status, answer) = person.decide(question, decision, &json!({})).await?;
    ensure!([201, 409, 410].contains(&status), "{answer}");
    Ok(Some(status))
}

/// One race.
async fn race(relayed: &Relayed, bob: &Person, dice: &mut Dice, number: u64) -> Result<()> {
    let name = format!("file-{number}");
    let question = relayed.asks(&name).await?;
    // A dialog ignores keys in its first moments.
    sleep(dice.millis(0, 2 * APART)).await;
    let mut deeds = [(); 2].map(|()| Deed::ALL[dice.below(Deed::ALL.len())]);
    if deeds == [Deed::Escape; 2] {
        // Twice at the prompt, that key goes back in the conversation.
        deeds[1] = Deed::Allow;
    }
    let first = decide(relayed, &relayed.ann, &question, deeds[0], Duration::ZERO);
    let second = decide(relayed, bob, &question, deeds[1], dice.millis(0, APART));
    let (first, second) = tokio::join!(first, second);
    let statuses = [first?, second?];
    let accepted: Vec<Deed> = deeds
        .into_iter()
        .zip(statuses)
        .filter_map(|(deed, status)| (status == Some(201)).then_some(deed))
        .collect();
    ensure!(accepted.len() <= 1, "{deeds:?}: two verdicts were accepted");
    let keyed = deeds.iter().any(|deed| deed.is_at_the_terminal());
    if accepted.is_empty() && !keyed {
        anyhow::bail!("{deeds:?}: no verdict was accepted and no key was pressed: {statuses:?}");
    }
    let stages = settled(relayed, &question, accepted.first().copied()).await?;
    let checked = check(relayed, &name, accepted.first().copied(), keyed, &stages);
    checked.with_context(|| format!("{deeds:?} {statuses:?} {stages:?}"))
}

/// Waits until nothing about the question changes any more, closing its dialog if it is still open. Returns its stages.
async fn settled(
    relayed: &Relayed,
    question: &Value,
    accepted: Option<Deed>,
) -> Result<Vec<String>> {
    let began = Instant::now();
    eventually("the session is idle", SOON, async || {
        if relayed.is_asking().await.ok()? {
            // No verdict was first, and the keys came too early.
            if began.elapsed() > Duration::from_secs(2) {
                relayed.session.key("Enter").await.ok()?;
            }
            return None;
        }
        relayed.is_idle().await.ok()?.then_some(())
    })
    .await?;
    let answered = Instant::now();
    eventually("the receipt", SOON, async || {
        let stages = relayed.ann.stages(id(question)).await.ok()?;
        let has = |word: &str| stages.iter().any(|step| step.starts_with(word));
        let is_over = match accepted {
            None => has("withdrawn"),
            Some(_) => has("applied") || answered.elapsed() > TAKEN_WITHIN,
        };
        is_over.then_some(stages)
    })
    .await
}

/// Checks that the receipt agrees with what the session did.
fn check(
    relayed: &Relayed,
    name: &str,
    accepted: Option<Deed>,
    keyed: bool,
    stages: &[String],
) -> Result<()> {
    let has = |word: &str| stages.iter().any(|step| step.starts_with(word));
    let is_written = relayed.file(name).exists();
    match accepted {
        Some(deed) => {
            ensure!(
                has("answered") && !has("withdrawn"),
                "an accepted verdict is the answer"
            );
            ensure!(
                has("taken") || keyed,
                "nothing but the verdict decided, and it was not taken"
            );
            ensure!(has("applied") || !has("taken"), "what was taken is applied");
            ensure!(
                !has("taken") || is_written == deed.allows(),
                "written: {is_written}"
            );
        }
        None => ensure!(
            has("withdrawn terminal") && !has("taken") && !has("answered"),
            "the terminal decided"
        ),
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_decision_takes_effect_and_every_receipt_agrees() -> Result<()> {
    let seed = setting("C3PO_RACE_SEED", 1);
    let Some(relayed) = Relayed::start("the race for a decision", script(), &[]).await? else {
        return Ok(());
    };
    let work = relayed.scene.work();
    let bob = Person::log_in(work, &relayed.scene.coordinator, "bob", "person").await?;
    let until = Instant::now() + Duration::from_secs(setting("C3PO_RACE_SECONDS", SECONDS));
    let (mut dice, mut number) = (Dice::new(seed), 0);
    while Instant::now() < until {
        number += 1;
        let raced = race(&relayed, &bob, &mut dice, number).await;
        raced.with_context(|| format!("race {number} of C3PO_RACE_SEED={seed}"))?;
    }
    ensure!(number > 3, "only {number} races");
    Ok(())
}
