//! `c3po inbox`: the messages that wait.

use c3po_shared::catalogue::{Call, GetMessages, Inbox};
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::message::Message;
use serde_json::json;

use super::failure::Failure;
use super::print::Printer;
use super::session::Session;
use crate::config::Config;

pub(super) async fn run(config: Config, printer: &Printer) -> Result<(), Failure> {
    Session::with(config, false, async |session| {
        let messages = every_message(session).await?;
        if printer.json {
            printer.document(&json!({"messages": messages, "count": messages.len()}))?;
        } else if messages.is_empty() {
            printer.line("Nothing waits.")?;
        } else {
            messages.iter().try_for_each(|message| printer.message(message))?;
        }
        session.shown(messages.into_iter().map(|message| message.id).collect());
        Ok(())
    })
    .await
}

/// Returns every message that waits.
pub(super) async fn every_message(session: &Session) -> Result<Vec<Message>, Failure> {
    let (mut messages, mut cursor) = (Vec::new(), None);
    loop {
        let page = GetMessages { limit: Some(PAGE_MAX), cursor, ..GetMessages::default() };
        let (page, _) = session.call::<Inbox>(Call::GetMessages(page)).await?;
        messages.extend(page.messages);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(messages);
        }
    }
}
