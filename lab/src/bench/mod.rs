//! `lab bench`: the cost of c3po, beside the least cost of the same work on the same machine in the same run.
//!
//! Every figure is a median of many rounds. A floor is measured right before the figure that stands on it, so that
//! their ratio holds on a noisy machine where neither would alone.

mod agents;
mod chain;
mod claude;
mod compare;
mod echo;
mod floors;
mod group_commit;
mod hooks;
mod measure;
mod others;
mod people;
mod processes;
mod report;
mod scripts;
mod send;
mod turns;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use tokio::runtime::Runtime;

use self::report::Report;

/// The options.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The sections to measure [default: all]
    #[arg(value_enum)]
    sections: Vec<Section>,
    /// Fewer rounds and shorter spans: enough to compare two builds, too few to quote
    #[arg(long)]
    quick: bool,
    /// A folder with another build of c3po and c3po-coordinator. Both are measured in turns, each by the `lab` beside
    /// it where there is one, and compared
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// How many times each build is measured with --programs
    #[arg(long, default_value_t = 3, requires = "programs")]
    rounds: usize,
    /// Print JSON, and write no file
    #[arg(long)]
    json: bool,
}

/// A section of the figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Section {
    /// Starting, resting, a ping, a delivery, each beside its floor
    Processes,
    /// Sends per second, and the cost of one send: scripts, commands, bytes, wake-ups
    Send,
    /// Up to 10,000 agents that wait
    Agents,
    /// The effect of badly behaved agents on others
    Others,
    /// Hooks, from start to end
    Hooks,
    /// Questions to people, verdicts, answers and pushes
    People,
    /// A text to an idle Claude Code, and the cost of its turns
    Claude,
}

/// A separate process that a section starts.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Every line back as it came
    Echo,
    /// Lines to frames and back
    Relay { hub: String },
    /// A script for each frame, which then goes to the other relays
    Hub { redis: String },
    /// Every frame back as it came, after a script if there is a Redis
    EchoFrames { redis: Option<String> },
    /// Behaves badly towards a coordinator
    Rough { name: String, address: SocketAddr },
}

/// Runs the part.
pub(crate) fn play(part: &Part) -> Result<ExitCode> {
    match part {
        Part::Echo => echo::run(),
        Part::Relay { hub } => chain::relay(hub),
        Part::Hub { redis } => chain::hub(redis),
        Part::EchoFrames { redis } => send::echo(redis.as_deref()),
        Part::Rough { name, address } => others::rough(name, *address),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command that runs a part, without its arguments.
fn part(name: &str) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["part", name]);
    Ok(command)
}

/// Measures the sections. Fails if scripts took too long; other missed goals are only reported.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if let Some(other) = &options.programs {
        compare::run(options, other)?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = crate::thread()?;
    let mut report = Report::new(options.quick, options.json);
    for section in Section::value_variants() {
        if options.sections.is_empty() || options.sections.contains(section) {
            report.heading(section.title());
            section.measure(&runtime, &mut report)?;
        }
    }
    if options.json {
        println!("{}", report.json());
    } else {
        let file = output_file()?;
        std::fs::write(&file, report.json()).with_context(|| file.display().to_string())?;
        println!("\nwritten to {}", file.display());
        if !report.all_goals_met() {
            println!("\nNot every goal was met in this run.");
        }
    }
    Ok(if report.has_failed() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

impl Section {
    fn title(self) -> &'static str {
        match self {
            Self::Processes => "processes, and floors",
            Self::Send => "sends per second",
            Self::Agents => "many agents",
            Self::Others => "others, while somebody behaves badly",
            Self::Hooks => "hooks",
            Self::People => "questions to people",
            Self::Claude => "the last hop",
        }
    }

    fn measure(self, runtime: &Runtime, report: &mut Report) -> Result<()> {
        match self {
            Self::Processes => {
                let floors = floors::all(runtime, report)?;
                processes::all(runtime, &floors, report)
            }
            Self::Send => send::all(runtime, report),
            Self::Agents => agents::all(runtime, report),
            Self::Others => others::all(runtime, report),
            Self::Hooks => hooks::all(runtime, report),
            Self::People => people::all(runtime, report),
            Self::Claude => claude::all(runtime, report),
        }
    }
}

/// Returns a path beside the build, where no important file is overwritten.
fn output_file() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program
        .ancestors()
        .nth(2)
        .context("the program is not in a target folder")?;
    Ok(folder.join("figures.json"))
}
