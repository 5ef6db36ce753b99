//! `c3po receipt`: how far a message got, with the evidence.

use c3po_shared::catalogue::{Call, MessageStatus, Tracked};
use c3po_shared::ids::MessageId;
use c3po_shared::receipt::Step;

use super::failure::Failure;
use super::print::{Printer, Tone, aligned, moment};
use super::session::Session;
use crate::config::Config;

/// Which message.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The message's id
    id: MessageId,
}

pub(super) async fn run(config: Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let call = Call::MessageStatus(MessageStatus { message_id: arguments.id });
    let (tracked, raw) = Session::with(config, false, async |session| session.call::<Tracked>(call).await).await?;
    if printer.json {
        return printer.document(&raw);
    }
    printer.line(&format!("{}  {}", tracked.message_id, printer.tinted(Tone::Strong, tracked.stage.as_str())))?;
    let rows: Vec<_> = tracked.history.iter().map(row).collect();
    aligned(&rows).iter().try_for_each(|line| printer.line(&format!("  {line}")))
}

fn row(step: &Step) -> Vec<String> {
    let via = step.via.map(|via| format!("via {via}")).unwrap_or_default();
    let session = step.session.as_ref().map(|session| format!("session {session}")).unwrap_or_default();
    let reply = step.reply_id.as_ref().map(MessageId::to_string).unwrap_or_default();
    vec![step.stage.to_string(), moment(step.at), via, session, reply]
}
