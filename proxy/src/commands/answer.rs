//! `c3po answer`: answers a question to people.

use c3po_shared::catalogue::Sent;
use c3po_shared::event::Envelope;
use c3po_shared::message::Message;
use c3po_shared::question::{AnswerContent, Part, PartAnswer};
use c3po_shared::receipt::{Step, Via, refused_answer};
use c3po_shared::refusal::ErrorCode;
use serde::Deserialize;
use serde_json::json;

use super::failure::Failure;
use super::message_id::Typed;
use super::print::Printer;
use super::{answers, questions, rest};
use crate::config::Config;

/// The question and its answer.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The question's id, or the end of it
    id: Typed,
    /// The number of an option, as `c3po questions` prints it; more than once if several may be chosen
    #[arg(long = "option", short, value_name = "N")]
    options: Vec<usize>,
    /// The answer in words; - reads it from standard input
    #[arg(required_unless_present_any = ["options", "saved"])]
    text: Option<String>,
    /// Send the saved answer of this name (`c3po answers`); the asker reads that it is one
    #[arg(long, value_name = "NAME", conflicts_with_all = ["options", "text"])]
    saved: Option<String>,
}

/// The open questions.
#[derive(Deserialize)]
struct Open {
    questions: Vec<Message>,
    next_cursor: Option<String>,
}

/// One question.
#[derive(Deserialize)]
struct One {
    message: Message,
    history: Vec<Step>,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let is_whole = matches!(arguments.id, Typed::Whole(_));
    let text = match &arguments.saved {
        Some(name) => Some(answers::find(&config, name)?),
        None => arguments.text.map(super::text).transpose()?,
    };
    let found = find(&config, arguments.id).await.map_err(with_login)?;
    let question = found.message;
    let asked = question.question.as_deref();
    if asked.is_some_and(|asked| asked.needs_verdict()) {
        if let Some(refusal) = refused_answer(&question.id, &found.history) {
            return Err(Failure::Refused(refusal));
        }
        return Err(Failure::Stopped {
            why: format!(
                "{} is a request of a client, which needs a verdict",
                question.id
            ),
            advice: questions::where_to_decide(&question.id),
        });
    }
    if !questions::is_meant(&question, is_whole, printer)? {
        return Err(Failure::No);
    }
    let part = asked.and_then(|asked| asked.parts.first());
    let content = AnswerContent {
        parts: vec![PartAnswer {
            options: chosen(part, &arguments.options)?,
            text,
            ..PartAnswer::default()
        }],
        via: Some(Via::Terminal),
        saved: arguments.saved,
        ..AnswerContent::default()
    };
    let path = format!("/api/v1/questions/{}/answer", question.id);
    let sent = rest::post::<Envelope<Sent>>(&config, &path, &content).await;
    let sent = sent.map_err(with_login)?;
    if printer.json {
        return printer.document(&sent.read.data);
    }
    let Sent { message, receipt } = sent.read.data;
    printer.line(&format!("{}  {}", message.id, receipt.stage))
}

/// Returns the whole question; an open one if the id is not whole. The list of open ones has cut texts.
async fn find(config: &Config, id: Typed) -> Result<One, Failure> {
    let id = match id {
        Typed::Whole(id) => id,
        end @ Typed::Suffix(_) => end.only(open_questions(config).await?)?.id,
    };
    let path = format!("/api/v1/questions/{id}");
    let one: Envelope<One> = rest::get(config, &path, &json!({})).await?.read;
    Ok(one.data)
}

/// Returns all open questions.
async fn open_questions(config: &Config) -> Result<Vec<Message>, Failure> {
    let (mut open, mut query) = (Vec::new(), json!({}));
    loop {
        let page: Envelope<Open> = rest::get(config, "/api/v1/questions", &query).await?.read;
        open.extend(page.data.questions);
        match page.data.next_cursor {
            Some(cursor) => query = json!({"cursor": cursor}),
            None => return Ok(open),
        }
    }
}

/// Returns the ids of the options with these numbers.
fn chosen(part: Option<&Part>, numbers: &[usize]) -> Result<Vec<String>, Failure> {
    let options = part.map_or(&[][..], |part| &part.options);
    let id = |number: &usize| {
        let option = number.checked_sub(1).and_then(|index| options.get(index));
        option.map(|option| option.id.clone()).ok_or_else(|| {
            Failure::Usage(format!(
                "there is no option {number}; the question has {}",
                options.len()
            ))
        })
    };
    numbers.iter().map(id).collect()
}

/// Adds the way to a login to a refusal for the lack of one.
fn with_login(failure: Failure) -> Failure {
    match failure {
        Failure::Refused(refusal)
            if matches!(refusal.code, ErrorCode::Forbidden | ErrorCode::Unauthorized) =>
        {
            Failure::Refused(refusal.suggest(
                "Log in: `c3po login URL`, with a code from `c3po-coordinator login NAME` on the coordinator's machine.",
            ))
        }
        failure => failure,
    }
}
