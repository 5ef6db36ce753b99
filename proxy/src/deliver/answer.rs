//! The answers of hooks in the words of Claude Code.

use c3po_shared::receipt::Via;
use serde_json::json;

use crate::local::protocol::Name;

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

/// Why a pushed prompt is blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needless {
    /// All its messages have expired.
    Expired,
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
