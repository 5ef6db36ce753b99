//! `c3po receipt`: shows how far a message got, with the evidence of each step in words.

use c3po_shared::catalogue::{Call, CopiesTracked, MessageStatus, Tracked};
use c3po_shared::ids::MessageId;
use c3po_shared::receipt::{Stage, Step, Via};
use c3po_shared::text::harmless;
use serde::Serialize;

use super::failure::Failure;
use super::message_id::Typed;
use super::print::{Printer, Tone, aligned};
use super::session::CommandSession;
use crate::config::Config;

/// The message to look up.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The message's id, or the end of the id if it is in your inbox
    id: Typed,
}

/// The JSON output: the coordinator's receipt, with a sentence for each step.
#[derive(Serialize)]
struct ReceiptDocument<'a> {
    message_id: &'a MessageId,
    stage: Stage,
    history: Vec<Explained<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<&'a CopiesTracked>,
}

#[derive(Serialize)]
struct Explained<'a> {
    #[serde(flatten)]
    step: &'a Step,
    evidence: String,
}

pub(super) async fn run(
    config: Config,
    printer: &Printer,
    arguments: Arguments,
) -> Result<(), Failure> {
    let (tracked, _) = CommandSession::with(config, false, async |session| {
        let message_id = arguments.id.find(session).await?;
        session
            .call::<Tracked>(Call::MessageStatus(MessageStatus { message_id }))
            .await
    })
    .await?;
    let Tracked {
        message_id,
        stage,
        history,
        copies,
    } = &tracked;
    let explained = history.iter().zip(explain(history));
    if printer.json {
        let history = explained
            .map(|(step, evidence)| Explained { step, evidence })
            .collect();
        return printer.document(&ReceiptDocument {
            message_id,
            stage: *stage,
            history,
            copies: copies.as_ref(),
        });
    }
    printer.line(&format!(
        "{message_id}  {}",
        printer.tinted(Tone::Strong, stage.as_str())
    ))?;
    let rows: Vec<_> = explained
        .map(|(step, evidence)| vec![step.stage.to_string(), printer.moment(step.at), evidence])
        .collect();
    aligned(&rows)
        .iter()
        .try_for_each(|line| printer.line(&format!("  {line}")))?;
    copies
        .iter()
        .try_for_each(|copies| printer.line(&format!("  {}", sum(copies))))
}

/// Returns how far the copies of a broadcast got, in one line.
fn sum(copies: &CopiesTracked) -> String {
    let stages = copies.stages.iter();
    let stages: Vec<_> = stages
        .map(|(stage, count)| format!("{count} {stage}"))
        .collect();
    let more = if copies.complete {
        ""
    } else {
        " of the first copies"
    };
    format!("{} copies: {}{more}", copies.count, stages.join(", "))
}

/// Returns the proof of each step, as far as its history has it.
fn explain(history: &[Step]) -> Vec<String> {
    let mut was_shown = false;
    let evidence = history.iter().map(|step| {
        let again = was_shown && step.stage == Stage::InSession;
        was_shown |= step.stage == Stage::InSession;
        format!("{}{}", if again { "again " } else { "" }, evidence(step))
    });
    evidence.collect()
}

