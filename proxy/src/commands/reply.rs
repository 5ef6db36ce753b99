//! `c3po reply`: answers a message.

use c3po_shared::catalogue::{Call, ReplyTo, Sent};
use c3po_shared::ids::MessageId;
use c3po_shared::vocabulary::ReplyStatus;

use super::failure::Failure;
use super::inbox::every_message;
use super::message_id::Typed;
use super::print::Printer;
use super::questions;
use super::session::CommandSession;
use crate::config::Config;

/// The message and its answer.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The message's id, or the end of it
    id: Typed,
    /// The answer; - reads it from standard input
    text: String,
    /// Mark the answer as an error: the request was not fulfilled
    #[arg(long)]
    error: bool,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let Arguments { id, text, error } = arguments;
    let response = super::text(text)?;
    let message_id = match id {
        Typed::Whole(id) if !questions::can_ask(printer) => id,
        id => meant(&config, id, printer).await?,
    };
    let (sent, raw) = CommandSession::with(config, false, async |session| {
        let status = error.then_some(ReplyStatus::Error);
        let reply = ReplyTo {
            message_id,
            response,
            status,
            requires_response: None,
            queue_if_down: None,
        };
        session.call::<Sent>(Call::Reply(reply)).await
    })
    .await?;
    if printer.json {
        return printer.document(&raw);
    }
    printer.line(&format!("{}  {}", sent.message.id, sent.receipt.stage))
}

/// Returns the id of the message that is meant, if its person confirms it. A message that is not in the inbox any more was not
/// replaced by another one.
async fn meant(config: &Config, typed: Typed, printer: &Printer) -> Result<MessageId, Failure> {
    let waiting = CommandSession::with(config.clone(), false, every_message).await?;
    let is_whole = matches!(typed, Typed::Whole(_));
    if let Typed::Whole(id) = &typed
        && !waiting.iter().any(|message| message.id == *id)
    {
        return Ok(id.clone());
    }
    let message = typed.only(waiting)?;
    if questions::is_meant(&message, is_whole, printer)? {
        Ok(message.id)
    } else {
        Err(Failure::No)
    }
}
