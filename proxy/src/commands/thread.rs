//! `c3po thread`: the conversation that a message belongs to.

use c3po_shared::catalogue::Thread;
use c3po_shared::ids::MessageId;
use serde_json::json;

use super::print::Printer;
use super::session::{Failure, Session};
use crate::config::Config;

/// Which conversation.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Any message of it
    id: MessageId,
}

pub(super) async fn run(config: Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let arguments = json!({"message_id": arguments.id});
    Session::with(config, false, async |session| {
        let (thread, raw) = session.call::<Thread>("get_thread", &arguments).await?;
        if printer.json {
            printer.document(&raw)?;
        } else {
            thread.messages.iter().try_for_each(|message| printer.message(message))?;
        }
        let you = session.standing().agent;
        let read = thread.messages.into_iter().filter(|message| message.to_agent == you);
        session.shown(read.map(|message| message.id).collect());
        Ok(())
    })
    .await
}
