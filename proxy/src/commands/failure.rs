//! The failures of commands, and how each is reported.

use std::io;
use std::process::ExitCode;

use c3po_shared::refusal::{ErrorCode, Refusal};
use c3po_shared::text::{harmless, harmless_json};

use super::words;

/// The failures of a command.
#[derive(Debug)]
pub(super) enum Failure {
    /// The coordinator or the catalogue refused it.
    Refused(Refusal),
    /// A problem on this host prevents it.
    Stopped {
        /// The cause.
        why: String,
        /// The next step.
        advice: String,
    },
    /// The command line or the configuration is invalid.
    Usage(String),
    /// No coordinator could be reached.
    NoCoordinator(Refusal),
    /// The answer is no, and was printed.
    No,
    /// Nothing came in time; the output was printed.
    TimedOut,
    /// Standard output is closed: its reader is gone.
    NobodyReads,
}

impl Failure {
    /// Returns the failure for output that cannot be written.
    pub(super) fn of_output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::NobodyReads;
        }
        let why = format!("cannot write the output: {error}");
        Self::Stopped {
            why,
            advice: "Redirect the output to another place and run this again.".to_owned(),
        }
    }

    /// Reports the failure and the next step on standard error, as JSON if requested; returns the exit code.
    pub(super) fn tell(self, json: bool) -> ExitCode {
        match self {
            Self::Refused(refusal) => {
                tell_refusal(&refusal, json);
                ExitCode::from(if refusal.code == ErrorCode::StoreUnavailable {
                    5
                } else {
                    1
                })
            }
            Self::Stopped { why, advice } => {
                eprintln!(
                    "c3po: {}\ntry: {}",
                    harmless(&why, true),
                    harmless(&advice, true)
                );
                ExitCode::from(1)
            }
            Self::Usage(why) => {
                eprintln!("c3po: {}", harmless(&why, true));
                ExitCode::from(2)
            }
            Self::NoCoordinator(refusal) => {
                tell_refusal(&refusal, json);
                ExitCode::from(3)
            }
            Self::No => ExitCode::from(1),
            Self::TimedOut => ExitCode::from(4),
            Self::NobodyReads => ExitCode::SUCCESS,
        }
    }
}

fn tell_refusal(refusal: &Refusal, json: bool) {
    if json {
        eprintln!(
            "{}",
            harmless_json(&serde_json::to_string(refusal).unwrap_or_default())
        );
    } else {
        // In one line each, because a line break in a text of the coordinator could imitate our output.
        let (error, next) = (
            harmless(&refusal.to_string(), false),
            harmless(&words::suggestion(refusal), false),
        );
        eprintln!("c3po: {error}\ntry: {next}");
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        if refusal.code == ErrorCode::CoordDown {
            Self::NoCoordinator(refusal)
        } else {
            Self::Refused(refusal)
        }
    }
}
