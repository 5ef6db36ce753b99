//! `c3po send`: sends a message, and waits for the answer if requested.

use c3po_shared::agent::AgentRecord;
use c3po_shared::catalogue::{
    AckMessages, Call, Copies, GetAgentStatus, Received, SendMessage, Sent, TimedOut,
    WaitForMessage,
};
use c3po_shared::ids::{CallId, MessageId};
use c3po_shared::limits::WAIT_MAX;
use c3po_shared::message::Message;
use c3po_shared::receipt::Receipt;
use c3po_shared::text::harmless;
use c3po_shared::vocabulary::{Priority, Status};
use serde::Deserialize;
use serde_json::json;

use super::completions;
use super::failure::Failure;
use super::print::Printer;
use super::session::CommandSession;
use crate::config::Config;

/// The message and its options.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Agent id, id@host, or @role
    #[arg(add = completions::agents())]
    target: String,
    /// The message; - reads it from standard input
    text: String,
    /// Wait for the answer and print it
    #[arg(long, conflicts_with = "no_answer")]
    wait: bool,
    /// How long to wait, in seconds [default: C3PO_TIMEOUT, or 60]
    #[arg(long, value_name = "SECONDS", requires = "wait", value_parser = clap::value_parser!(u64).range(1..=WAIT_MAX))]
    timeout: Option<u64>,
    /// The subject, one line
    #[arg(long)]
    title: Option<String>,
    /// Background of the message
    #[arg(long)]
    context: Option<String>,
    /// low, normal, high or urgent
    #[arg(long)]
    priority: Option<Priority>,
    /// If no coordinator is reachable, queue it on this host and send it once, later
    #[arg(long, conflicts_with = "wait")]
    queue: bool,
    /// State that no answer is needed
    #[arg(long)]
    no_answer: bool,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    if arguments.wait && arguments.target.starts_with('@') {
        return Err(Failure::Usage(
            "--wait waits for the answer of one agent, but a role can be several agents".to_owned(),
        ));
    }
    let timeout = arguments.timeout.unwrap_or(config.timeout);
    let wait = arguments.wait;
    let message = Call::SendMessage(SendMessage {
        target: arguments.target,
        message: super::text(arguments.text)?,
        title: arguments.title,
        context: arguments.context,
        priority: arguments.priority,
        requires_response: arguments.no_answer.then_some(false),
        queue_if_down: arguments.queue.then_some(true),
        ..SendMessage::default()
    });
    let sending = async |session: &CommandSession| {
        session.send_kept().await;
        let raw = session.call_raw(message).await?;
        let sent: Option<Sent> = raw.read().ok();
        match sent {
            Some(sent) if wait => answer(session, printer, &sent, &raw, timeout).await,
            _ if printer.json => printer.document(&raw),
            Some(sent) => {
                printer.line(&format!("{}  {}", sent.message.id, sent.receipt.stage))?;
                note_absence(session, printer, &sent).await;
                Ok(())
            }
            None => match raw.read::<Queued>() {
                Ok(queued) => {
                    eprintln!("c3po: {QUEUED}");
                    printer.line(&format!("{}  {}", queued.call_id, queued.receipt.stage))
                }
                Err(_) => copies(&raw, printer),
            },
        }
    };
    if arguments.queue {
        CommandSession::even_without(config, sending).await
    } else {
        CommandSession::with(config, false, sending).await
    }
}

/// The note about a message that was queued on this host.
const QUEUED: &str = "no coordinator is reachable, so the message is only on this host's disk. The next `c3po send` as the \
                      same sender that reaches the coordinator sends it, or, without a login, a session on this host.";

/// The link's reply about a message that it queued.
#[derive(Deserialize)]
struct Queued {
    call_id: CallId,
    receipt: Receipt,
}

/// Reports on standard error that the recipient is offline. The message is sent, so a failure to find out is ignored.
async fn note_absence(session: &CommandSession, printer: &Printer, sent: &Sent) {
    let recipient = &sent.message.to_agent;
    let question = Call::GetAgentStatus(GetAgentStatus {
        agent_id: recipient.clone(),
    });
    let Ok((agent, _)) = session.call::<AgentRecord>(question).await else {
        return;
    };
    if agent.status == Status::Offline {
        let seen = printer.moment(agent.last_seen);
        eprintln!(
            "c3po: {recipient} is offline since {seen}; the message stays in its inbox until {}",
            printer.moment(sent.message.expires_at)
        );
    }
}

/// Prints a line for each copy.
pub(super) fn copies(raw: &Received, printer: &Printer) -> Result<(), Failure> {
    let copies: Copies = raw.read()?;
    for copy in &copies.receipts {
        let id = copy.message_id.as_ref().map_or("-", MessageId::as_str);
        let why = copy
            .refusal
            .as_ref()
            .map(|refusal| format!("  {}", harmless(&refusal.to_string(), false)));
        let why = why.unwrap_or_default();
        printer.line(&format!("{id}  {}  {}{why}", copy.agent_id, copy.stage))?;
    }
    Ok(())
}

/// Waits for the answer and prints it.
async fn answer(
    session: &CommandSession,
    printer: &Printer,
    sent: &Sent,
    raw_sent: &Received,
    timeout: u64,
) -> Result<(), Failure> {
    let id = &sent.message.id;
    if !printer.json {
        printer.line(&format!("{id}  {}", sent.receipt.stage))?;
    }
    let wait = WaitForMessage {
        message_id: Some(id.clone()),
        timeout: Some(timeout),
        ..WaitForMessage::default()
    };
    let raw = session.call_raw(Call::WaitForMessage(wait)).await?;
    let reply: Option<Message> = raw.read().ok();
    match (&reply, printer.json) {
        (Some(_), true) => printer.document(&json!({"sent": raw_sent, "reply": raw}))?,
        (Some(reply), false) => printer.message(reply)?,
        (None, true) => printer.document(&json!({"sent": raw_sent, "timeout": raw}))?,
        (None, false) => {
            let why = raw
                .read::<TimedOut>()
                .map_or("No response received".to_owned(), |ended| {
                    harmless(&ended.message, false)
                });
            eprintln!("c3po: {why}\ntry: c3po receipt {id}");
        }
    }
    let Some(reply) = reply else {
        return Err(Failure::TimedOut);
    };
    session.shown(vec![reply.id.clone()]);
    // It was printed for the person who waited for it, so it is acknowledged.
    session
        .call_raw(Call::AckMessages(AckMessages {
            message_ids: vec![reply.id],
        }))
        .await?;
    Ok(())
}
