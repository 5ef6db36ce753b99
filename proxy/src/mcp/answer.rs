//! What a tool call returns: the compact JSON as text, and the same object as structured content.

use c3po_shared::catalogue::{Tool, presented_messages, presented_via};
use c3po_shared::ids::MessageId;
use c3po_shared::receipt::Via;
use c3po_shared::refusal::Refusal;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::Value;
use serde_json::value::RawValue;

/// Under this name a result carries, as far as the transport, which messages it puts before the model.
const PRESENTS: &str = "c3po/presents";

/// Returns the result for a reply.
pub(super) fn result(tool: Tool, reply: &RawValue) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(reply.get())]);
    result.structured_content = serde_json::from_str(reply.get()).ok();
    // `isError: false` is what its absence says as well.
    result.is_error = None;
    let presented = presented_messages(tool, reply);
    if let (false, Some(via)) = (presented.is_empty(), presented_via(tool)) {
        let mut meta = MetaObject::new();
        let ids = presented.iter().map(|id| Value::from(id.as_str())).collect();
        meta.insert(PRESENTS.to_owned(), Value::Array(vec![Value::from(via.as_str()), Value::Array(ids)]));
        result.meta = Some(meta);
    }
    result
}

/// Returns the result for a refusal, which models read as well.
pub(super) fn refused(refusal: &Refusal) -> CallToolResult {
    let value = serde_json::to_value(refusal).unwrap_or_default();
    let mut result = CallToolResult::error(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

/// Takes the note out of a result that is about to be written: it is not the client's.
pub(super) fn take_presented(result: &mut CallToolResult) -> Option<(Vec<MessageId>, Via)> {
    let meta = result.meta.as_mut()?;
    let note = meta.remove(PRESENTS)?;
    if meta.is_empty() {
        result.meta = None;
    }
    let (via, ids): (Via, Vec<MessageId>) = serde_json::from_value(note).ok()?;
    Some((ids, via))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_text_and_the_same_as_an_object() {
        let reply = serde_json::value::to_raw_value(&json!({"success": true})).unwrap();
        let wire = serde_json::to_value(result(Tool::SetStatus, &reply)).unwrap();
        assert_eq!(wire["content"], json!([{"type": "text", "text": "{\"success\":true}"}]));
        assert_eq!(wire["structuredContent"], json!({"success": true}));
        assert!(wire.get("isError").is_none() && wire.get("_meta").is_none());
    }

    #[test]
    fn a_refusal_is_an_error_with_its_whole_story() {
        let wire = serde_json::to_value(refused(&Refusal::invalid("message is empty"))).unwrap();
        assert_eq!(wire["isError"], true);
        assert_eq!(wire["structuredContent"]["code"], "INVALID_REQUEST");
        assert_eq!(wire["content"][0]["text"], wire["structuredContent"].to_string());
    }

    #[test]
    fn what_a_result_presents_is_noted_and_taken_out() {
        let reply = serde_json::value::to_raw_value(&json!({"id": "a::b::00000001", "message": "hi"})).unwrap();
        let mut shown = result(Tool::WaitForMessage, &reply);
        let (ids, via) = take_presented(&mut shown).unwrap();
        assert_eq!((ids[0].as_str(), via), ("a::b::00000001", Via::WaitForMessage));
        assert!(shown.meta.is_none() && take_presented(&mut shown).is_none());
    }
}
