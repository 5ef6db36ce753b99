//! The c3po tools that sessions may use without asking: entries in the user's settings, one per tool.

use std::io::{self, IsTerminal as _};

use c3po_shared::catalogue::Tool;
use serde_json::{Value, json};

use super::settings::Members;
use crate::commands::confirm::confirmed;

/// The tools of a conversation. Tools that change a session's name, or write to every agent, still need a permission.
const TOOLS: [Tool; 8] = [
    Tool::SendMessage,
    Tool::Reply,
    Tool::GetMessages,
    Tool::WaitForMessage,
    Tool::AckMessages,
    Tool::ListAgents,
    Tool::AskUser,
    Tool::NotifyUser,
];
/// The beginning of Claude Code's names for the tools of the plugin's server.
const PREFIX: &str = "mcp__plugin_c3po_c3po__";

/// Returns the tools as a list for a sentence.
pub(in crate::commands) fn listed() -> String {
    TOOLS.map(Tool::name).join(", ")
}

fn entries() -> impl Iterator<Item = String> {
    TOOLS.iter().map(|tool| format!("{PREFIX}{}", tool.name()))
}

/// Returns the settings in which these tools need no permission; `None` if they have it already.
pub(in crate::commands) fn allowed(members: &Members) -> Option<Members> {
    let mut members = members.clone();
    let allow = members
        .entry("permissions")
        .or_insert_with(|| json!({}))
        .as_object_mut()?;
    let allow = allow
        .entry("allow")
        .or_insert_with(|| json!([]))
        .as_array_mut()?;
    let missing: Vec<_> = entries()
        .map(Value::from)
        .filter(|entry| !allow.contains(entry))
        .collect();
    if missing.is_empty() {
        return None;
    }
    allow.extend(missing);
    Some(members)
}

/// Removes those entries from the settings, and parents that are empty without them.
pub(in crate::commands) fn take_back(members: &mut Members) {
    let Some(permissions) = members
        .get_mut("permissions")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    let Some(allow) = permissions.get_mut("allow").and_then(Value::as_array_mut) else {
        return;
    };
    let (before, ours) = (allow.len(), entries().map(Value::from).collect::<Vec<_>>());
    allow.retain(|entry| !ours.contains(entry));
    if allow.len() == before || !allow.is_empty() {
        return;
    }
    permissions.shift_remove("allow");
    if permissions.is_empty() {
        members.shift_remove("permissions");
    }
}

/// Asks a person whether the tools may be used without a prompt. Without a terminal the answer is no.
pub(in crate::commands) fn ask() -> bool {
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return false;
    }
    confirmed(&format!(
        "Allow sessions to use these c3po tools without asking each time: {}?\nOther tools still ask. [y/N] ",
        listed()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(value: &Value) -> Members {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn each_tool_is_allowed_by_its_name_and_taken_back_by_it() {
        let check = |before: Value| {
            let mut with = allowed(&members(&before)).unwrap();
            let allow = with["permissions"]["allow"].as_array().unwrap();
            for entry in [
                "mcp__plugin_c3po_c3po__send_message",
                "mcp__plugin_c3po_c3po__list_agents",
            ] {
                assert!(allow.contains(&json!(entry)), "{allow:?}");
            }
            assert!(
                !allow.contains(&json!("mcp__plugin_c3po_c3po__broadcast")),
                "{allow:?}"
            );
            assert_eq!(allowed(&with), None, "a second time adds nothing");
            take_back(&mut with);
            assert_eq!(Value::Object(with), before);
        };
        check(json!({}));
        check(
            json!({"model": "opus", "permissions": {"allow": ["Bash(ls)"], "deny": ["WebFetch"]}}),
        );
        check(json!({"permissions": {"deny": ["WebFetch"]}}));
    }

    #[test]
    fn settings_of_another_form_are_left_alone() {
        assert_eq!(allowed(&members(&json!({"permissions": "all"}))), None);
        let mut odd = members(&json!({"permissions": {"allow": []}}));
        take_back(&mut odd);
        assert_eq!(Value::Object(odd), json!({"permissions": {"allow": []}}));
    }
}
