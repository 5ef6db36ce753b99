//! The running sessions of this host, as their proxies report them.

use std::io::ErrorKind;
use std::time::Duration;

use super::report::Report;
use crate::commands::failure::Failure;
use crate::config::Config;
use crate::link::State;
use crate::local::protocol::{Event, Name, Status};
use crate::local::{self, Rendezvous};

/// How long a proxy may take to answer. It answers from memory.
const ANSWER_MAX: Duration = Duration::from_millis(500);

pub(super) fn examine(config: &Config, report: &mut Report<'_>) -> Result<(), Failure> {
    let sessions = local::places(&config.sockets);
    let mut silent = 0;
    for places in &sessions {
        let place = &places[0];
        let client = place.client();
        let paths: Vec<_> = places.iter().map(Rendezvous::path).collect();
        match local::ask(&paths, Event::new(Name::Status), ANSWER_MAX).map(|answer| answer.status) {
            Ok(Some(status)) => tell(client, &status, report)?,
            Ok(None) => report.warn(
                "session",
                format!("process {client}: its proxy does not report its status"),
                UPDATE,
            )?,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && is_left_over(place) => {
                silent += 1
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                let found = format!("process {client}: its proxy has ended");
                report.warn(
                    "session",
                    found,
                    "In that session, type /mcp and reconnect c3po, or restart the session.",
                )?;
            }
            Err(error) => {
                let found = format!("process {client}: its proxy does not answer: {error}");
                report.fail(
                    "session",
                    found,
                    "In that session, type /mcp and reconnect c3po, or restart the session.",
                )?;
            }
        }
    }
    if sessions.len() == silent {
        report.ok("sessions", "none is running on this host")?;
    }
    Ok(())
}

const UPDATE: &str = "Restart that session: its proxy has another version.";

/// Returns whether the socket's session is over. The next session removes such a socket.
fn is_left_over(place: &Rendezvous) -> bool {
    place.is_orphaned()
}

fn tell(client: u32, status: &Status, report: &mut Report<'_>) -> Result<(), Failure> {
    let reach: Vec<_> = status.reach.iter().map(|via| via.as_str()).collect();
    let reach = if reach.is_empty() {
        "nothing yet".to_owned()
    } else {
        reach.join(", ")
    };
    let mut found = format!(
        "{} (process {client}): {}, {}, {} unread; reached by {reach}",
        status.agent_id,
        status.link.as_str(),
        status.state,
        status.unread
    );
    if let Some(error) = &status.last_error {
        found += &format!("; last error: {error}");
    }
    let ours = env!("CARGO_PKG_VERSION");
    if status.version != ours {
        return report.warn(
            "session",
            format!(
                "{found}; its proxy is version {}, this is {ours}",
                status.version
            ),
            UPDATE,
        );
    }
    match status.link {
        State::Connected | State::Disconnected => report.ok("session", found),
        State::Failed => report.fail(
            "session",
            found,
            "Fix the cause of the error. The session retries when config.toml changes, and every minute.",
        ),
        State::Connecting | State::Reconnecting => {
            report.warn("session", found, "It keeps retrying; see the check of the coordinator below.")
        }
    }
}
