//! `c3po reply`: answers a message.

use c3po_shared::catalogue::{Call, ReplyTo, Sent};
use c3po_shared::ids::MessageId;
use c3po_shared::vocabulary::ReplyStatus;

use super::failure::Failure;
use super::print::Printer;
use super::session::Session;
use crate::config::Config;

/// What is answered, and how.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The message's id
    id: MessageId,
    /// The answer; - reads it from standard input
    text: String,
    /// Say that the request was not met
    #[arg(long)]
    error: bool,
}

pub(super) async fn run(config: Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let reply = Call::Reply(ReplyTo {
        message_id: arguments.id,
        response: super::text(arguments.text)?,
        status: arguments.error.then_some(ReplyStatus::Error),
        requires_response: None,
        queue_if_down: None,
    });
    let (sent, raw) = Session::with(config, false, async |session| session.call::<Sent>(reply).await).await?;
    if printer.json {
        return printer.document(&raw);
    }
    printer.line(&format!("{}  {}", sent.message.id, sent.receipt.stage))
}
