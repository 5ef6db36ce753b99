//! `c3po ack`: takes messages out of the inbox.

use c3po_shared::catalogue::Acked;
use c3po_shared::ids::MessageId;
use serde_json::json;

use super::print::Printer;
use super::session::{Failure, Session};
use crate::config::Config;

/// Which messages.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The messages' ids
    #[arg(required = true, value_name = "ID")]
    ids: Vec<MessageId>,
}

pub(super) async fn run(config: Config, printer: &Printer, arguments: Arguments) -> Result<(), Failure> {
    let arguments = json!({"message_ids": arguments.ids});
    let (acked, raw) =
        Session::with(config, false, async |session| session.call::<Acked>("ack_messages", &arguments).await).await?;
    if printer.json {
        return printer.document(&raw);
    }
    acked.acked.iter().try_for_each(|id| printer.line(&format!("{id}  acknowledged")))?;
    acked.unknown.iter().try_for_each(|id| printer.line(&format!("{id}  was never in your inbox")))
}
