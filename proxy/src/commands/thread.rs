//! `c3po thread`: prints the conversation that a message belongs to.

use c3po_shared::catalogue::{Call, GetThread, Thread};
use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;
use serde_json::json;

use super::failure::Failure;
use super::message_id::Typed;
use super::print::Printer;
use super::session::CommandSession;
use crate::config::Config;

/// The conversation to print.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Any message of it: its id, or the end of the id if it is in your inbox
    id: Typed,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    CommandSession::with(config, false, async |session| {
        let messages = every_message(session, &arguments.id.find(session).await?).await?;
        if printer.json {
            printer.document(&json!({"messages": messages}))?;
        } else {
            messages
                .iter()
                .try_for_each(|message| printer.message(message))?;
        }
        let you = session.status().agent;
        let read = messages
            .into_iter()
            .filter(|message| message.to_agent == you);
        session.shown(read.map(|message| message.id).collect());
        Ok(())
    })
    .await
}

async fn every_message(session: &CommandSession, id: &MessageId) -> Result<Vec<Message>, Failure> {
    let (mut messages, mut cursor) = (Vec::new(), None);
    loop {
        let page = GetThread {
            message_id: id.clone(),
            cursor,
        };
        let (page, _) = session.call::<Thread>(Call::GetThread(page)).await?;
        messages.extend(page.messages);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(messages);
        }
    }
}
