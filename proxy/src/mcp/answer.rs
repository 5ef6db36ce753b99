//! What a tool call returns: the compact JSON as text, and the same object as structured content.

use c3po_shared::catalogue::{Inbox, Tool, presented_messages, presented_via};
use c3po_shared::ids::MessageId;
use c3po_shared::message::Message;
use c3po_shared::receipt::Via;
use c3po_shared::refusal::Refusal;
use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Under this name a result carries, as far as the transport, which messages it puts before the model.
const PRESENTS: &str = "c3po/presents";

/// Which messages a result puts before the model.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Presented {
    pub(super) ids: Vec<MessageId>,
    pub(super) via: Via,
    /// The client's name for the use of the tool.
    pub(super) tool_use: Option<String>,
}

/// Returns the result for a reply.
pub(super) fn result(tool: Tool, reply: &RawValue, tool_use: Option<String>) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(reply.get())]);
    result.structured_content = serde_json::from_str(reply.get()).ok();
    // `isError: false` is what its absence says as well.
    result.is_error = None;
    let ids = presented_messages(tool, reply);
    if let (false, Some(via)) = (ids.is_empty(), presented_via(tool)) {
        let mut meta = MetaObject::new();
        let presented = Presented { ids, via, tool_use };
        meta.insert(PRESENTS.to_owned(), serde_json::to_value(presented).unwrap_or_default());
        result.meta = Some(meta);
    }
    result
}

/// Returns a reply in which those messages are marked as repeated; `None` for one that is no message and no page.
pub(super) fn marked(tool: Tool, reply: &RawValue, repeated: &[MessageId]) -> Option<Box<RawValue>> {
    let mark = |message: &mut Message| message.repeated |= repeated.contains(&message.id);
    match tool {
        Tool::WaitForMessage => {
            let mut message: Message = serde_json::from_str(reply.get()).ok()?;
            mark(&mut message);
            serde_json::value::to_raw_value(&message).ok()
        }
        Tool::GetMessages => {
            let mut page: Inbox = serde_json::from_str(reply.get()).ok()?;
            page.messages.iter_mut().for_each(mark);
            serde_json::value::to_raw_value(&page).ok()
        }
        _ => None,
    }
}

/// Returns the result for a refusal, which models read as well.
pub(super) fn refused(refusal: &Refusal) -> CallToolResult {
    let value = serde_json::to_value(refusal).unwrap_or_default();
    let mut result = CallToolResult::error(vec![ContentBlock::text(value.to_string())]);
    result.structured_content = Some(value);
    result
}

/// Takes the note out of a result that is about to be written: it is not the client's.
pub(super) fn take_presented(result: &mut CallToolResult) -> Option<Presented> {
    let meta = result.meta.as_mut()?;
    let note = meta.remove(PRESENTS)?;
    if meta.is_empty() {
        result.meta = None;
    }
    serde_json::from_value(note).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_result_is_text_and_the_same_as_an_object() {
        let reply = serde_json::value::to_raw_value(&json!({"success": true})).unwrap();
        let wire = serde_json::to_value(result(Tool::SetStatus, &reply, None)).unwrap();
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
        let mut shown = result(Tool::WaitForMessage, &reply, Some("toolu_1".into()));
        let presented = take_presented(&mut shown).unwrap();
        assert_eq!((presented.ids[0].as_str(), presented.via), ("a::b::00000001", Via::WaitForMessage));
        assert_eq!(presented.tool_use.as_deref(), Some("toolu_1"));
        assert!(shown.meta.is_none() && take_presented(&mut shown).is_none());
    }
}
