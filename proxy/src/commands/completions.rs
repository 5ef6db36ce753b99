//! `c3po completions`: the script by which a shell completes c3po's commands, options and ids of agents.
//!
//! The script calls this program for each completion, which includes the coordinator's list of agents.

use std::io::Write;
use std::time::Duration;

use c3po_shared::agent::AgentRecord;
use clap::CommandFactory;
use clap::builder::PossibleValuesParser;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::json;
use tokio::time::timeout;

use super::failure::Failure;
use super::{Cli, rest};
use crate::config::Config;

/// The variable by which the script names its shell.
const VARIABLE: &str = "C3PO_COMPLETE";
/// How long the coordinator may take to list its agents: a person waits at the prompt.
const LIST_MAX: Duration = Duration::from_secs(1);

/// The shell of the script.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_parser = PossibleValuesParser::new(Shells::builtins().names().collect::<Vec<_>>()))]
    shell: String,
}

/// Prints the script.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut script = Vec::new();
    if let Some(shell) = Shells::builtins().completer(&arguments.shell) {
        shell
            .write_registration(VARIABLE, "c3po", "c3po", "c3po", &mut script)
            .map_err(|error| Failure::of_output(&error))?;
    }
    std::io::stdout()
        .write_all(&script)
        .map_err(|error| Failure::of_output(&error))
}

/// Prints the completions and ends the process, if a completion script called it: with `--` first. No other command ends so,
/// whatever variables it inherits.
pub fn complete() {
    if std::env::args_os().nth(1).is_none_or(|first| first != "--") {
        return;
    }
    CompleteEnv::with_factory(Cli::command)
        .var(VARIABLE)
        .complete();
}

/// Completes an argument with the agent ids of the coordinator. Offers none if it does not answer in time.
pub(super) fn agents() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
        else {
            return Vec::new();
        };
        let config = Config::read();
        let (path, query) = ("/api/agents", json!({}));
        let listing = async {
            timeout(
                LIST_MAX,
                rest::get::<Vec<AgentRecord>>(&config, path, &query),
            )
            .await
        };
        let listed = runtime.block_on(listing).ok().and_then(Result::ok);
        runtime.shutdown_background();
        let agents = listed.map(|answer| answer.read).unwrap_or_default();
        agents
            .into_iter()
            .map(|agent| CompletionCandidate::new(agent.id.as_str()))
            .collect()
    })
}
