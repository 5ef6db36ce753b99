//! What c3po costs, beside what the same work costs at the least on the same machine in the same run.
//!
//! Every figure is a median of many rounds. A floor is measured right before the figure that stands on it, so that
//! their ratio holds on a noisy machine where neither would alone.

#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

mod chain;
mod claude_floor;
mod echo;
mod floors;
mod hooks;
mod isolation;
mod load;
mod measure;
mod product;
mod rates;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

use crate::report::Report;

/// The argument that leaves everything out but what is measured with the real Claude Code.
const ONLY_CLAUDE: &str = "claude";
/// The argument that leaves everything out but many agents at once.
const ONLY_LOAD: &str = "load";
/// The argument that leaves everything out but sends per second.
const ONLY_RATES: &str = "rates";
/// The argument that leaves everything out but those who behave badly, and the others.
const ONLY_ISOLATION: &str = "isolation";
/// The argument that leaves everything out but the hooks.
const ONLY_HOOKS: &str = "hooks";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [echo::ARGUMENT] => return echo::run(),
        [chain::RELAY, hub] => return chain::relay(hub),
        [chain::HUB, redis] => return chain::hub(redis),
        [rates::ECHO] => return rates::echo(None),
        [rates::ECHO, redis] => return rates::echo(Some(redis)),
        [isolation::ROUGH, name, address] => return isolation::rough(name, address),
        // Cargo passes arguments of its own.
        _ => {}
    }
    let only = |what: &str| arguments.iter().any(|argument| argument == what);
    let take = match () {
        () if only(ONLY_CLAUDE) => claude_floor::all,
        () if only(ONLY_HOOKS) => hooks::all,
        () if only(ONLY_RATES) => rates::all,
        () if only(ONLY_LOAD) => many_agents,
        () if only(ONLY_ISOLATION) => isolation::all,
        () => everything,
    };
    match run(take) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            println!("\nNot every goal was met in this run.");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("the figures could not be taken: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether every goal was met.
fn run(take: fn(&Runtime, &mut Report) -> Result<()>) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut report = Report::default();
    take(&runtime, &mut report)?;
    let file = output_file()?;
    std::fs::write(&file, report.json()).with_context(|| file.display().to_string())?;
    println!("\nwritten to {}", file.display());
    Ok(report.all_goals_met())
}

fn everything(runtime: &Runtime, report: &mut Report) -> Result<()> {
    println!("floors");
    let floors = floors::all(runtime, report)?;
    println!("\nfigures");
    product::all(runtime, &floors, report)?;
    many_agents(runtime, report)?;
    println!("\nhooks");
    hooks::all(runtime, report)?;
    println!("\nthe last hop");
    claude_floor::all(runtime, report)
}

fn many_agents(runtime: &Runtime, report: &mut Report) -> Result<()> {
    println!("\nsends per second");
    rates::all(runtime, report)?;
    println!("\nmany agents");
    load::all(runtime, report)?;
    println!("\nothers, while somebody behaves badly");
    isolation::all(runtime, report)
}

/// Beside the build, where nothing is kept that matters.
fn output_file() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.ancestors().nth(3).context("the program is not in a target folder")?;
    Ok(folder.join("figures.json"))
}
