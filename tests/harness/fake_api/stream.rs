//! A message from the model in both forms of the API: one object, or a stream of events.

use serde_json::{Value, json};
use uuid::Uuid;

use super::asked::Asked;
use super::script::Block;

/// The model's answer.
pub(super) struct Message {
    head: Value,
    content: Vec<Value>,
    stop_reason: &'static str,
}

fn new_id(kind: &str) -> String {
    format!("{kind}_{}", Uuid::new_v4().simple())
}

/// Returns a block in the form of the API; pauses and errors have none.
fn content(asked: &Asked, block: &Block) -> Option<Value> {
    let said = match block {
        Block::Pause(_) | Block::Hold(_) | Block::Fail(_) => return None,
        Block::Text(text) => json!({"type": "text", "text": text}),
        Block::Call { tool, arguments } => {
            let name = asked.tool_named(tool).unwrap_or_else(|| tool.clone());
            json!({"type": "tool_use", "id": new_id("toolu"), "name": name, "input": arguments})
        }
    };
    Some(said)
}

impl Message {
    pub(super) fn new(asked: &Asked, blocks: &[Block]) -> Self {
        let calls = blocks
            .iter()
            .any(|block| matches!(block, Block::Call { .. }));
        let usage = json!({"input_tokens": 1, "output_tokens": 1,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0});
        Self {
            head: json!({"id": new_id("msg"), "type": "message", "role": "assistant", "model": asked.body()["model"],
                "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage}),
            content: blocks
                .iter()
                .filter_map(|block| content(asked, block))
                .collect(),
            stop_reason: if calls { "tool_use" } else { "end_turn" },
        }
    }

    /// Returns the message as one object.
    pub(super) fn whole(mut self) -> Value {
        self.head["content"] = Value::Array(self.content);
        self.head["stop_reason"] = self.stop_reason.into();
        self.head
    }

    /// Returns the message as server-sent events.
    pub(super) fn events(self) -> String {
        let mut text = event("message_start", json!({"message": self.head}));
        for (index, block) in self.content.into_iter().enumerate() {
            let (start, delta) = open(block);
            text += &event(
                "content_block_start",
                json!({"index": index, "content_block": start}),
            );
            text += &event(
                "content_block_delta",
                json!({"index": index, "delta": delta}),
            );
            text += &event("content_block_stop", json!({"index": index}));
        }
        let end = json!({"delta": {"stop_reason": self.stop_reason, "stop_sequence": null},
            "usage": {"output_tokens": 1}});
        text + &event("message_delta", end) + &event("message_stop", json!({}))
    }
}

/// Returns the empty block that starts it, and the delta that fills it.
fn open(mut block: Value) -> (Value, Value) {
    if block["type"] == "text" {
        let text = std::mem::replace(&mut block["text"], "".into());
        return (block, json!({"type": "text_delta", "text": text}));
    }
    let input = std::mem::replace(&mut block["input"], json!({}));
    (
        block,
        json!({"type": "input_json_delta", "partial_json": input.to_string()}),
    )
}

fn event(kind: &str, mut fields: Value) -> String {
    fields["type"] = kind.into();
    format!("event: {kind}\ndata: {fields}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_streamed_with_its_full_name_and_its_input_as_text() {
        let asked = Asked::new(json!({"model": "m", "tools": [{"name": "mcp__c3po__ping"}]}));
        let blocks = [Block::text("now"), Block::call("ping", json!({"a": 1}))];
        let events = Message::new(&asked, &blocks).events();
        assert!(
            events.contains(r#""name":"mcp__c3po__ping","input":{}"#),
            "{events}"
        );
        assert!(events.contains(r#""partial_json":"{\"a\":1}""#), "{events}");
        assert!(events.contains(r#""stop_reason":"tool_use""#), "{events}");
        assert!(
            events.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"),
            "{events}"
        );
    }

    #[test]
    fn words_end_the_turn() {
        let message =
            Message::new(&Asked::new(json!({"model": "m"})), &[Block::text("done")]).whole();
        assert_eq!(
            (&message["stop_reason"], &message["content"][0]["text"]),
            (&json!("end_turn"), &json!("done"))
        );
    }
}
