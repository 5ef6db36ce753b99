//! The input that a client writes to a hook, and the part of it that is sent to the proxy.

use std::path::PathBuf;

use c3po_shared::limits::REQUEST_MAX;
use c3po_shared::raw_json::JsonText;
use c3po_shared::surrogates;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::local::MARK;
use crate::local::protocol::{Event, Name, ToolRequest};

/// The names of c3po's tools contain this, whatever the client calls the server.
const OWN: &str = "c3po";

/// The longest prompt of ours, in bytes. Longer prompts are not ours, and would not fit into a line.
const PROMPT_MAX: usize = 128 << 10;

/// Prefixes of prompts that a client generates: from a notification, another session's message, or a channel.
const MADE: [&str; 3] = [NOTICE, "<cross-session-message", "<channel "];
/// The prefix of a notification, which may hold the result of a tool of ours.
const NOTICE: &str = "<task-notification>";

/// The fields that are read. All others, such as the output of a tool, are skipped without being kept.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HookInput {
    session_id: Option<String>,
    agent_id: Option<String>,
    source: Option<String>,
    prompt: Option<String>,
    prompt_id: Option<String>,
    transcript_path: Option<PathBuf>,
    notification_type: Option<String>,
    tool_name: Option<String>,
    tool_input: Option<Box<RawValue>>,
    permission_suggestions: Option<Vec<JsonText>>,
    agent_type: Option<String>,
    tool_use_id: Option<String>,
    tool_calls: Option<Vec<ToolCall>>,
    stop_hook_active: Option<bool>,
    /// A turn that a tool ended has none.
    last_assistant_message: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct ToolCall {
    tool_use_id: Option<String>,
    tool_name: Option<String>,
    tool_response: Option<Box<RawValue>>,
}

impl ToolCall {
    /// Returns whether it is one of c3po's, and its result holds no message: the id of each has two colons.
    fn is_given_up(&self) -> bool {
        let is_own = self
            .tool_name
            .as_ref()
            .is_some_and(|name| name.contains(OWN));
        let response = self.tool_response.as_ref();
        is_own && response.is_some_and(|response| !response.get().contains("::"))
    }
}

/// Returns the event for the word that the plugin uses.
pub fn name(word: &str) -> Option<Name> {
    Some(match word {
        "session-start" => Name::SessionStart,
        "user-prompt-submit" => Name::UserPromptSubmit,
        "pre-tool-use" => Name::PreToolUse,
        // Clients without batches report the end of each use.
        "post-tool-batch" | "post-tool-use" => Name::PostToolBatch,
        "permission-request" => Name::PermissionRequest,
        "notification" => Name::Notification,
        "pre-compact" => Name::PreCompact,
        "stop" => Name::Stop,
        "stop-failure" => Name::StopFailure,
        "subagent-stop" => Name::SubagentStop,
        "session-end" => Name::SessionEnd,
        "wait" => Name::Wait,
        _ => return None,
    })
}

/// Parses the client's input. `None` if it is malformed.
pub fn event(name: Name, input: &[u8]) -> Option<Event> {
    let input: HookInput = surrogates::parse(input).ok()?;
    let calls = input.tool_calls.unwrap_or_default();
    let given_up = calls.iter().filter(|call| call.is_given_up());
    let given_up = given_up.filter_map(|call| call.tool_use_id.clone());
    let given_up = given_up.collect();
    let calls = calls.into_iter().filter_map(|call| call.tool_use_id);
    let asked = input.tool_input.filter(|_| name == Name::PermissionRequest);
    let request = asked
        .filter(|asked| asked.get().len() <= REQUEST_MAX)
        .map(|asked| {
            Box::new(ToolRequest {
                input: asked.get().to_owned(),
                suggestions: input.permission_suggestions.unwrap_or_default(),
                subagent: input.agent_type,
            })
        });
    Some(Event {
        request,
        session_id: input.session_id,
        agent_id: input.agent_id,
        source: input.source,
        typed: name == Name::UserPromptSubmit && input.prompt.as_deref().is_some_and(is_typed),
        prompt: input
            .prompt
            .filter(|prompt| prompt.len() <= PROMPT_MAX && is_of_ours(prompt)),
        prompt_id: input.prompt_id,
        transcript: input.transcript_path,
        notification_type: input.notification_type,
        tool_name: input.tool_name,
        tool_use_ids: input.tool_use_id.into_iter().chain(calls).collect(),
        given_up,
        stop_hook_active: input.stop_hook_active.unwrap_or(false),
        answered: input.last_assistant_message.is_some(),
        ..Event::new(name)
    })
}

/// Returns whether the prompt may be one of ours, or bring the result of one of our tools.
fn is_of_ours(prompt: &str) -> bool {
    prompt.contains(MARK) || (prompt.starts_with(NOTICE) && prompt.contains(OWN))
}

