//! A hostile day for the last hop: real clients with a scripted model, and people who do anything, determined by a seed.
//!
//! [`run`] starts a coordinator, two senders and real sessions with the plugin. Each session has a person who types,
//! interrupts, clears, compacts, kills and leaves things open, while questions and news arrive. At the end every session
//! comes to rest, and the [`checker`] compares the requests of the models with the receipts.

mod action;
pub mod checker;
mod close;
mod deeds;
mod journal;
mod life;
mod model;
mod person;
mod reading;
mod screens;
mod seat;
mod sending;
mod story;
pub mod token;
mod watching;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::future::{join_all, try_join_all};
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use action::Action;
use checker::Report;
use person::Person;
use seat::{Beginning, Seat};
use world::World;

use crate::claude::ClaudeCode;
use crate::eventually::eventually;

/// How long a session may take to start.
const ARRIVAL: Duration = Duration::from_secs(60);
/// The longest time for which a person leaves a state unchanged.
const PATIENCE: Duration = Duration::from_secs(60);

/// The length and the difficulty of a day.
#[derive(Debug, Clone)]
pub struct Day {
    /// How long people act and messages arrive.
    pub time: Duration,
    /// The number of sessions.
    pub sessions: usize,
    /// The seed of the randomness.
    pub seed: u64,
    /// The allowed actions.
    pub actions: Vec<Action>,
    /// Whether the files are kept even if there are no findings.
    pub keeps: bool,
}

impl Day {
    /// Returns how long a person leaves a state unchanged: less on a short day, so that enough happens.
    fn patience(&self) -> Duration {
        (self.time / 12).clamp(Duration::from_secs(5), PATIENCE)
    }
}

/// The outcome of a day.
#[derive(Debug)]
pub struct Aftermath {
    /// The counts and findings.
    pub report: Report,
    /// The duration.
    pub took: Duration,
    /// The folder with the logs, transcripts and stories, if there are findings or it was to be kept.
    pub kept: Option<PathBuf>,
}

/// Runs the day.
///
/// Errors: a part could not be started, or could not be brought to rest, which is not a finding. The error names the folder.
pub async fn run(claude: &ClaudeCode, day: Day) -> Result<Aftermath> {
    let began = Instant::now();
    // A short name, because the path of a socket is limited to about 100 bytes.
    let work = tempfile::Builder::new()
        .prefix("c3po-day-")
        .tempdir()
        .context("making a folder")?;
    let world = Arc::new(World::start(claude, day, work.path()).await?);
    let lived = Box::pin(live(&world)).await;
    let record = world.journal.record();
    let report = checker::check(&record);
    let is_clean = lived.is_ok() && report.findings.is_empty() && !world.day.keeps;
    let kept = if is_clean { None } else { Some(work.keep()) };
    if let Some(folder) = &kept {
        story::write(
            folder,
            &record,
            &report,
            &world.journal.news(),
            &world.log(),
        )?;
    }
    lived.with_context(|| {
        format!(
            "the logs are in {}",
            kept.clone().unwrap_or_default().display()
        )
    })?;
    Ok(Aftermath {
        report,
        took: began.elapsed(),
        kept,
    })
}

async fn live(world: &Arc<World>) -> Result<()> {
    let mut persons = try_join_all((0..world.day.sessions).map(|seat| arrive(world, seat))).await?;
    let watches: Vec<_> = persons
        .iter()
        .map(|person| Arc::clone(&person.seat.watch))
        .collect();
    let over = CancellationToken::new();
    let day = async {
        let time = async {
            sleep(world.day.time).await;
            world.calm.cancel();
        };
        let sending =
            join_all((0..world.senders.len()).map(|which| sending::send_all(world, which)));
        let living = join_all(
            persons
                .iter_mut()
                .map(|person| Box::pin(life::live(person))),
        );
        let (lived, ..) = tokio::join!(living, sending, time);
        world.say("everybody is done");
        let closed = match lived.into_iter().collect::<Result<Vec<_>>>() {
            Ok(_) => close::close(world, &mut persons).await,
            Err(error) => Err(error),
        };
        over.cancel();
        closed
    };
    let (day, ()) = tokio::join!(day, watching::watch(&world.journal, &watches, &over));
    day
}

/// Starts a session, and waits until it can receive messages.
async fn arrive(world: &Arc<World>, number: checker::Seat) -> Result<Person> {
    let mut seat = Seat::make(world, number, Arc::clone(&world.journal)).await?;
    seat.start(Beginning::Anew).await?;
    let (sender, asked) = (&world.senders[0], json!({"agent_id": World::name(number)}));
    let there = eventually("a session", ARRIVAL, async || {
        sleep(Duration::from_millis(200)).await;
        let agent = sender.reply("get_agent_status", asked.clone()).await.ok()?;
        (agent["status"] == "online").then_some(())
    });
    there.await?;
    Ok(Person::new(seat, Arc::clone(world)))
}