fn evidence(step: &Step) -> String {
    let place = step.session.as_deref().map(place).unwrap_or_default();
    match (step.stage, step.via) {
        (Stage::QueuedOnHost, _) => {
            "on the sender's disk, until a coordinator is reachable".to_owned()
        }
        (Stage::Stored, _) => "the coordinator's store has committed it".to_owned(),
        (Stage::OnHost, Some(Via::Deliver)) => {
            format!("on the recipient's host{place}: its proxy received it")
        }
        (Stage::OnHost, Some(Via::Ntfy)) => "the server of the phone accepted its push".to_owned(),
        (Stage::OnHost, _) => format!("on the recipient's host{place}, as the next step proves"),
        (Stage::InSession, Some(Via::Terminal)) => "printed on a person's terminal".to_owned(),
        (Stage::InSession, Some(Via::Page)) => "a page displayed it for a second".to_owned(),
        (Stage::InSession, via) => format!("in the session's context{place}{}", way(via)),
        (Stage::Seen, Some(Via::ToolCall)) => {
            format!("the model named it in a tool call{place}")
        }
        (Stage::Seen, Some(Via::Hook)) => {
            format!("the model continued after it, as a later hook shows{place}")
        }
        (Stage::Seen, Some(Via::Transcript)) => {
            format!("the model answered after it, as the client's own transcript shows{place}")
        }
        (Stage::Seen, Some(Via::Page)) => "a person acted on its page".to_owned(),
        (Stage::Seen, Some(Via::Ntfy)) => "a person acted on its push".to_owned(),
        (Stage::Seen, _) => format!("the model continued after it{place}"),
        (Stage::Answered, _) => match &step.reply_id {
            Some(reply) => format!("by the reply {reply}"),
            None => "by a reply".to_owned(),
        },
        (Stage::Expired, _) => {
            "it expired, or the one-shot session of its sender or recipient ended".to_owned()
        }
        (Stage::Refused, _) => "a policy or the recipient's client refused it".to_owned(),
        (Stage::Taken, _) => "the client that asked took the verdict".to_owned(),
        (Stage::Applied, _) => "the client that asked acted on the verdict".to_owned(),
        (Stage::Withdrawn, Some(Via::Terminal)) => "it was decided at the terminal".to_owned(),
        (Stage::Withdrawn, Some(Via::SessionEnd)) => "the session that asked has ended".to_owned(),
        (Stage::Withdrawn, Some(Via::TimeOut)) => {
            "the time to decide elsewhere is over: only its terminal can still decide".to_owned()
        }
        (Stage::Withdrawn, _) => "the agent that asked needs no answer any more".to_owned(),
        (Stage::Held, _) => "the recipient's client holds it for a person".to_owned(),
    }
}

/// Returns the way by which a message got into a context, as the end of a sentence.
fn way(via: Option<Via>) -> String {
    let words = match via {
        None => return String::new(),
        Some(tool @ (Via::WaitForMessage | Via::GetMessages | Via::GetThread | Via::AskUser)) => {
            return format!(" by the result of {tool}");
        }
        Some(Via::UserPromptSubmit) => "the UserPromptSubmit hook, with a prompt",
        Some(Via::PostToolBatch) => "the PostToolBatch hook, between two steps of a turn",
        Some(Via::Stop) => "the Stop hook, which continued the turn",
        Some(Via::InboxSocket) => {
            "a post to its inbox socket, confirmed by the prompt that it made"
        }
        Some(Via::AsyncRewake) => "the waiting hook, confirmed by the prompt that it made",
        Some(Via::Channel) => "a channel notification, confirmed by the prompt that it made",
        Some(Via::Transcript) => "an earlier way, as the client's own transcript shows",
        Some(_) => "another way",
    };
    format!(" by {words}")
}

