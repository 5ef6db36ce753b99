//! `c3po tail`: the unread messages, then new ones as they come, until Ctrl-C.

use super::failure::Failure;
use super::print::Printer;
use super::session::CommandSession;
use crate::config::Config;
use crate::link::State;
use c3po_shared::text::harmless;

pub(super) async fn run(config: Config, printer: &Printer) -> Result<(), Failure> {
    CommandSession::with(config, true, async |session| {
        until_ended(session, follow(session, printer)).await
    })
    .await
}

/// Does work that goes on until Ctrl-C, or until the coordinator refuses the link for good.
pub(super) async fn until_ended(
    session: &CommandSession,
    work: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    tokio::select! {
        ended = work => ended,
        refused = say_changes(session) => Err(refused),
        pressed = tokio::signal::ctrl_c() => {
            pressed.map_err(|error| Failure::Usage(format!("cannot listen for Ctrl-C: {error}")))
        }
    }
}

async fn follow(session: &CommandSession, printer: &Printer) -> Result<(), Failure> {
    loop {
        let messages = session.inbox.take().await;
        for message in messages {
            if printer.json {
                printer.document(&message)
            } else {
                printer.message(&message)
            }?;
            session.shown(vec![message.id]);
        }
    }
}

/// Reports on standard error when the coordinator goes and comes back. Returns a permanent refusal, such as that of a
/// revoked key.
async fn say_changes(session: &CommandSession) -> Failure {
    let mut changes = session.changes();
    let mut was_up = true;
    loop {
        let now = changes.borrow_and_update().clone();
        let is_up = now.state == State::Connected;
        if let Some(refusal) = now.refusal {
            return refusal.into();
        }
        if was_up && !is_up {
            let why = now.last_error.as_deref().unwrap_or("the connection ended");
            eprintln!(
                "c3po: the coordinator is unreachable ({}); retrying",
                harmless(why, false)
            );
        } else if is_up && !was_up {
            eprintln!("c3po: connected to the coordinator again");
        }
        was_up = is_up;
        if changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
