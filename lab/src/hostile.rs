//! `lab hostile`: real sessions of Claude Code whose users act at random; no message may be lost, no receipt may be false.

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use harness::claude::ClaudeCode;
use harness::hostile::{Action, Aftermath, Day, run};
use serde_json::json;

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// For how many minutes persons act and messages come
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
    /// How many sessions there are
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=20))]
    sessions: u8,
    /// The seed of all chance [default: the time, and it is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// The only actions of persons, such as `type,rest,escape`
    #[arg(long, value_delimiter = ',')]
    only: Vec<Action>,
    /// Actions that persons leave out
    #[arg(long, value_delimiter = ',')]
    without: Vec<Action>,
    /// Keep logs and transcripts where nothing was found, too
    #[arg(long)]
    keep: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    fn actions(&self) -> Vec<Action> {
        let chosen = if self.only.is_empty() {
            Action::all()
        } else {
            self.only.clone()
        };
        chosen
            .into_iter()
            .filter(|action| !self.without.contains(action))
            .collect()
    }
}

/// Fails if a message was lost or left over, was repeated in a context without a mark, or a receipt was false.
pub(crate) async fn run_day(options: &Options) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let actions = options.actions();
    ensure!(!actions.is_empty(), "no action is left");
    let day = Day {
        time: Duration::try_from_secs_f64(options.minutes * 60.0)?,
        sessions: options.sessions.into(),
        seed: options.seed.unwrap_or(now),
        actions,
        keeps: options.keep,
    };
    let seed = day.seed;
    let names: Vec<_> = day.actions.iter().map(ToString::to_string).collect();
    eprintln!(
        "{} sessions, {:?}, --seed {seed}; actions: {}",
        day.sessions,
        day.time,
        names.join(", ")
    );
    let claude = ClaudeCode::find()?;
    // All started processes end with it, also after Ctrl-C.
    let aftermath = tokio::select! {
        aftermath = run(&claude, day) => aftermath?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.context("listening for an interruption")?;
            bail!("interrupted");
        }
    };
    tell(seed, &aftermath, options.json);
    Ok(if aftermath.report.findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn tell(seed: u64, aftermath: &Aftermath, as_json: bool) {
    let Aftermath { report, took, kept } = aftermath;
    if let Some(kept) = kept {
        eprintln!(
            "findings.txt, logs and transcripts are in {}; again with --seed {seed}",
            kept.display()
        );
    }
    if as_json {
        let findings: Vec<_> = report.findings.iter().map(ToString::to_string).collect();
        let [answered, failed, cut_off] = report.requests;
        let summary = json!({
            "seed": seed, "seconds": took.as_secs_f64(), "questions": report.questions, "news": report.news,
            "requests": {"answered": answered, "failed": failed, "cut_off": cut_off}, "actions": report.deeds,
            "repeated": report.repeated, "most_copies": report.most,
            "longest_wait_seconds": report.longest.as_secs_f64(), "findings": findings,
        });
        println!("{summary}");
    } else {
        println!("seed {seed}, {:.1} s: {report}", took.as_secs_f64());
    }
}