/// Returns whether a person typed the prompt. A prompt that begins with our own mark counts as ours; a person may quote it.
fn is_typed(prompt: &str) -> bool {
    let text = prompt.trim_start();
    !text.is_empty()
        && !text.starts_with(MARK)
        && !MADE.iter().any(|beginning| text.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(word: &str, input: &Value, expected: Value) {
        let event = event(name(word).unwrap(), input.to_string().as_bytes()).unwrap();
        assert_eq!(serde_json::to_value(&event).unwrap(), expected, "{word}");
    }

    #[test]
    fn the_input_of_each_hook_becomes_an_event() {
        let start = json!({"session_id": "s", "cwd": "/p", "hook_event_name": "SessionStart", "source": "clear"});
        let expected = json!({"name": "session-start", "session_id": "s", "source": "clear", "stop_hook_active": false});
        check("session-start", &start, expected);
        let stop = json!({"session_id": "s", "prompt_id": "p", "stop_hook_active": true, "last_assistant_message": "Done."});
        let expected = json!({"name": "stop", "session_id": "s", "prompt_id": "p", "stop_hook_active": true, "answered": true});
        check("stop", &stop, expected);
        let ended = json!({"session_id": "s", "agent_id": "a7", "agent_type": "general-purpose", "stop_hook_active": null});
        let expected = json!({"name": "subagent-stop", "session_id": "s", "agent_id": "a7", "stop_hook_active": false});
        check("subagent-stop", &ended, expected);
        let tool =
            json!({"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1"});
        let expected = json!({"name": "pre-tool-use", "tool_name": "Bash", "tool_use_ids": ["toolu_1"], "stop_hook_active": false});
        check("pre-tool-use", &tool, expected);
        let notice =
            json!({"message": "Claude needs you", "notification_type": "permission_prompt"});
        let expected = json!({"name": "notification", "notification_type": "permission_prompt", "stop_hook_active": false});
        check("notification", &notice, expected);
        check(
            "wait",
            &json!({}),
            json!({"name": "wait", "stop_hook_active": false}),
        );
    }

    #[test]
    fn a_batch_and_a_single_use_name_their_calls() {
        let call = |id| json!({"tool_name": "Read", "tool_input": {}, "tool_use_id": id, "tool_response": [[{"x": 1}]]});
        let batch = json!({"tool_calls": [call("toolu_1"), call("toolu_2")]});
        let expected = json!({"name": "post-tool-batch", "tool_use_ids": ["toolu_1", "toolu_2"], "stop_hook_active": false});
        check("post-tool-batch", &batch, expected);
        let expected = json!({"name": "post-tool-batch", "tool_name": "Read", "tool_use_ids": ["toolu_3"],
            "stop_hook_active": false});
        check("post-tool-use", &call("toolu_3"), expected);
    }

    #[test]
    fn prompts_of_people_stay_with_the_client() {
        let prompt = |text: String| {
            let input = json!({"prompt": text}).to_string();
            event(Name::UserPromptSubmit, input.as_bytes())
                .unwrap()
                .prompt
        };
        assert_eq!(prompt("my password is hush".to_owned()), None);
        assert_eq!(prompt("what of c3po?".to_owned()), None);
        let notice = |task: &str| format!("<task-notification>\n<summary>{task}</summary>");
        assert_eq!(prompt(notice("shell")), None);
        let own = notice("MCP task k1 (c3po/wait_for_message) completed.");
        assert_eq!(prompt(own.clone()), Some(own));
        let half = format!(r#"{{"prompt": "{MARK} half a character \ud83d"}}"#);
        assert!(
            event(Name::UserPromptSubmit, half.as_bytes())
                .is_some_and(|event| event.prompt.is_some())
        );
        assert_eq!(
            prompt(format!("so: {MARK} 1 message")),
            Some("so: [c3po] 1 message".to_owned())
        );
        assert_eq!(prompt(format!("{MARK} {}", "x".repeat(PROMPT_MAX))), None);
    }

    #[test]
    fn only_a_prompt_that_is_neither_ours_nor_made_by_the_client_was_typed() {
        let check = |name: Name, prompt: &str, expected: bool| {
            let event = event(name, json!({"prompt": prompt}).to_string().as_bytes()).unwrap();
            assert_eq!(event.typed, expected, "{name:?} {prompt}");
        };
        let prompt = Name::UserPromptSubmit;
        check(prompt, "go on, both of you", true);
        check(prompt, "what is <task-notification>?", true);
        check(
            prompt,
            &format!("why do I see \"{MARK} 1 message\" here?"),
            true,
        );
        check(prompt, "", false);
        check(
            prompt,
            " \n<task-notification>\n<result>slept</result>",
            false,
        );
        check(
            prompt,
            "<cross-session-message from=\"uds:/x\">\nhi\n</cross-session-message>",
            false,
        );
        check(prompt, "<channel source=\"c3po\">hi</channel>", false);
        check(prompt, &format!("{MARK} 1 message"), false);
        check(prompt, &format!("{MARK} {}", "x".repeat(PROMPT_MAX)), false);
        check(Name::Stop, "go on", false);
        assert!(!event(prompt, b"{}").unwrap().typed);
    }

    #[test]
    fn malformed_input_is_no_event() {
        for input in ["", "null", "[1]", "{", "go", "{\"session_id\": 7}", "\u{0}"] {
            assert!(event(Name::Stop, input.as_bytes()).is_none(), "{input}");
        }
        let deep = format!(
            "{{\"tool_response\": {}1{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(event(Name::PostToolBatch, deep.as_bytes()).is_some());
        assert!(name("status").is_none() && name("Stop").is_none() && name("").is_none());
    }

    #[test]
    fn a_result_of_ours_without_a_message_was_given_up() {
        let check = |tool: &str, response: Value, expected: &[&str]| {
            let mut call = json!({"tool_use_id": "toolu_1", "tool_name": tool});
            if !response.is_null() {
                call["tool_response"] = response.clone();
            }
            let input = json!({"tool_calls": [call]}).to_string();
            let event = event(Name::PostToolBatch, input.as_bytes()).unwrap();
            assert_eq!(event.given_up, expected, "{tool} {response}");
        };
        let wait = "mcp__plugin_c3po_c3po__wait_for_message";
        check(wait, json!("timed out after 1.5s"), &["toolu_1"]);
        check(
            wait,
            json!([{"type": "text", "text": "{\"id\": \"a::b::1\"}"}]),
            &[],
        );
        check(wait, Value::Null, &[]);
        check("Bash", json!("done"), &[]);
    }
}
