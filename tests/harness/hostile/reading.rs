//! The content of a request: our tokens in order, and the messages that are marked as shown before.

use serde_json::Value;

use super::checker::{Asker, Standing};
use super::token::{Text, Token};
use crate::fake_api::Asked;

/// The mark in the origin line of a message that may have been shown before.
const MARK: &str = "[may have been shown before]";
/// The start of the origin line.
const ORIGIN: &str = "[FROM: ";
/// The text in the client's request for a compaction.
const SUMMARY: &str = "detailed summary";
/// How much of the new text of a request is kept for people.
const NEW_MAX: usize = 3_000;

/// The relevant content of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) asker: Asker,
    /// The messages in it, in order, with every copy.
    pub(super) standing: Vec<Standing>,
    /// The last prompt that the model has not answered yet.
    pub(super) prompt: Option<String>,
    /// The new text, truncated.
    pub(super) new: String,
}

/// Reads a request.
pub(super) fn read(asked: &Asked) -> Reading {
    let texts = asked.texts();
    let first = texts
        .iter()
        .flat_map(|text| Token::find_all(text))
        .next()
        .map(|(_, token)| token.text);
    let new = asked.new_text();
    let asker = match first {
        _ if new.contains(SUMMARY) => Asker::Compaction,
        _ if !asked.offers_tools() => Asker::Side,
        Some(Text::Task) => Asker::Subagent,
        _ => Asker::Session,
    };
    let prompt = new.lines().rfind(|line| {
        Token::find_all(line)
            .iter()
            .any(|(_, token)| token.text == Text::Prompt)
    });
    Reading {
        asker,
        standing: texts.iter().flat_map(|text| standing(text)).collect(),
        prompt: prompt.map(str::to_owned),
        new: new.chars().take(NEW_MAX).collect(),
    }
}

/// Returns the messages in one text.
fn standing(text: &str) -> Vec<Standing> {
    let tokens = Token::find_all(text)
        .into_iter()
        .filter(|(_, token)| token.text == Text::Message);
    tokens
        .map(|(place, token)| Standing {
            token,
            marked: is_marked(text, place, token),
        })
        .collect()
}

/// Returns whether the message with that token is marked as shown before: in the origin line above a quoted text, or as a
/// member of a tool result.
fn is_marked(text: &str, place: usize, token: Token) -> bool {
    if let Ok(result) = serde_json::from_str::<Value>(text) {
        return is_repeated(&result, &token.to_string());
    }
    text[..place]
        .lines()
        .rfind(|line| line.starts_with(ORIGIN))
        .is_some_and(|origin| origin.contains(MARK))
}

/// Returns whether the message that contains `token` is marked as repeated in that result.
fn is_repeated(result: &Value, token: &str) -> bool {
    match result {
        Value::Array(all) => all.iter().any(|one| is_repeated(one, token)),
        Value::Object(members) => {
            let holds = ["message", "response"].iter().any(|name| {
                members
                    .get(*name)
                    .and_then(Value::as_str)
                    .is_some_and(|text| text.contains(token))
            });
            holds && members.get("repeated") == Some(&Value::Bool(true))
                || members.values().any(|member| is_repeated(member, token))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reading(messages: Value) -> Reading {
        read(&Asked::new(
            json!({"tools": [{"name": "Bash"}], "messages": messages}),
        ))
    }

    fn message(number: usize) -> Token {
        Token {
            text: Text::Message,
            seat: 0,
            number,
        }
    }

    #[test]
    fn messages_are_found_with_their_marks_in_hooks_and_in_results() {
        let pushed = "UserPromptSubmit hook additional context: [c3po] 2 messages for a\n\
            [FROM: b @h] [ID: b::a::00000001] [wants an answer]\n> TOKm0n1E\n\
            [FROM: b @h] [ID: b::a::00000002] [may have been shown before]\n> TOKm0n2E long\nText from others";
        let result = json!({"id": "b::a::3", "message": "TOKm0n3E", "repeated": true}).to_string();
        let fresh = json!({"id": "b::a::4", "message": "TOKm0n4E"}).to_string();
        let results = json!([{"type": "tool_result", "content": [{"type": "text", "text": result}]},
            {"type": "tool_result", "content": fresh}]);
        let reading = reading(json!([
            {"role": "user", "content": "TOKp0n1E do:slow please"},
            {"role": "system", "content": pushed},
            {"role": "assistant", "content": [{"type": "tool_use", "input": {"prompt": "TOKt0n1E"}}]},
            {"role": "user", "content": results},
        ]));
        let marks: Vec<_> = reading
            .standing
            .iter()
            .map(|standing| (standing.token, standing.marked))
            .collect();
        let expected = [
            (message(1), false),
            (message(2), true),
            (message(3), true),
            (message(4), false),
        ];
        assert_eq!(marks, expected);
        assert_eq!(
            (reading.asker, reading.prompt),
            (Asker::Session, None),
            "the prompt is answered"
        );
    }

    #[test]
    fn requests_of_subagents_compactions_and_side_tasks_are_recognised() {
        let of = |first: &str, last: &str| {
            reading(
                json!([{"role": "user", "content": first}, {"role": "assistant", "content": "ok"},
                {"role": "user", "content": last}]),
            )
        };
        assert_eq!(of("TOKt0n1E", "TOKm0n1E").asker, Asker::Subagent);
        assert_eq!(
            of("TOKp0n1E", "create a detailed summary").asker,
            Asker::Compaction
        );
        assert_eq!(of("continued: TOKs0n1E", "go").asker, Asker::Session);
        assert_eq!(
            of("x", "TOKp0n2E go\nmore").prompt.as_deref(),
            Some("TOKp0n2E go")
        );
        assert_eq!(
            read(&Asked::new(json!({"messages": []}))).asker,
            Asker::Side
        );
    }
}