/// Describes the session and context of a step: `3.1` is the context after one `/clear`.
fn place(session: &str) -> String {
    match session.split_once('.') {
        Some((session, context)) => {
            format!(
                " (session {}, context {})",
                harmless(session, false),
                harmless(context, false)
            )
        }
        None => format!(" (session {})", harmless(session, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn steps(history: Value) -> Vec<Step> {
        let mut history = history;
        for step in history.as_array_mut().into_iter().flatten() {
            step["at"] = json!("2026-01-15T10:30:00.000Z");
        }
        serde_json::from_value(history).unwrap()
    }

    #[test]
    fn each_step_names_its_evidence_and_its_session() {
        let history = steps(json!([
            {"stage": "stored"},
            {"stage": "on_host", "via": "deliver", "session": "3"},
            {"stage": "in_session", "via": "user_prompt_submit", "session": "3"},
            {"stage": "seen", "via": "hook", "session": "3"},
            {"stage": "in_session", "via": "stop", "session": "3.1"},
            {"stage": "answered", "via": "reply", "reply_id": "b::a::00000002"},
        ]));
        let expected = [
            "the coordinator's store has committed it",
            "on the recipient's host (session 3): its proxy received it",
            "in the session's context (session 3) by the UserPromptSubmit hook, with a prompt",
            "the model continued after it, as a later hook shows (session 3)",
            "again in the session's context (session 3, context 1) by the Stop hook, which continued the turn",
            "by the reply b::a::00000002",
        ];
        assert_eq!(explain(&history), expected);
    }

    #[test]
    fn a_question_to_a_person_is_no_models() {
        let history = steps(json!([
            {"stage": "on_host", "via": "ntfy"},
            {"stage": "in_session", "via": "page"},
            {"stage": "seen", "via": "page"},
        ]));
        let expected = [
            "the server of the phone accepted its push",
            "a page displayed it for a second",
            "a person acted on its page",
        ];
        assert_eq!(explain(&history), expected);
    }

    #[test]
    fn every_way_into_a_session_has_words_of_its_own() {
        let ways = [
            Via::WaitForMessage,
            Via::GetMessages,
            Via::GetThread,
            Via::UserPromptSubmit,
            Via::PostToolBatch,
            Via::Stop,
            Via::InboxSocket,
            Via::AsyncRewake,
            Via::Channel,
            Via::Transcript,
            Via::Terminal,
        ];
        let said = |via: Via| {
            explain(&steps(
                json!([{"stage": "in_session", "via": via, "session": "1"}]),
            ))
            .concat()
        };
        let mut all: Vec<_> = ways.into_iter().map(said).collect();
        assert!(
            all.iter().all(|words| !words.contains("another way")),
            "{all:?}"
        );
        assert_eq!(
            all[0],
            "in the session's context (session 1) by the result of wait_for_message"
        );
        all.sort();
        all.dedup();
        assert_eq!(all.len(), ways.len(), "{all:?}");
    }

    #[test]
    fn a_receipt_states_nothing_beyond_its_history() {
        let history = steps(json!([
            {"stage": "on_host", "via": "wait_for_message"},
            {"stage": "in_session"},
            {"stage": "seen", "via": "tool_call", "session": "2.7"},
            {"stage": "seen", "via": "transcript", "session": "2.8"},
            {"stage": "in_session", "via": "terminal"},
            {"stage": "answered"},
            {"stage": "seen", "session": "\u{1b}[2J"},
        ]));
        let expected = [
            "on the recipient's host, as the next step proves",
            "in the session's context",
            "the model named it in a tool call (session 2, context 7)",
            "the model answered after it, as the client's own transcript shows (session 2, context 8)",
            "again printed on a person's terminal",
            "by a reply",
            "the model continued after it (session ␛[2J)",
        ];
        assert_eq!(explain(&history), expected);
    }

    #[test]
    fn the_document_has_the_steps_unchanged_and_their_evidence_in_words() {
        let history = steps(json!([{"stage": "in_session", "via": "stop", "session": "1"}]));
        let explained = history
            .iter()
            .zip(explain(&history))
            .map(|(step, evidence)| Explained { step, evidence });
        let message_id = "a::b::00000001".parse().unwrap();
        let document = ReceiptDocument {
            message_id: &message_id,
            stage: Stage::InSession,
            history: explained.collect(),
            copies: None,
        };
        assert_eq!(
            serde_json::to_value(document).unwrap(),
            json!({"message_id": "a::b::00000001", "stage": "in_session", "history": [{
                "stage": "in_session", "at": "2026-01-15T10:30:00.000Z", "via": "stop", "session": "1",
                "evidence": "in the session's context (session 1) by the Stop hook, which continued the turn",
            }]})
        );
    }
}
