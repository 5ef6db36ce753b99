//! `c3po broadcast`: sends a message that needs no answer to many agents.

use c3po_shared::catalogue::{Broadcast, Call};
use c3po_shared::vocabulary::Priority;

use super::failure::Failure;
use super::print::Printer;
use super::send::copies;
use super::session::CommandSession;
use crate::config::Config;

/// The message and its recipients.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The message; - reads it from standard input
    text: String,
    /// Only to agents with this role
    #[arg(long)]
    role: Option<String>,
    /// Only to agents on this host
    #[arg(long)]
    host: Option<String>,
    /// The subject, one line
    #[arg(long)]
    title: Option<String>,
    /// low, normal, high or urgent
    #[arg(long)]
    priority: Option<Priority>,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let Arguments {
        text,
        role,
        host,
        title,
        priority,
    } = arguments;
    let call = Call::Broadcast(Broadcast {
        message: super::text(text)?,
        title,
        role,
        host,
        priority,
    });
    let raw =
        CommandSession::with(config, false, async |session| session.call_raw(call).await).await?;
    if printer.json {
        printer.document(&raw)
    } else {
        copies(&raw, printer)
    }
}
