//! `c3po questions`: the open questions to people.

use std::collections::HashSet;
use std::io::{self, IsTerminal as _};

use c3po_shared::ids::{AgentId, MessageId};
use c3po_shared::message::Message;
use c3po_shared::text::harmless;
use serde_json::json;

use super::confirm::confirmed;
use super::failure::Failure;
use super::inbox::every_message;
use super::print::Printer;
use super::session::CommandSession;
use super::tail;
use crate::config::Config;

/// How the questions are shown.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Continue with new questions as they arrive; Ctrl-C ends it
    #[arg(long, short)]
    follow: bool,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    CommandSession::with(config, arguments.follow, async |session| {
        check_person(&session.status().agent)?;
        let mut open = every_message(session).await?;
        open.retain(|message| message.requires_response);
        if arguments.follow {
            tail::until_ended(session, follow(session, printer, open)).await
        } else {
            list(session, printer, &open)
        }
    })
    .await
}

/// Returns an error that names the way to a login, unless the command acts as `human`.
pub(super) fn check_person(agent: &AgentId) -> Result<(), Failure> {
    if *agent == AgentId::human() {
        return Ok(());
    }
    let why = format!("this host acts as {agent}; questions to people need a login");
    Err(no_login(&why))
}

/// Returns an error that names the way to a login.
pub(super) fn no_login(why: &str) -> Failure {
    Failure::Stopped {
        why: why.to_owned(),
        advice: "`c3po login URL`, with a code from `c3po-coordinator login NAME` on the coordinator's machine"
            .to_owned(),
    }
}

fn list(session: &CommandSession, printer: &Printer, open: &[Message]) -> Result<(), Failure> {
    if printer.json {
        printer.document(&json!({"questions": open, "count": open.len()}))?;
    } else if open.is_empty() {
        printer.line("No question is open.")?;
    } else {
        open.iter()
            .try_for_each(|question| print(question, printer))?;
    }
    session.shown(open.iter().map(|question| question.id.clone()).collect());
    Ok(())
}

/// Prints the open questions, then each new one.
async fn follow(
    session: &CommandSession,
    printer: &Printer,
    mut new: Vec<Message>,
) -> Result<(), Failure> {
    let mut printed = HashSet::new();
    loop {
        for question in new.drain(..) {
            if question.requires_response && printed.insert(question.id.clone()) {
                if printer.json {
                    printer.document(&question)
                } else {
                    print(&question, printer)
                }?;
                session.shown(vec![question.id]);
            }
        }
        new = session.inbox.take().await;
    }
}

/// Returns the ways to decide a request of a client.
pub(super) fn where_to_decide(question: &MessageId) -> String {
    format!("Decide it on the coordinator's page /q/{question}, or at its own terminal.")
}

/// Returns whether a person at a terminal can be asked which message is meant.
pub(super) fn can_ask(printer: &Printer) -> bool {
    !printer.json && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Shows the message that has the id, and asks whether it is the one to be answered. Its agent chooses the id: it may have
/// withdrawn another question with the same end since the person read it, or used the whole id again for another message.
/// Without a terminal, a whole id is enough.
pub(super) fn is_meant(
    message: &Message,
    is_whole: bool,
    printer: &Printer,
) -> Result<bool, Failure> {
    if !can_ask(printer) {
        if is_whole {
            return Ok(true);
        }
        let why = format!(
            "the end of an id may belong to another message by now: run this on a terminal, or give the whole id {}",
            message.id
        );
        return Err(Failure::Usage(why));
    }
    print(message, printer)?;
    Ok(confirmed(&format!("Answer {}? [y/N] ", message.id)))
}

/// Prints a question with its options, and how it is answered.
pub(super) fn print(question: &Message, printer: &Printer) -> Result<(), Failure> {
    printer.message(question)?;
    let asked = question.question.as_deref();
    if asked.is_some_and(|asked| asked.needs_verdict()) {
        return printer.line(&format!("  {}", where_to_decide(&question.id)));
    }
    let parts = asked.map_or(&[][..], |asked| &asked.parts);
    for part in parts {
        if parts.len() > 1 {
            printer.quote(&part.text)?;
        }
        for (number, option) in (1..).zip(&part.options) {
            let number: u32 = number;
            printer.others(&format!("  {number}  "), &harmless(&option.label, false))?;
        }
    }
    Ok(())
}
