//! The answers of hooks in the words of Claude Code.

use c3po_shared::ids::AgentId;
use c3po_shared::receipt::Via;
use serde_json::json;

use crate::local::protocol::{Event, Name};

/// Returns the name, in receipts, of the way by which that hook puts messages into a session.
pub(super) fn via(hook: Name) -> Via {
    match hook {
        Name::UserPromptSubmit => Via::UserPromptSubmit,
        Name::Stop => Via::Stop,
        _ => Via::PostToolBatch,
    }
}

/// Returns the output that adds a text to the context of a session; at the end of a turn it prolongs the turn.
pub(super) fn context(hook: Name, text: &str) -> String {
    let event = match hook {
        Name::SessionStart => "SessionStart",
        Name::UserPromptSubmit => "UserPromptSubmit",
        Name::Stop => "Stop",
        _ => "PostToolBatch",
    };
    json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}).to_string()
}

/// Returns the output that makes the terminal show a note on the desktop, if the tool that is about to run asks for a person.
/// The client writes the sequence itself, where it has a terminal.
pub(super) fn desktop_note(event: &Event, agent: &AgentId) -> Option<String> {
    let does = match event
        .own_tool()
        .filter(|_| event.name == Name::PreToolUse)?
    {
        "ask_user" => "asks you a question",
        "notify_user" => "has a notice for you",
        "escalate_to_human" => "needs you",
        _ => return None,
    };
    let sequence = format!("\u{1b}]9;c3po: {agent} {does}\u{7}");
    Some(json!({"terminalSequence": sequence}).to_string())
}

/// Why a pushed prompt is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needless {
    /// All its messages have expired.
    Expired,
    /// Its messages are for an agent that the session is no longer.
    Renamed,
    /// The session has all of them that have not expired.
    Known,
    /// The session may have them.
    Doubtful,
    /// Others are still to come.
    InPart,
}

/// Returns the output that blocks a prompt without showing it to a person.
pub(super) fn refused_prompt(why: Needless) -> String {
    let reason = match why {
        Needless::Expired => "c3po: this message has expired",
        Needless::Renamed => "c3po: this message is for the session's former name",
        Needless::Known => "c3po: the session has this message already",
        Needless::Doubtful => {
            "c3po: the session may have this message already; it is sent again if not"
        }
        Needless::InPart => {
            "c3po: a part of this is in the session already or has expired; the rest is sent again"
        }
    };
    json!({
        "decision": "block",
        "reason": reason,
        "hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "suppressOriginalPrompt": true},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_for_tools_that_ask_for_a_person() {
        let check = |name: Name, tool: &str, expected: Option<&str>| {
            let event = Event {
                tool_name: Some(tool.to_owned()),
                ..Event::new(name)
            };
            let note = desktop_note(&event, &"web".parse().unwrap());
            assert_eq!(note.as_deref(), expected, "{name:?} {tool}");
        };
        let (before, ask) = (Name::PreToolUse, "mcp__plugin_c3po_c3po__ask_user");
        let note = r#"{"terminalSequence":"\u001b]9;c3po: web asks you a question\u0007"}"#;
        check(before, ask, Some(note));
        check(before, "mcp__c3po__ask_user", Some(note));
        check(Name::PermissionRequest, ask, None);
        check(before, "mcp__other__ask_user", None);
        check(before, "mcp__plugin_c3po_c3po__get_messages", None);
        check(before, "AskUserQuestion", None);
    }
}
