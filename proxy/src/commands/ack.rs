//! `c3po ack`: removes messages from the inbox.

use c3po_shared::catalogue::{AckMessages, Acked, Call};
use c3po_shared::ids::MessageId;
use c3po_shared::limits::IDS_MAX;
use c3po_shared::refusal::{ErrorCode, Refusal};

use super::failure::Failure;
use super::inbox::every_message;
use super::message_id::Typed;
use super::print::Printer;
use super::session::CommandSession;
use crate::config::Config;

/// The messages to acknowledge.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The messages' ids, or the ends of them
    #[arg(required_unless_present = "all", value_name = "ID")]
    ids: Vec<Typed>,
    /// Every message in the inbox that wants no answer
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let (acked, questions) = CommandSession::with(config, false, async |session| {
        if !arguments.all {
            return Ok((
                acknowledge(session, Typed::find_all(arguments.ids, session).await?).await?,
                0,
            ));
        }
        let (questions, news): (Vec<_>, Vec<_>) = every_message(session)
            .await?
            .into_iter()
            .partition(|message| message.requires_response);
        Ok((
            acknowledge(
                session,
                news.into_iter().map(|message| message.id).collect(),
            )
            .await?,
            questions.len(),
        ))
    })
    .await?;
    if printer.json {
        printer.document(&acked)?;
    } else {
        acked
            .acked
            .iter()
            .try_for_each(|id| printer.line(&format!("{id}  acknowledged")))?;
        if arguments.all && acked.acked.is_empty() && questions == 0 {
            printer.line("The inbox is empty.")?;
        }
    }
    if questions > 0 {
        eprintln!(
            "c3po: {questions} more {}; answer with `c3po reply`",
            if questions == 1 {
                "message wants an answer"
            } else {
                "messages want answers"
            }
        );
    }
    if acked.unknown.is_empty() {
        return Ok(());
    }
    let unknown: Vec<_> = acked.unknown.iter().map(MessageId::as_str).collect();
    let error = format!(
        "not in your inbox, or no longer kept: {}",
        unknown.join(", ")
    );
    Err(Refusal::new(ErrorCode::MessageNotFound, error)
        .suggest("`c3po inbox` shows the messages in your inbox with their ids.")
        .into())
}

/// Acknowledges messages, in batches of the size that the tool accepts.
async fn acknowledge(session: &CommandSession, ids: Vec<MessageId>) -> Result<Acked, Failure> {
    let mut all = Acked {
        acked: Vec::new(),
        unknown: Vec::new(),
    };
    for some in ids.chunks(IDS_MAX) {
        let call = Call::AckMessages(AckMessages {
            message_ids: some.to_vec(),
        });
        let (acked, _) = session.call::<Acked>(call).await?;
        all.acked.extend(acked.acked);
        all.unknown.extend(acked.unknown);
    }
    Ok(all)
}
