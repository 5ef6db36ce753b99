//! `c3po ask` and `c3po notify`: a script asks people and waits, or leaves a notice.

use c3po_shared::catalogue::{AskUser, Call, NotifyUser, Sent, UserAnswer};
use c3po_shared::limits::{ASK_DEFAULT, ASK_MAX};
use c3po_shared::text::harmless;
use c3po_shared::vocabulary::{AnswerStatus, Priority};

use super::failure::Failure;
use super::print::Printer;
use super::session::CommandSession;
use crate::config::Config;

/// The question.
#[derive(Debug, clap::Args)]
pub(super) struct Question {
    /// The question; - reads it from standard input
    text: String,
    /// A label to choose; give it once for each option
    #[arg(long = "option", value_name = "LABEL")]
    options: Vec<String>,
    /// How long to wait, in seconds; the question stays open
    #[arg(long, value_name = "SECONDS", default_value_t = ASK_DEFAULT, value_parser = clap::value_parser!(u64).range(1..=ASK_MAX))]
    timeout: u64,
    /// Background of the question
    #[arg(long)]
    context: Option<String>,
    /// low, normal, high or urgent
    #[arg(long)]
    priority: Option<Priority>,
}

/// The notice.
#[derive(Debug, clap::Args)]
pub(super) struct Notice {
    /// The text; - reads it from standard input
    text: String,
    /// The subject, one line
    #[arg(long)]
    title: Option<String>,
    /// low, normal, high or urgent
    #[arg(long)]
    priority: Option<Priority>,
}

pub(super) async fn ask(
    config: Config,
    printer: &Printer,
    question: Question,
) -> Result<(), Failure> {
    let ask = AskUser {
        question: Some(super::text(question.text)?),
        options: Some(question.options).filter(|options| !options.is_empty()),
        context: question.context,
        priority: question.priority,
        timeout: Some(question.timeout),
        ..AskUser::default()
    };
    CommandSession::with(config, false, async |session| {
        let (outcome, raw) = session.call::<UserAnswer>(Call::AskUser(ask)).await?;
        if printer.json {
            printer.document(&raw)?;
        }
        match outcome.status {
            AnswerStatus::Answered if printer.json => {}
            AnswerStatus::Answered => {
                for line in in_words(&outcome) {
                    printer.others("", &harmless(&line, false))?;
                }
            }
            status => {
                eprintln!("c3po: {status}: nobody answered {}", outcome.question_id);
                return Err(Failure::TimedOut);
            }
        }
        session.shown(outcome.reply_id.into_iter().collect());
        Ok(())
    })
    .await
}

/// Returns the answer as lines: the chosen labels, then the text.
fn in_words(outcome: &UserAnswer) -> Vec<String> {
    let answers = outcome.answers.iter();
    let lines = answers.flat_map(|answer| answer.options.iter().chain(&answer.text));
    lines.filter(|line| !line.is_empty()).cloned().collect()
}

pub(super) async fn notify(
    config: Config,
    printer: &Printer,
    notice: Notice,
) -> Result<(), Failure> {
    let call = Call::NotifyUser(NotifyUser {
        message: super::text(notice.text)?,
        title: notice.title,
        priority: notice.priority,
    });
    CommandSession::with(config, false, async |session| {
        let (sent, raw) = session.call::<Sent>(call).await?;
        if printer.json {
            return printer.document(&raw);
        }
        printer.line(&format!("{}  {}", sent.message.id, sent.receipt.stage))
    })
    .await
}
