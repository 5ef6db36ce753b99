//! The client's own dialog for a question to people: one of several ways to answer it, and never the only one.

use c3po_shared::question::{Part, PartAnswer, Question};
use c3po_shared::text::harmless;
use rmcp::RoleServer;
use rmcp::model::{
    ClientResult, ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationSchema, PingRequest, ServerRequest,
};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle};
use serde_json::{Value, json};

/// The fields of the dialog. The first one has no default, so that Enter alone answers nothing.
const CHOICE: &str = "choice";
const TEXT: &str = "text";
/// The choice of a person who answers in words.
const IN_WORDS: &str = "Other (in words below)";
/// How much of a question is shown, in characters.
const SHOWN_MAX: usize = 2_000;
/// How many lines and characters every client shows: Claude Code shows three lines of a dialog.
const SEEN: (usize, usize) = (3, 200);
/// The beginning of a longer text.
const READ_FIRST: &str = "A dialog may show only a part of this: read it first with `c3po questions` or on the page /q.\n";

/// An open dialog.
pub(super) struct Dialog {
    part: Part,
    handle: Option<RequestHandle<RoleServer>>,
}

impl Dialog {
    /// Opens a dialog if the client has them, and if an answer there counts: not for a question that needs a login.
    pub(super) async fn open(
        peer: &Peer<RoleServer>,
        question: &Question,
        context: Option<&str>,
    ) -> Option<Self> {
        let client = peer.peer_info()?;
        client.capabilities.elicitation.as_ref()?;
        let [part] = question.parts.as_slice() else {
            return None;
        };
        if question.needs_person || question.needs_verdict() {
            return None;
        }
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: shown(part, context),
            requested_schema: schema(part)?,
        };
        // It takes the id 0, under which clients cancel nothing.
        let ping = ServerRequest::PingRequest(PingRequest::default());
        let pinged = peer.send_cancellable_request(ping, PeerRequestOptions::no_options());
        drop(pinged.await);
        let request = ServerRequest::ElicitRequest(ElicitRequest::new(params));
        let sent = peer.send_cancellable_request(request, PeerRequestOptions::no_options());
        let handle = sent
            .await
            .inspect_err(|error| tracing::debug!("no dialog was opened: {error}"))
            .ok()?;
        Some(Self {
            part: part.clone(),
            handle: Some(handle),
        })
    }

    /// Waits for the answer of a person. Never returns if the dialog is closed without one.
    pub(super) async fn answer(&mut self) -> PartAnswer {
        let Some(handle) = &mut self.handle else {
            return std::future::pending().await;
        };
        let result = (&mut handle.rx).await;
        self.handle = None;
        match result {
            Ok(Ok(ClientResult::ElicitResult(result))) => match answer_in(&self.part, result) {
                Some(answer) => answer,
                None => std::future::pending().await,
            },
            other => {
                tracing::debug!("the dialog ended without a result: {}", other.is_ok());
                std::future::pending().await
            }
        }
    }

    /// Closes the dialog if it is still open.
    pub(super) async fn close(self, why: &str) {
        if let Some(handle) = self.handle
            && let Err(error) = handle.cancel(Some(why.to_owned())).await
        {
            tracing::debug!("the dialog was not closed: {error}");
        }
    }
}

