//! The messages of ours that a line of a transcript holds.

use std::collections::HashSet;

use c3po_shared::ids::MessageId;
use serde_json::Value;

use crate::local::MARK;

/// Returns the messages that stand in a line, each once: where a hook or a push showed them, and in results. A mention of one
/// is none, nor is a text that quotes one.
pub(super) fn ids_in(line: &Value) -> Vec<MessageId> {
    let mut ids = Vec::new();
    collect(line, &mut ids);
    let mut known = HashSet::new();
    ids.retain(|id: &MessageId| known.insert(id.clone()));
    ids
}

fn collect(value: &Value, ids: &mut Vec<MessageId>) {
    match value {
        Value::String(text) => {
            ids.extend(
                text.lines()
                    .skip_while(|line| !line.contains(MARK))
                    .filter_map(origin),
            );
            ids.extend(in_background(text));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, ids)),
        Value::Object(block) if value["type"] == "tool_result" => {
            let content = block.get("content");
            let blocks = content.and_then(Value::as_array).into_iter().flatten();
            let texts = content
                .into_iter()
                .chain(blocks.map(|block| &block["text"]))
                .filter_map(Value::as_str);
            ids.extend(texts.flat_map(in_result));
        }
        // The client keeps a result a second time in a form of its own.
        Value::Object(members) => {
            members
                .iter()
                .filter(|(name, _)| *name != "toolUseResult")
                .for_each(|(_, value)| collect(value, ids));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the message above whose text the line stands. Quotes begin with another sign.
fn origin(line: &str) -> Option<MessageId> {
    let (_, rest) = line.strip_prefix("[FROM: ")?.split_once("[ID: ")?;
    rest.split_once(']')?.0.parse().ok()
}

/// Returns the messages of a result that the client brings later, as a prompt of its own: the tool ran in the background.
pub(in crate::deliver) fn in_background(text: &str) -> Vec<MessageId> {
    let notice = text
        .strip_prefix("<task-notification>")
        .and_then(|notice| notice.split_once("<result>\n"));
    let result = notice.and_then(|(_, result)| result.rsplit_once("\n</result>"));
    result.map_or_else(Vec::new, |(result, _)| in_result(result))
}

/// Returns the messages that the result of a tool of ours holds to their end.
fn in_result(text: &str) -> Vec<MessageId> {
    let Ok(result) = serde_json::from_str::<Value>(text) else {
        return Vec::new();
    };
    let page = result["messages"].as_array().into_iter().flatten();
    let messages = std::iter::once(&result).chain(page);
    // The result of `ask_user` names the message with the answer.
    let answer = result["question_id"]
        .as_str()
        .and(result["reply_id"].as_str());
    messages
        .filter(|message| message["rest"].is_null())
        .filter_map(|message| message["id"].as_str())
        .chain(answer)
        .filter_map(|id| id.parse().ok())
        .collect()
}
