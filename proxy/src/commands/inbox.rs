//! `c3po inbox`: prints the messages of the inbox.

use c3po_shared::catalogue::{Call, GetMessages, Inbox};
use c3po_shared::limits::PAGE_MAX;
use c3po_shared::message::Message;
use c3po_shared::refusal::Advice;
use c3po_shared::text::harmless;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::print::Printer;
use super::rest;
use super::session::CommandSession;
use crate::config::Config;

/// How many messages are requested without a session.
const PENDING_MAX: usize = 1_000;

/// The part of `GET /api/pending` that is shown.
#[derive(Deserialize)]
struct PendingMessages {
    messages: Vec<Message>,
}

pub(super) async fn run(config: Config, printer: &Printer) -> Result<(), Failure> {
    let shown = CommandSession::with(config.clone(), false, async |session| {
        let messages = every_message(session).await?;
        print(&messages, printer)?;
        session.shown(messages.into_iter().map(|message| message.id).collect());
        Ok(())
    });
    match shown.await {
        Err(Failure::Refused(refusal)) if refusal.advice == Some(Advice::StoreFull) => {
            // A session needs a little space in the store; reading does not.
            let pending = rest::get::<PendingMessages>(
                &config,
                "/api/pending",
                &json!({"limit": PENDING_MAX}),
            )
            .await?;
            let error = harmless(&refusal.error, false);
            eprintln!("c3po: {error}; these messages stay in the inbox as not shown");
            print(&pending.read.messages, printer)
        }
        outcome => outcome,
    }
}

fn print(messages: &[Message], printer: &Printer) -> Result<(), Failure> {
    if printer.json {
        return printer.document(&json!({"messages": messages, "count": messages.len()}));
    }
    if messages.is_empty() {
        return printer.line("The inbox is empty.");
    }
    messages
        .iter()
        .try_for_each(|message| printer.message(message))
}

/// Returns every message of the inbox.
pub(super) async fn every_message(session: &CommandSession) -> Result<Vec<Message>, Failure> {
    let (mut messages, mut cursor) = (Vec::new(), None);
    loop {
        let page = GetMessages {
            limit: Some(PAGE_MAX),
            cursor,
            ..GetMessages::default()
        };
        let (page, _) = session.call::<Inbox>(Call::GetMessages(page)).await?;
        messages.extend(page.messages);
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(messages);
        }
    }
}