/// Returns the text of the dialog. A text that is too long for some clients begins with a note, and the longest ones lose their
/// middle.
fn shown(part: &Part, context: Option<&str>) -> String {
    let text = match context {
        Some(context) => format!("{}\n\n{context}", part.text),
        None => part.text.clone(),
    };
    let text = harmless(&text, true);
    let count = text.chars().count();
    if text.lines().count() <= SEEN.0 && count <= SEEN.1 {
        return text;
    }
    if count <= SHOWN_MAX {
        return READ_FIRST.to_owned() + &text;
    }
    let half = SHOWN_MAX / 2;
    let begin: String = text.chars().take(half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!("{READ_FIRST}{begin}\n[…]\n{end}")
}

/// Returns the form of the dialog.
fn schema(part: &Part) -> Option<ElicitationSchema> {
    let labels = part.options.iter().map(|option| option.label.as_str());
    let others = (part.allow_text && !part.multi).then_some(IN_WORDS);
    let labels: Vec<_> = labels.chain(others).collect();
    let text = json!({"type": "string", "title": "Answer in words"});
    let form = if part.options.is_empty() {
        json!({"type": "object", "properties": {TEXT: text}, "required": [TEXT]})
    } else {
        let choice = if part.multi {
            json!({"type": "array", "title": "Answer", "items": {"type": "string", "enum": labels}})
        } else {
            json!({"type": "string", "title": "Answer", "enum": labels})
        };
        let mut properties = json!({CHOICE: choice});
        if part.allow_text {
            properties[TEXT] = text;
        }
        // Words alone answer a question with several choices too.
        let required = if part.multi && part.allow_text {
            vec![]
        } else {
            vec![CHOICE]
        };
        json!({"type": "object", "properties": properties, "required": required})
    };
    serde_json::from_value(form)
        .inspect_err(|error| tracing::debug!("no form for this question: {error}"))
        .ok()
}

/// Returns the answer in the result of a dialog; `None` if a person only closed it.
fn answer_in(part: &Part, result: ElicitResult) -> Option<PartAnswer> {
    if result.action != ElicitationAction::Accept {
        return None;
    }
    let content = result.content?;
    let text = content[TEXT]
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty());
    let chosen = match &content[CHOICE] {
        Value::String(label) => vec![label.as_str()],
        Value::Array(labels) => labels.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    // Two options may have the same label.
    let most = if part.multi { usize::MAX } else { 1 };
    let options = part
        .options
        .iter()
        .filter(|option| chosen.contains(&option.label.as_str()))
        .take(most);
    let answer = PartAnswer {
        options: options.map(|option| option.id.clone()).collect(),
        text: text.filter(|_| part.allow_text).map(str::to_owned),
        ..PartAnswer::default()
    };
    let is_empty = answer.options.is_empty() && answer.text.is_none();
    (!is_empty).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(options: &[&str]) -> Part {
        let labels: Vec<String> = options.iter().map(|label| (*label).to_owned()).collect();
        Question::ask("Which database?", &labels).parts.remove(0)
    }

    fn check(part: &Part, action: &str, content: Value, expected: Option<(&[&str], Option<&str>)>) {
        let result = serde_json::from_value(json!({"action": action, "content": content})).unwrap();
        let answer = answer_in(part, result);
        let found = answer.as_ref().map(|answer| {
            let options: Vec<_> = answer.options.iter().map(String::as_str).collect();
            (options, answer.text.as_deref())
        });
        let expected = expected.map(|(options, text)| (options.to_vec(), text));
        assert_eq!(found, expected, "{action} {content}");
    }

    #[test]
    fn only_an_accepted_answer_with_content_counts() {
        let choice = part(&["SQLite", "Redis"]);
        check(
            &choice,
            "accept",
            json!({"choice": "Redis"}),
            Some((&["2"], None)),
        );
        let both = json!({"choice": "Redis", "text": " the old one "});
        check(&choice, "accept", both, Some((&["2"], Some("the old one"))));
        let words = json!({"choice": IN_WORDS, "text": "neither"});
        check(&choice, "accept", words, Some((&[], Some("neither"))));
        check(&choice, "accept", json!({"choice": IN_WORDS}), None);
        check(&choice, "accept", json!({}), None);
        let alike = part(&["Yes", "Yes", "No"]);
        check(
            &alike,
            "accept",
            json!({"choice": "Yes"}),
            Some((&["1"], None)),
        );
        for action in ["decline", "cancel"] {
            check(&choice, action, json!({"choice": "Redis"}), None);
        }
        let multi = Part {
            multi: true,
            ..choice
        };
        let several = json!({"choice": ["SQLite", "Redis"]});
        check(&multi, "accept", several, Some((&["1", "2"], None)));
        check(
            &part(&[]),
            "accept",
            json!({"text": "yes"}),
            Some((&[], Some("yes"))),
        );
    }

    #[test]
    fn a_long_text_begins_with_a_note_and_keeps_both_ends() {
        let of = |text: &str, context| shown(&Question::ask(text, &[]).parts[0], context);
        assert_eq!(
            of("Which one?", Some("It is free.")),
            "Which one?\n\nIt is free."
        );
        for (text, context) in [
            ("a".repeat(201), None),
            ("Which one?".to_owned(), Some("b\nc\nd")),
        ] {
            let shown = of(&text, context);
            assert!(
                shown.starts_with(READ_FIRST) && !shown.contains('…'),
                "{shown}"
            );
        }
        let shown = of(
            &format!("{} and drop the database?", "Read. ".repeat(400)),
            None,
        );
        let note = shown.strip_prefix(READ_FIRST).expect("a note");
        assert!(
            note.starts_with("Read.")
                && note.contains("\n[…]\n")
                && note.ends_with(" and drop the database?")
        );
    }

    #[test]
    fn the_first_field_of_a_dialog_is_required_and_has_no_default() {
        let form = |part: &Part| serde_json::to_value(schema(part).unwrap()).unwrap();
        let choice = form(&part(&["SQLite", "Redis"]));
        assert_eq!(choice["required"], json!(["choice"]));
        let labels = json!(["SQLite", "Redis", IN_WORDS]);
        assert_eq!(choice["properties"]["choice"]["enum"], labels);
        assert!(choice["properties"]["choice"].get("default").is_none());
        assert_eq!(form(&part(&[]))["required"], json!(["text"]));
    }
}
