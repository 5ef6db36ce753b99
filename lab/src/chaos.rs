//! `lab chaos`: many agents exchange messages while all parts are killed at random; then no message may be lost.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::{Args, ValueEnum};
use harness::inquiry::{self, Inquiry};
use harness::ntfy::Ntfy;
use harness::storm::{self, Aftermath, Storm};
use serde_json::json;

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many messages are to be accepted
    #[arg(long, default_value_t = 10_000)]
    messages: usize,
    /// How many agents send them to each other
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(2..))]
    agents: u64,
    /// The seed of all chance [default: the time, and it is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// The store of the coordinators
    #[arg(long, value_enum, default_values_t = [Store::Redis, Store::Sqlite])]
    store: Vec<Store>,
    /// How long an agent pauses at the most between two sends, in milliseconds
    #[arg(long, default_value_t = 600)]
    pace: u64,
    /// How many questions to people are to be accepted
    #[arg(long, default_value_t = 200)]
    questions: usize,
    /// Print JSON, one line for each store
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    /// Two coordinators on one Redis
    Redis,
    /// Two coordinators on three Redis servers that share the keys
    Cluster,
    /// One coordinator
    Sqlite,
}

impl From<Store> for storm::Store {
    fn from(store: Store) -> Self {
        match store {
            Store::Redis => Self::Redis,
            Store::Cluster => Self::Cluster,
            Store::Sqlite => Self::Sqlite,
        }
    }
}

/// Fails if a message was lost, repeated or out of order, a receipt was false, or scripts took too long.
pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let mut clean = true;
    for store in &options.store {
        let storm = Storm {
            messages: options.messages,
            agents: usize::try_from(options.agents)?,
            seed: options.seed.unwrap_or(now),
            store: (*store).into(),
            pace: Duration::from_millis(options.pace),
        };
        eprintln!(
            "{store:?}: {} messages, {} agents, --seed {}",
            storm.messages, storm.agents, storm.seed
        );
        let seed = storm.seed;
        let aftermath = storm::run(storm, |line| eprintln!("{store:?}: {line}")).await?;
        clean &= aftermath.report.findings.is_empty() && aftermath.scripts.are_short();
        tell(*store, seed, &aftermath, options.json);
    }
    if options.questions > 0 {
        clean &= ask(options, options.seed.unwrap_or(now)).await?;
    }
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the inquiry. Returns whether nothing was found.
async fn ask(options: &Options, seed: u64) -> Result<bool> {
    eprintln!("{} questions to people, --seed {seed}", options.questions);
    let inquiry = Inquiry {
        questions: options.questions,
        agents: 4,
        seed,
    };
    let answers = inquiry::run(inquiry, Ntfy::start().await?).await?;
    if options.json {
        let summary = json!({"questions": answers.questions, "seed": seed, "answers": {"rest": answers.answers[0],
            "phone": answers.answers[1]}, "kills": {"coordinators": answers.kills[0], "store": answers.kills[1],
            "proxies": answers.kills[2], "ntfy": answers.kills[3]}, "findings": answers.findings});
        println!("{summary}");
    } else {
        println!("seed {seed}: {answers:#?}");
    }
    Ok(answers.findings.is_empty())
}

fn tell(store: Store, seed: u64, aftermath: &Aftermath, as_json: bool) {
    let Aftermath {
        report,
        kills,
        scripts,
        took,
        logs,
    } = aftermath;
    if let Some(logs) = logs {
        eprintln!(
            "{store:?}: the logs are in {}; again with --seed {seed}",
            logs.display()
        );
    }
    if as_json {
        let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        let summary = json!({
            "store": format!("{store:?}").to_lowercase(), "seed": seed, "seconds": took.as_secs_f64(),
            "kills": {"coordinators": kills[0], "store": kills[1], "proxies": kills[2], "links": kills[3]},
            "sends": report.sends, "accepted": report.accepted, "queued": report.queued, "refused": report.refused,
            "scripts": {"calls": scripts.calls, "over_2_ms": scripts.slow}, "unknown": report.unknown, "shown": report.shown, "repeated": report.repeated,
            "findings": findings,
        });
        println!("{summary}");
    } else {
        println!(
            "{store:?}, seed {seed}, {:.1} s: {report}",
            took.as_secs_f64()
        );
        println!(
            "  {} scripts, {} of them longer than 2 ms; at most one in a hundred may be",
            scripts.calls, scripts.slow
        );
    }
}
