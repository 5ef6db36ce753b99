//! `c3po guard`: lists pairs of agents that write much without a person, and allows or stops a pair.

use c3po_shared::guard::{GuardList, GuardRequest, GuardedPair, Standing};
use c3po_shared::ids::AgentId;
use c3po_shared::refusal::ErrorCode;
use clap::Subcommand;
use serde_json::json;

use super::completions;
use super::failure::Failure;
use super::print::{Printer, aligned};
use super::rest::{self, RestReply};
use crate::config::Config;

/// The actions on pairs of agents.
#[derive(Debug, Subcommand)]
pub(super) enum GuardAction {
    /// List the pairs that are stopped, or near the limit of messages without a person
    List,
    /// Allow two agents to continue; their count starts again
    Allow {
        /// One of them
        #[arg(add = completions::agents())]
        one: AgentId,
        /// The other one
        #[arg(add = completions::agents())]
        other: AgentId,
    },
    /// Refuse every message and reply between two agents until they are allowed
    Stop {
        /// One of them
        #[arg(add = completions::agents())]
        one: AgentId,
        /// The other one
        #[arg(add = completions::agents())]
        other: AgentId,
    },
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    action: GuardAction,
) -> Result<(), Failure> {
    let typed = match &action {
        GuardAction::List => "list".to_owned(),
        GuardAction::Allow { one, other } => format!("allow {one} {other}"),
        GuardAction::Stop { one, other } => format!("stop {one} {other}"),
    };
    perform(config, printer, action)
        .await
        .map_err(|failure| with_the_way(failure, &typed))
}

/// Adds the permitted way to a refusal: a coordinator that is open to its machine accepts rulings only there.
fn with_the_way(failure: Failure, typed: &str) -> Failure {
    let Failure::Refused(refusal) = failure else {
        return failure;
    };
    if refusal.code != ErrorCode::Forbidden {
        return Failure::Refused(refusal);
    }
    Failure::Refused(refusal.suggest(format!(
        "Run `c3po-coordinator guard {typed}` on the coordinator's machine, or join this host with the command that \
         `c3po-coordinator invite --scope admin` prints."
    )))
}

async fn perform(config: Config, printer: &Printer, action: GuardAction) -> Result<(), Failure> {
    match action {
        GuardAction::List => {
            let RestReply {
                read: list, raw, ..
            } = rest::get::<GuardList>(&config, "/api/guard", &json!({})).await?;
            if printer.json {
                return printer.document(&raw);
            }
            table(printer, &list)
                .iter()
                .try_for_each(|line| printer.line(line))
        }
        GuardAction::Allow { one, other } => {
            rule(&config, printer, "/api/guard/allow", [one, other]).await
        }
        GuardAction::Stop { one, other } => {
            rule(&config, printer, "/api/guard/stop", [one, other]).await
        }
    }
}

async fn rule(
    config: &Config,
    printer: &Printer,
    path: &str,
    agents: [AgentId; 2],
) -> Result<(), Failure> {
    let RestReply {
        read: pair, raw, ..
    } = rest::post::<GuardedPair>(config, path, &GuardRequest { agents }).await?;
    if printer.json {
        return printer.document(&raw);
    }
    let [one, other] = &pair.agents;
    printer.line(&match pair.standing {
        Standing::Stopped => {
            format!("Messages between {one} and {other} are refused until you allow them.")
        }
        Standing::Open | Standing::Suspected => {
            format!("{one} and {other} may continue; their count starts again.")
        }
    })
}

/// Returns the list as text.
fn table(printer: &Printer, list: &GuardList) -> Vec<String> {
    if list.pairs.is_empty() {
        return vec!["No pair of agents is stopped or near the limit.".to_owned()];
    }
    let limit = list
        .limit
        .map_or_else(|| "-".to_owned(), |limit| limit.to_string());
    let row = |pair: &GuardedPair| {
        let [one, other] = pair.agents.each_ref().map(AgentId::to_string);
        let since = pair
            .stopped_at
            .map(|at| format!("since {}", printer.moment(at)))
            .unwrap_or_default();
        vec![
            one,
            other,
            format!("{} of {limit}", pair.count),
            pair.standing.to_string(),
            since,
        ]
    };
    aligned(&list.pairs.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use c3po_shared::refusal::Refusal;
    use c3po_shared::time::Timestamp;

    #[test]
    fn a_list_shows_counts_and_since_when_a_pair_is_stopped() {
        let agents = |one: &str, other: &str| [one.parse().unwrap(), other.parse().unwrap()];
        let pair = |agents, standing, count| GuardedPair {
            agents,
            standing,
            count,
            stopped_at: None,
        };
        let mut list = GuardList {
            limit: Some(60),
            pairs: Vec::new(),
        };
        assert_eq!(
            table(&Printer::of_status_line(false, false), &list),
            ["No pair of agents is stopped or near the limit."]
        );
        let stopped = pair(agents("a", "web"), Standing::Stopped, 0);
        list.pairs = vec![
            pair(agents("api", "web"), Standing::Suspected, 60),
            pair(agents("api", "db"), Standing::Open, 31),
            GuardedPair {
                stopped_at: Some(Timestamp::from_millis(0)),
                ..stopped
            },
        ];
        assert_eq!(
            table(&Printer::of_status_line(false, false), &list),
            [
                "api  web  60 of 60  suspected",
                "api  db   31 of 60  open",
                "a    web  0 of 60   stopped    since 1970-01-01 00:00:00.000Z",
            ]
        );
    }

    #[test]
    fn a_key_that_may_not_rule_gets_the_command_that_may() {
        let refused = |code| with_the_way(Failure::Refused(Refusal::new(code, "no")), "allow a b");
        let Failure::Refused(refusal) = refused(ErrorCode::Forbidden) else {
            panic!("it stays a refusal")
        };
        assert!(
            refusal
                .suggestion
                .starts_with("Run `c3po-coordinator guard allow a b` on"),
            "{refusal:?}"
        );
        let Failure::Refused(other) = refused(ErrorCode::RateLimited) else {
            panic!("it stays a refusal")
        };
        assert_eq!(other.suggestion, ErrorCode::RateLimited.suggestion());
    }
}
