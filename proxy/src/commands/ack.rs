//! `c3po ack`: takes messages out of the inbox.

use c3po_shared::catalogue::{AckMessages, Acked, Call};
use c3po_shared::ids::MessageId;
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::failure::Failure;
use super::print::Printer;
use super::session::Session;
use crate::config::Config;

/// Which messages.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The messages' ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<MessageId>,
}

pub(super) async fn run(config: Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let call = Call::AckMessages(AckMessages { message_ids: arguments.ids });
    let (acked, raw) = Session::with(config, false, async |session| session.call::<Acked>(call).await).await?;
    if printer.json {
        printer.document(&raw)?;
    } else {
        acked.acked.iter().try_for_each(|id| printer.line(&format!("{id}  acknowledged")))?;
    }
    if acked.unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<_> = acked.unknown.iter().map(MessageId::as_str).collect();
    let error = format!("never in your inbox, or no longer kept: {}", unknown.join(", "));
    Err(Refusal::new(ErrorCode::MessageNotFound, error)
        .suggest("`c3po inbox` shows what is in it, with the ids.")
        .into())
}
