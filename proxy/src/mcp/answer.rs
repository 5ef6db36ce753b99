//! The results of tool calls: compact JSON as text, and the same object as structured content.

use c3po_shared::catalogue::Received;
use c3po_shared::refusal::Refusal;
use rmcp::model::{CallToolResult, ContentBlock};

/// Returns the result for a reply.
pub(super) fn result(reply: Received) -> CallToolResult {
    let (text, value) = reply.into_parts();
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(value);
    // Its absence means `isError: false` too.
    result.is_error = None;
    result
}

/// Returns the result for a refusal. Models read it too.
pub(super) fn refused(refusal: &Refusal) -> CallToolResult {
    let value = serde_json::to_value(refusal).unwrap_or_default();
    let mut result = CallToolResult::error(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_text_and_the_same_as_an_object() {
        let wire = serde_json::to_value(result(Received::of(&json!({"success": true})))).unwrap();
        assert_eq!(
            wire["content"],
            json!([{"type": "text", "text": "{\"success\":true}"}])
        );
        assert_eq!(wire["structuredContent"], json!({"success": true}));
        assert!(wire.get("isError").is_none() && wire.get("_meta").is_none());
    }

    #[test]
    fn a_refusal_is_an_error_with_its_whole_story() {
        let wire = serde_json::to_value(refused(&Refusal::invalid("message is empty"))).unwrap();
        assert_eq!(wire["isError"], true);
        assert_eq!(wire["structuredContent"]["code"], "INVALID_REQUEST");
        assert_eq!(
            wire["content"][0]["text"],
            wire["structuredContent"].to_string()
        );
    }
}
