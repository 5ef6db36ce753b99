//! `c3po sent`: lists recently sent messages, and how far each got.

use c3po_shared::receipt::Stage;
use c3po_shared::sent::{SentMessage, SentMessages};
use c3po_shared::text::harmless;
use serde_json::json;

use super::failure::Failure;
use super::print::Printer;
use super::{rest, words};
use crate::config::Config;

pub(super) async fn run(mut config: Config, printer: &Printer) -> Result<(), Failure> {
    let mut asked = rest::get::<SentMessages>(&config, "/api/sent", &json!({})).await;
    if let Some(person) = asked.as_ref().err().and_then(rest::person) {
        eprintln!("{}", words::other_name(&person, &config.agent));
        config.agent = person;
        asked = rest::get(&config, "/api/sent", &json!({})).await;
    }
    let answer = asked?;
    if printer.json {
        return printer.document(&answer.raw);
    }
    let sent = answer.read;
    if sent.messages.is_empty() {
        return printer.line(&format!("{} has sent nothing recently.", sent.agent_id));
    }
    let rows: Vec<_> = sent
        .messages
        .iter()
        .map(|message| row(printer, message))
        .collect();
    printer.table(&rows)
}

/// Returns a message as a line: id, recipient, time, stage and subject.
fn row(printer: &Printer, message: &SentMessage) -> Vec<String> {
    let about = message
        .reply_to
        .as_ref()
        .map(|question| format!("answers {question}"));
    let title = message.title.as_ref().map(|title| harmless(title, false));
    vec![
        message.message_id.to_string(),
        format!("to {}", message.to),
        printer.moment(message.at),
        message
            .stage
            .map_or("no longer kept", Stage::as_str)
            .to_owned(),
        about
            .into_iter()
            .chain(title)
            .collect::<Vec<_>>()
            .join("  "),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_line_with_its_stage_and_no_title_can_hurt_a_terminal() {
        let message: SentMessage = serde_json::from_value(json!({
            "message_id": "a::b::00000001", "to": "b", "at": "2026-01-15T10:30:00.000Z", "stage": "in_session",
            "reply_to": "b::a::00000002", "title": "no\u{1b}[2J",
        }))
        .unwrap();
        let printer = Printer::of_status_line(false, false);
        let expected = [
            "a::b::00000001",
            "to b",
            "2026-01-15 10:30:00.000Z",
            "in_session",
            "answers b::a::00000002  no\u{241b}[2J",
        ];
        assert_eq!(row(&printer, &message), expected);
        let gone = SentMessage {
            stage: None,
            reply_to: None,
            title: None,
            ..message
        };
        assert_eq!(row(&printer, &gone)[3..], ["no longer kept", ""]);
    }
}
