//! The answers of hooks in the words of Claude Code.

use c3po_shared::receipt::Via;
use serde_json::json;

/// Returns what adds a text to the context of a session; at the end of a turn it keeps the turn from ending.
pub(super) fn context(event: Via, text: &str) -> String {
    let event = match event {
        Via::SessionStart => "SessionStart",
        Via::UserPromptSubmit => "UserPromptSubmit",
        Via::Stop => "Stop",
        _ => "PostToolBatch",
    };
    json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}).to_string()
}

/// Returns what keeps a prompt from the model without showing it to a person.
pub(super) fn refused_prompt() -> String {
    json!({
        "decision": "block",
        "reason": "c3po: the session has this message already",
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "suppressOriginalPrompt": true},
    })
    .to_string()
}
